//! Disks that ignore flushes: a sync returns, but its data are still in the disk's volatile cache.
//!
//! In each run one sync does nothing, a different one each time; the next sync of the same disk
//! does the work of both. What was promised in between may be missing, and files may hold other
//! bytes. But the tree that is found existed at some moment after the last sync before, or the pool
//! is refused with a message that reports the loss. Nothing is mistaken for something else. A disk
//! that holds only the bytes of files can lose only these.

use vellum::disk_sites;
use vellum_media::{Event, Op, Site};

use crate::closed::geometry;
use crate::compare::Expected;
use crate::explore::Explorer;
use crate::id::CrashId;
use crate::judge::Wrong;
use crate::oracle::{Oracle, Stage};
use crate::replay::{Replay, ReplayError, replay_log};
use crate::report::{Kind, WorkloadReport};
use crate::run::Progress;
use crate::shrink::spread;
use crate::tree::Tree;
use crate::{Options, Subject};

/// Syncs of a disk that holds only the bytes of files.
const OF_DATA: [Site; 4] = [
    disk_sites::LOG_INHERITED_DATA,
    disk_sites::LOG_DATA_DURABLE,
    disk_sites::LOG_RIDES_DURABLE,
    disk_sites::VERSIONS_DATA_DURABLE,
];

/// The marker after which names and attributes may be lost.
const LOSING: u64 = u64::MAX;
/// The bit of a stage behind that marker.
const LOST: u64 = 1 << 63;

/// Messages of the checker and of an opening that report a loss: lines of a checkpoint did not
/// reach home, or parts of anchors did not reach the log.
const REPORTED: [&str; 3] = [
    "metadata at home that differ from their sum",
    "checksum of home",
    "both anchors of the log",
];

/// Explores `subject` with some of its syncs ignored, one in each run; `expected` has the trees
/// that existed.
pub(crate) fn explore_ignored_flushes(
    subject: &Subject<'_>,
    expected: &Expected,
    options: &Options,
    progress: &Progress,
) -> WorkloadReport {
    let log = subject.change.of(subject.log);
    let skip = subject.change.of(&subject.log[..subject.skip]).len();
    let is_external = is_external(&subject.base);
    let begins = syncs(&log).into_iter().map(|at| begin(&log, at));
    let numbers = begins.enumerate().filter(|&(_, begin)| begin > Some(skip));
    let numbers = numbers.map(|(number, _)| number).collect();
    let numbers = spread(numbers, options.ignored_flushes);
    let oracle = Ignoring { expected };
    let subject = oracle.subject(subject);
    let mut explorer = Explorer::new(&subject, options, progress);
    for number in numbers {
        if let Some(ignored) = IgnoredFlush::of(&log, is_external, number) {
            let name = format!("{}!{number}", subject.name);
            explorer.explore_changed(&name, &ignored.log, ignored.from);
        }
    }
    explorer.finish()
}

/// Repeats the crash that `id` names after the ignored sync of this number.
///
/// # Errors
/// There is no such crash.
pub(crate) fn replay_ignored_flush(
    subject: &Subject<'_>,
    expected: &Expected,
    id: &CrashId,
    number: usize,
) -> Result<Replay, ReplayError> {
    let log = subject.change.of(subject.log);
    let ignored = IgnoredFlush::of(&log, is_external(&subject.base), number);
    let ignored = ignored.ok_or(ReplayError::NoSuchPoint(number))?;
    replay_log(&Ignoring { expected }.subject(subject), &ignored.log, id)
}

/// Whether the bytes of files have a disk of their own.
fn is_external(base: &[u8]) -> bool {
    geometry(base).is_some_and(|geometry| geometry.external.is_some())
}

/// A run in which one sync does nothing.
struct IgnoredFlush {
    /// Its events up to the next sync of the disk. From then on the run is as if nothing had been
    /// ignored.
    log: Vec<Event>,
    /// The number of events before the ignored sync.
    from: usize,
}

impl IgnoredFlush {
    /// The run of `log` in which the sync of this number does nothing; `None` if that sync had
    /// nothing to do.
    fn of(log: &[Event], is_external: bool, number: usize) -> Option<Self> {
        let syncs = syncs(log);
        let &at = syncs.get(number)?;
        let from = begin(log, at)?;
        let is_of_data = |at: usize| is_external && OF_DATA.contains(&log[at].site);
        let mut later = syncs[number + 1..].iter();
        let next = later.find(|&&next| is_of_data(next) == is_of_data(at));
        let until = next.map_or(log.len(), |&next| next);
        let mut changed = log[..from].to_vec();
        if !is_of_data(at) {
            let op = Op::Marker(LOSING);
            changed.push(Event { op, ..log[at] });
        }
        changed.extend_from_slice(&log[at + 1..until]);
        if let Some(&next) = next {
            // A fence completes only the flushes of its own thread.
            let thread = log[next].thread;
            let late = log[from..at].iter();
            changed.extend(late.map(|&event| Event { thread, ..event }));
            changed.push(log[next]);
        }
        Some(Self { log: changed, from })
    }
}

/// The syncs of disks in a log.
fn syncs(log: &[Event]) -> Vec<usize> {
    const OTHERS: [Site; 2] = [
        disk_sites::VERSIONS_DATA_DURABLE,
        disk_sites::PARTS_TABLE_DURABLE,
    ];
    let is_sync = |event: &Event| {
        event.op == Op::Fence
            && (OTHERS.contains(&event.site) || disk_sites::name(event.site).starts_with("log/"))
    };
    (0..log.len()).filter(|&at| is_sync(&log[at])).collect()
}

/// The beginning of the sync that ends at `at`; `None` if that sync has nothing to do.
fn begin(log: &[Event], at: usize) -> Option<usize> {
    let before = log[..at].iter().rev();
    let flushes = before.take_while(|event| is_flush_of_sync(event)).count();
    (flushes > 0).then_some(at - flushes)
}

/// Whether the event is a sync's flush of a written line.
fn is_flush_of_sync(event: &Event) -> bool {
    matches!(event.op, Op::Flush { .. }) && event.site == Site::UNNAMED
}

/// Decides what a power cut may show after an ignored sync. Its stages are those of the run itself;
/// after the loss of a flush that protects names, they also have the bit [`LOST`], and what was
/// synced stays what it was at the ignored sync.
struct Ignoring<'a> {
    expected: &'a Expected,
}

impl Ignoring<'_> {
    fn subject<'s>(&'s self, subject: &Subject<'s>) -> Subject<'s> {
        Subject {
            name: subject.name.clone(),
            base: subject.base.clone(),
            oracle: self,
            ..*subject
        }
    }
}

/// The stage of the run itself.
fn plain(stage: Stage) -> Stage {
    Stage(stage.0 & !LOST)
}

impl Oracle for Ignoring<'_> {
    fn after(&self, stage: Stage, marker: u64) -> Stage {
        if marker == LOSING {
            return Stage(stage.0 | LOST);
        }
        let after = self.expected.after(plain(stage), marker);
        match stage.0 & LOST {
            0 => after,
            _ => Stage(stage.0 >> u32::BITS << u32::BITS | after.0 & u64::from(u32::MAX)),
        }
    }

    fn judge(&self, tree: &Tree, stage: Stage) -> Vec<Wrong> {
        self.expected.judge_loss(tree, plain(stage))
    }

    fn is_told(&self, (kind, what): &Wrong, stage: Stage) -> bool {
        let is_refusal = matches!(kind, Kind::Damage | Kind::Recovery);
        stage.0 & LOST != 0 && is_refusal && REPORTED.iter().any(|words| what.contains(words))
    }

    fn operation(&self, stage: Stage) -> &'static str {
        self.expected.operation(plain(stage))
    }

    fn describe(&self, stage: Stage) -> String {
        let when = self.expected.describe(plain(stage));
        format!("a sync had done nothing; {when}")
    }
}

#[cfg(test)]
mod tests {
    use vellum_model::SnapshotBody;
    use vellum_testing::{own_source, slice};

    use super::*;
    use crate::id::Mode;
    use crate::record::{Recorded, record};
    use crate::run::{Change, explore_recorded};
    use crate::workloads::logged_workloads;

    fn recorded(name: &str) -> Recorded {
        let mut all = logged_workloads().into_iter();
        record(&all.find(|workload| workload.name == name).unwrap()).unwrap()
    }

    /// Tests one of each kind of sync; the explorer tests all of them.
    #[test]
    fn what_a_disk_loses_is_missing_or_reported() {
        let source = own_source!();
        let names = [
            "logged-several-before-a-sync",
            "logged-checkpoint-before-more",
            "logged-closed-and-opened",
            "external-append-many",
            "external-rides-of-several-syncs",
            "external-checkpoints-between-rides",
            "split-append-many",
            "split-killed-and-closed",
        ];
        for name in slice(4, names, |name| format!("{name} {source}")) {
            let options = Options {
                ignored_flushes: 6,
                ignored_flush_states: 12,
                ..Options::default()
            };
            let (recorded, progress) = (recorded(name), Progress::default());
            let report = explore_recorded(
                &recorded,
                Mode::IgnoredFlushes,
                Change::None,
                &options,
                &progress,
            );
            let counts = report.counts;
            assert_eq!(counts.violations, 0, "{name}: {:?}", report.violations);
            assert!(counts.distinct > 20, "{name}: {counts:?}");
        }
    }

    /// The lost flush carries exactly what the sync promised.
    #[test]
    fn an_ignored_flush_breaks_a_promise() {
        let recorded = recorded("logged-several-before-a-sync");
        let log = recorded.explored_log();
        let last = syncs(log).len() - 1;
        let ignored = IgnoredFlush::of(log, false, last).expect("something to sync");
        assert!(
            ignored.log.len() < log.len() && ignored.log[..ignored.from] == log[..ignored.from]
        );
        let (options, progress) = (Options::default(), Progress::default());
        let subject = recorded.subject(Mode::X86);
        let mut explorer = Explorer::new(&subject, &options, &progress);
        let mut log = ignored.log;
        log.retain(|event| event.op != Op::Marker(LOSING));
        explorer.explore_changed("", &log, ignored.from);
        assert!(explorer.has_found(Kind::Tree));
    }

    #[test]
    fn only_a_refusal_after_a_loss_is_excused() {
        let recorded = recorded("logged-several-before-a-sync");
        let oracle = Ignoring {
            expected: &recorded.expected,
        };
        let lost = oracle.after(Stage(2), LOSING);
        let is_told = |kind, what: &str, stage| oracle.is_told(&(kind, what.to_owned()), stage);
        let sum = "metadata at home that differ from their sum: 1, and the anchor says 2";
        assert!(is_told(Kind::Damage, sum, lost));
        assert!(!is_told(Kind::Damage, sum, Stage(2)));
        assert!(!is_told(Kind::Damage, "unsound inode", lost));
        assert!(!is_told(Kind::Tree, sum, lost));
        let synced = Stage(4 << u32::BITS | 4);
        assert_eq!(oracle.after(Stage(3), 4), synced);
        assert_eq!(plain(oracle.after(lost, 4)), Stage(4), "the loss has ended");
    }

    /// A name that was synced survives when another disk loses only the bytes of files.
    #[test]
    fn a_disk_with_only_data_loses_no_names() {
        let recorded = recorded("split-append-many");
        let uncommitted = |log: &[Event]| {
            let site = disk_sites::VERSIONS_COMMITTED_DURABLE;
            let mut log = log.to_vec();
            log.retain(|event| event.op != Op::Fence || event.site != site);
            log
        };
        let (options, progress) = (Options::default(), Progress::default());
        let change = Change::By(&uncommitted);
        let report = explore_recorded(&recorded, Mode::IgnoredFlushes, change, &options, &progress);
        let mut kinds = report.violations.iter().map(|violation| violation.kind);
        assert!(kinds.any(|kind| kind == Kind::Tree), "{report:?}");
    }

    #[test]
    fn files_may_hold_anything_and_names_may_not() {
        let recorded = recorded("external-append-many");
        let expected = &recorded.expected;
        let stage = expected.all_of(Stage(2));
        let mut tree = expected.trees[1].clone();
        for node in tree.nodes.values_mut() {
            if let SnapshotBody::File { blocks, .. } = &mut node.body {
                blocks.clear();
            }
        }
        assert!(tree != expected.trees[1]);
        assert_eq!(expected.judge_loss(&tree, stage), []);
        let (path, node) = tree.nodes.pop_last().unwrap();
        assert!(!expected.judge_loss(&tree, stage).is_empty());
        tree.nodes.insert([path, b"2".to_vec()].concat(), node);
        assert!(!expected.judge_loss(&tree, stage).is_empty());
    }
}
