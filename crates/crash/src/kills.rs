//! Processes that are killed in the middle of a step.
//!
//! A kill loses nothing that was stored, because the caches survive; but which stores were flushed
//! is unknown. Another process opens the pool under the same boot, recovers it, and closes it. At
//! every point of that the power may fail. While the pool is being opened, the step that was killed
//! may have happened or not. Once the pool is open, that is decided, and no power cut reverts it:
//! neither the stores of the killed process, nor what recovery did about them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use vellum_media::{Event, LINE_BYTES, Memory, Op, SimImages};

use crate::closed::geometry;
use crate::compare::Expected;
use crate::explore::Explorer;
use crate::id::{CrashId, Mode};
use crate::judge::{Wrong, text_of};
use crate::location::{Reached, steps_of};
use crate::memories::{Explored, Shared, image_after};
use crate::oracle::{Oracle, Stage};
use crate::record::{Recorded, perform};
use crate::replay::{Replay, ReplayError, replay_log};
use crate::report::{Counts, Kind, RECOVERY, Violation, WorkloadReport};
use crate::run::Progress;
use crate::session::{CLOCK_START, Session, mount};
use crate::shrink::spread;
use crate::tree::{Tree, read_tree};
use crate::workload::Step;
use crate::{Options, Subject};

/// What the next process does after opening the pool: a close relies on everything that recovery
/// left.
const AFTERWARDS: [Step; 1] = [Step::Close];

/// Explores the kills of `subject`; `expected` says what crashes may show.
pub(crate) fn explore_kills(
    subject: &Subject<'_>,
    expected: &Expected,
    options: &Options,
    progress: &Progress,
) -> WorkloadReport {
    let log = subject.change.of(subject.log);
    let skip = subject.change.of(&subject.log[..subject.skip]).len();
    let moments = moments(&log, skip, options.kills);
    let killed = Killed::at(&moments, &log, subject, expected);
    let subject = killed.subject(subject);
    let mut explorer = Explorer::new(&subject, options, progress);
    for (&events, kill) in &killed.kills {
        let name = format!("{}!{events}", subject.name);
        // The marker of the kill: a power cut there is covered by `x86`.
        explorer.explore_changed(&name, &kill.whole_log(&log), events + 1);
    }
    let mut report = explorer.finish();
    killed.add_to(&mut report, &subject);
    report
}

/// Repeats a kill after this many events, and the crash after it that `id` names.
///
/// # Errors
/// There is no such crash.
pub(crate) fn replay_kill(
    subject: &Subject<'_>,
    expected: &Expected,
    id: &CrashId,
    events: usize,
) -> Result<Replay, ReplayError> {
    let log = subject.change.of(subject.log);
    if !(1..=log.len()).contains(&events) {
        return Err(ReplayError::NoSuchPoint(events));
    }
    let killed = Killed::at(&[events], &log, subject, expected);
    let kill = &killed.kills[&events];
    let mut replay = replay_log(&killed.subject(subject), &kill.whole_log(&log), id)?;
    if id.cuts.is_empty() {
        replay.moment = killed.describe(kill.being_opened());
        replay.image = image_after(&subject.base, &log[..events]);
    }
    replay.wrong.extend(kill.wrong.clone());
    Ok(replay)
}

/// The steps of the processes that follow some kills of what was recorded.
pub(crate) fn steps_after_kills(recorded: &Recorded) -> Reached {
    const KILLS: usize = 4;
    let subject = recorded.subject(Mode::Kill);
    let moments = moments(subject.log, subject.skip, KILLS);
    let killed = Killed::at(&moments, subject.log, &subject, &recorded.expected);
    let tails = killed.kills.values().flat_map(|kill| &kill.tail);
    steps_of(tails).collect()
}

/// The `most` moments at which processes are killed, as numbers of events. Half of them are before
/// fences and returns, where the most is not yet durable; the other half is anywhere else that
/// something was stored.
fn moments(log: &[Event], skip: usize, most: usize) -> Vec<usize> {
    let (mut before_fences, mut others) = (Vec::new(), Vec::new());
    let mut last = None;
    for (at, event) in log.iter().enumerate() {
        match event.op {
            Op::Store { before, after, .. } if before != after => {
                others.extend(last.replace(at + 1));
            }
            Op::Fence | Op::Marker(_) => before_fences.extend(last.take()),
            Op::Store { .. } | Op::Flush { .. } | Op::Behind { .. } | Op::Release { .. } => {}
        }
    }
    before_fences.retain(|&events| events > skip);
    others.retain(|&events| events > skip);
    let first = before_fences
        .len()
        .min(most.div_ceil(2).max(most.saturating_sub(others.len())));
    let mut moments = spread(before_fences, first);
    moments.extend(spread(others, most - moments.len()));
    moments.sort_unstable();
    moments
}

/// A process that was killed, and the one after it.
struct Kill {
    /// The number of its events.
    events: usize,
    /// The explored steps of it that had returned.
    returned: Stage,
    /// The events of the next process, with one marker before them, one when the pool is open, and
    /// one behind each step.
    tail: Vec<Event>,
    /// What crashes of the next process may show.
    expected: Expected,
    /// What went wrong without a power cut.
    wrong: Vec<Wrong>,
}

impl Kill {
    /// The stage while the pool is being opened after the kill.
    fn being_opened(&self) -> Stage {
        Stage((self.events as u64) << u32::BITS)
    }

    /// The events of both processes.
    fn whole_log(&self, log: &[Event]) -> Vec<Event> {
        [&log[..self.events], &self.tail].concat()
    }
}

/// Decides what a power cut may show after each kill of a run; kills are identified by their number
/// of events.
///
/// Stages of the run itself are unchanged. Those after a kill have the number of events in their
/// upper half. In the lower half, 0 means the opening, and n + 1 means that n steps have returned
/// since.
struct Killed<'a> {
    expected: &'a Expected,
    kills: BTreeMap<usize, Kill>,
}

impl<'a> Killed<'a> {
    /// Kills the run that wrote `log` at each of `moments`, which are in ascending order.
    fn at(moments: &[usize], log: &[Event], subject: &Subject<'_>, expected: &'a Expected) -> Self {
        let mut killed = Self {
            expected,
            kills: BTreeMap::new(),
        };
        let mut pool = Shared::of(subject.base.clone());
        let (mut done, mut returned) = (0, Stage::default());
        for &events in moments {
            for event in &log[done..events] {
                match event.op {
                    Op::Store { at, after, .. } => pool.store(at, after, Ordering::Relaxed),
                    Op::Marker(marker) => returned = expected.after(returned, marker),
                    Op::Flush { .. } | Op::Fence | Op::Behind { .. } | Op::Release { .. } => {}
                }
            }
            done = events;
            let mut kill = Kill {
                events,
                returned,
                tail: Vec::new(),
                expected: Expected::default(),
                wrong: Vec::new(),
            };
            let mut next = NextProcess {
                pool: &pool,
                cache_entries: subject.cache_entries,
                unsynced: unsynced(&subject.base, &log[..events]),
            };
            match next.run(kill.being_opened()) {
                Ok((tail, trees)) => {
                    kill.wrong = expected.judge(&trees[0], expected.all_of(returned));
                    kill.tail = subject.change.of(&tail).into_owned();
                    kill.expected = Expected::of_steps(&AFTERWARDS, trees);
                }
                Err(wrong) => {
                    kill.wrong.push(wrong);
                    pool = Shared::of(image_after(&subject.base, &log[..events]));
                }
            }
            killed.kills.insert(events, kill);
        }
        killed
    }

    /// The logs of `subject` with their kills.
    fn subject<'s>(&'s self, subject: &Subject<'s>) -> Subject<'s> {
        Subject {
            name: subject.name.clone(),
            base: subject.base.clone(),
            oracle: self,
            ..*subject
        }
    }

    /// Adds the kills, and what was wrong without a power cut, to the report.
    fn add_to(&self, report: &mut WorkloadReport, subject: &Subject<'_>) {
        for kill in self.kills.values() {
            let operation = self.expected.operation(kill.returned);
            let more = Counts {
                kills: 1,
                violations: kill.wrong.len() as u64,
                ..Counts::default()
            };
            report.counts += more;
            *report.operations.entry(operation.to_owned()).or_default() += more;
            let id = CrashId {
                mode: Mode::Kill,
                workload: format!("{}!{}", subject.name, kill.events),
                mutant: subject.change.mutant(),
                cuts: Vec::new(),
            };
            let violation = |(kind, detail): &Wrong| Violation {
                moment: self.describe(kill.being_opened()),
                ..Violation::of_run(&id.to_string(), *kind, detail.clone(), operation)
            };
            report.violations.extend(kill.wrong.iter().map(violation));
        }
    }

    /// The kill before `stage`; and, once the pool is open again, the stage of the steps after it.
    fn find(&self, stage: Stage) -> Option<(&Kill, Option<Stage>)> {
        let events = (stage.0 >> u32::BITS) as usize;
        let since = stage.0 & u64::from(u32::MAX);
        let kill = self.kills.get(&events)?;
        Some((kill, since.checked_sub(1).map(Stage)))
    }
}

impl Oracle for Killed<'_> {
    fn after(&self, _stage: Stage, marker: u64) -> Stage {
        Stage(marker)
    }

    fn judge(&self, tree: &Tree, stage: Stage) -> Vec<Wrong> {
        match self.find(stage) {
            Some((kill, Some(stage))) => kill.expected.judge(tree, stage),
            Some((kill, None)) => self.expected.judge(tree, kill.returned),
            None => self.expected.judge(tree, stage),
        }
    }

    fn broken_promise(&self, stage: Stage, image: &[u8]) -> Option<Wrong> {
        let (kill, since) = self.find(stage)?;
        kill.expected.broken_promise(since?, image)
    }

    fn operation(&self, stage: Stage) -> &'static str {
        match self.find(stage) {
            Some((kill, Some(stage))) => kill.expected.operation(stage),
            Some((_, None)) => RECOVERY,
            None => self.expected.operation(stage),
        }
    }

    fn describe(&self, stage: Stage) -> String {
        let Some((kill, since)) = self.find(stage) else {
            return self.expected.describe(stage);
        };
        let then = match since {
            Some(stage) => format!("had been opened: {}", kill.expected.describe(stage)),
            None => "was being opened again".to_owned(),
        };
        let killed = self.expected.describe(kill.returned);
        format!(
            "killed after {} events ({killed}), the pool {then}",
            kill.events
        )
    }
}

/// The process that opens the pool after a kill.
struct NextProcess<'a> {
    pool: &'a Shared,
    cache_entries: u64,
    /// Lines of a data disk that may be only in caches.
    unsynced: BTreeSet<u64>,
}

/// The written lines of a data disk, if there is one.
fn unsynced(base: &[u8], log: &[Event]) -> BTreeSet<u64> {
    let external = geometry(base).filter(|geometry| geometry.external.is_some());
    let data_at = external.map_or(u64::MAX, |geometry| geometry.data_at);
    let lines = log.iter().filter_map(|event| match event.op {
        Op::Store { at, .. } => Some(at - at % LINE_BYTES).filter(|&line| line >= data_at),
        _ => None,
    });
    lines.collect()
}

impl NextProcess<'_> {
    /// Runs the process, with markers from `stage` on. Returns its events, and the trees when the
    /// pool is open and after each step. Leaves the pool as it was.
    ///
    /// # Errors
    /// The process fails; the pool may then hold another state.
    fn run(&mut self, stage: Stage) -> Result<(Vec<Event>, Vec<Tree>), Wrong> {
        let trees = (0..=AFTERWARDS.len()).map(|steps| self.tree_after(steps));
        let trees = trees.collect::<Result<_, _>>()?;
        self.pool.0.start_recording();
        self.pool.0.marker(stage.0);
        let done = as_process(|| {
            let mut session = self.open()?;
            for (step, marker) in AFTERWARDS.iter().zip(stage.0 + 1..) {
                self.pool.0.marker(marker);
                perform(&mut session, step).map_err(|error| (Kind::Close, error.to_string()))?;
            }
            self.pool.0.marker(stage.0 + 1 + AFTERWARDS.len() as u64);
            Ok(())
        });
        let log = self.pool.0.take_log();
        done?;
        self.pool.undo(&log);
        match self.pool.damaged() {
            Some(at) => Err((
                Kind::Panic,
                format!("an access outside the pool, at {at:#x}"),
            )),
            None => Ok((log, trees)),
        }
    }

    fn open(&self) -> Result<Session, Wrong> {
        let images = Arc::new(SimImages::unsynced(self.unsynced.clone()));
        let mut session = Session::after_kill(self.pool.clone(), self.cache_entries, images);
        let opened = perform(&mut session, &Step::Open);
        opened.map_err(|error| (Kind::Recovery, error.to_string()))?;
        Ok(session)
    }

    /// The tree after this many steps, from a run of its own, because reading the tree leaves
    /// traces in the pool.
    fn tree_after(&self, steps: usize) -> Result<Tree, Wrong> {
        self.pool.0.remember();
        let tree = as_process(|| {
            let mut session = self.open()?;
            for step in &AFTERWARDS[..steps] {
                perform(&mut session, step).map_err(|error| (Kind::Close, error.to_string()))?;
            }
            let tree = match session.fs() {
                Some(fs) => read_tree(fs),
                None => mount::<Explored>(self.pool, self.cache_entries, CLOCK_START)
                    .and_then(|fs| read_tree(&fs)),
            };
            tree.map_err(|error| (Kind::Reading, error.to_string()))
        });
        self.pool.0.revert();
        tree
    }
}

/// Runs `work` in a thread of its own, so that its fences complete no flush of a dead process.
fn as_process<T: Send>(work: impl FnOnce() -> Result<T, Wrong> + Send) -> Result<T, Wrong> {
    std::thread::scope(|scope| {
        let ended = scope.spawn(work).join();
        ended.unwrap_or_else(|panic| Err((Kind::Panic, text_of(&*panic))))
    })
}

#[cfg(test)]
mod tests {
    use vellum_media::{Caller, Site};

    use super::*;

    fn log(text: &str) -> Vec<Event> {
        let ops = text.bytes().enumerate().map(|(at, letter)| match letter {
            b'f' => Op::Fence,
            b'm' => Op::Marker(1),
            _ => Op::Store {
                at: 8 * at as u64,
                before: 0,
                after: u64::from(letter == b's'),
                non_temporal: false,
            },
        });
        ops.map(|op| Event {
            thread: 1,
            op,
            site: Site::UNNAMED,
            place: Caller::here(),
        })
        .collect()
    }

    #[test]
    fn kills_are_where_something_was_stored() {
        let log = log("ss-fsssfsm");
        assert_eq!(moments(&log, 0, 10), [1, 2, 5, 6, 7, 9]);
        assert_eq!(moments(&log, 4, 10), [5, 6, 7, 9]);
        assert_eq!(moments(&log, 0, 4).len(), 4);
        assert_eq!(moments(&log, 8, 4), [9], "between fences");
        let first = moments(&log, 0, 1);
        assert!([2, 7, 9].contains(&first[0]), "before a fence");
        assert_eq!(moments(&log, 0, 0), []);
    }
}
