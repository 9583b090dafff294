//! Histories of calls and results, and every tree that a crash of one may leave.
//!
//! A crash cuts a history off: some calls had returned, and at most one call of each thread was in
//! flight. The recovered tree must be the result of some order of the returned calls and any of
//! those in flight. In this order no call comes before one that had returned when it began, and
//! each returned call has the result that it returned. (This is Wing and Gong's linearizability,
//! for objects that survive: what a returned call saw or made is in the order.) So a reader that
//! returned with a name obliges the creation of that name to have happened, whether that call had
//! returned or not.
//!
//! On a logged pool only what a sync guarantees has to be there: everything that had returned when
//! a sync began that has returned. Of the rest, any beginning may be there: no call without the
//! calls that had returned when it began.
//!
//! A listing is not one operation: it looks at each name at a moment of its own. Neither is reading
//! attributes by a path: the file is found at one moment, and its attributes are read at a later
//! one. A path of several components is found component by component, so it is not compared which
//! error a failed rename returned.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::marker::PhantomData;
use std::ops::ControlFlow;

use vellum_model::linear::{self, After, Specification};
use vellum_model::{Cred, Kind, Model, Op, Snapshot, apply};

use super::caller::{Answer, answer_of};
use super::workload::ThreadWorkload;
use crate::record;
use crate::session::CLOCK_START;
use crate::workload::Step;

/// A call that began.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Begun {
    /// The number of calls of each thread that had returned by then.
    after: Vec<usize>,
    /// The result, if the call returned.
    answer: Option<Answer>,
}

/// The calls that began, by thread.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct History(Vec<Vec<Begun>>);

impl History {
    /// No call has begun.
    pub(crate) fn new(threads: usize) -> Self {
        Self(vec![Vec::new(); threads])
    }

    /// The next call of `thread` begins.
    pub(crate) fn begin(&mut self, thread: usize) {
        let returned = |calls: &Vec<Begun>| calls.iter().filter(|c| c.answer.is_some()).count();
        let after = self.0.iter().map(returned).collect();
        self.0[thread].push(Begun {
            after,
            answer: None,
        });
    }

    /// The call of `thread` that is in flight returns.
    pub(crate) fn returned(&mut self, thread: usize, answer: Answer) {
        if let Some(call) = self.0[thread].last_mut() {
            call.answer = Some(answer);
        }
    }

    /// The names that returned calls made and that no other call names.
    pub(crate) fn made<'a>(&self, workload: &'a ThreadWorkload) -> Vec<&'a [u8]> {
        let steps = || workload.threads.iter().flatten();
        let names = |step: &Step, path: &[u8]| {
            let path = String::from_utf8_lossy(path);
            step.to_string().contains(&*path)
        };
        let calls = workload.threads.iter().zip(&self.0);
        calls
            .flat_map(|(steps, calls)| steps.iter().zip(calls))
            .filter(|(_, call)| call.answer == Some(Answer::Done))
            .filter_map(|(step, _)| made_by(step))
            .filter(|path| steps().filter(|step| names(step, path)).count() == 1)
            .collect()
    }

    /// The kind of operation that is in flight, in the first thread that is not between calls; or
    /// the last one, if there is none.
    pub(crate) fn operation(&self, workload: &ThreadWorkload) -> &'static str {
        let threads = workload.threads.iter().zip(&self.0);
        let calls = threads.flat_map(|(steps, calls)| steps.iter().zip(calls));
        let last = calls.min_by_key(|(_, call)| match call.answer {
            None => (0, 0),
            Some(_) => (1, -(call.after.iter().sum::<usize>() as i64)),
        });
        let first = workload.threads[0].first();
        let step = last.map(|(step, _)| step).or(first);
        step.map_or("nothing", Step::operation)
    }

    /// Describes what returned and what is in flight.
    pub(crate) fn describe(&self, workload: &ThreadWorkload) -> String {
        let mut words = Vec::new();
        for (thread, calls) in self.0.iter().enumerate() {
            for (step, call) in workload.threads[thread].iter().zip(calls) {
                words.push(match &call.answer {
                    Some(answer) => format!("thread {thread}: {step} -> {answer:?}"),
                    None => format!("thread {thread}: {step} in flight"),
                });
            }
        }
        if words.is_empty() {
            "nothing had begun".to_owned()
        } else {
            words.join("; ")
        }
    }
}

/// The path of what a call creates.
fn made_by(step: &Step) -> Option<&[u8]> {
    match step.op()? {
        Op::Create { path, .. } | Op::Mkdir { path, .. } => Some(path),
        _ => None,
    }
}

/// A tree that a history may leave, as snapshots with different subsets of the calls on bytes
/// inside the old size. The last snapshot includes all of these calls.
pub(crate) type Ending = Vec<Snapshot>;

/// An action with a moment of its own.
#[derive(Debug)]
struct Moment<'a> {
    what: What<'a>,
    /// The result; `None` while the call is in flight, so that it may not have happened.
    answer: Option<&'a Answer>,
}

#[derive(Debug)]
enum What<'a> {
    Call(&'a Step),
    /// A listing looks at this path and finds this.
    Look(Vec<u8>, Option<Kind>),
    /// The file at the path is found and held, ...
    Find(Op),
    /// ... and its attributes are read.
    Ask(Op),
}

impl What<'_> {
    fn only_looks(&self) -> bool {
        matches!(
            self,
            Self::Look(..)
                | Self::Ask(_)
                | Self::Call(
                    Step::Op(
                        Op::Stat { .. }
                            | Op::Readdir { .. }
                            | Op::Read { .. }
                            | Op::GetXattr { .. }
                            | Op::ListXattr { .. }
                            | Op::GetFlags { .. }
                    ) | Step::Maintain
                        | Step::Split(_)
                        | Step::Merge(_)
                        | Step::Evolve(_)
                        | Step::Checkpoint
                        | Step::Grow(_)
                        | Step::Trim
                )
        )
    }

    fn changes_bytes(&self) -> bool {
        matches!(self, Self::Call(step) if step.changes_bytes())
    }

    fn syncs(&self) -> bool {
        matches!(self, Self::Call(step) if step.syncs())
    }
}

/// Every ending of `history`, which begins at `before`; none if no order explains the results.
pub(crate) fn endings(workload: &ThreadWorkload, history: &History, before: &Model) -> Vec<Ending> {
    let mut endings: Vec<Ending> = Vec::new();
    let moments = moments(workload, history, &Names::of(workload, before));
    let add = |models: &Models| {
        let ending = models.0.iter().map(|model| model.snapshot(false)).collect();
        if !endings.contains(&ending) {
            endings.push(ending);
        }
        ControlFlow::Continue(())
    };
    let start = Models(vec![before.clone()], PhantomData);
    let _all_shown = moments.endings(&start, add);
    endings
}

/// Models with different subsets of the calls on bytes inside the old size. The last model includes
/// all of these calls.
#[derive(Clone)]
struct Models<'a>(Vec<Model>, PhantomData<Moment<'a>>);

impl<'a> Specification for Models<'a> {
    type Call = Moment<'a>;
    type Key = Vec<Model>;

    fn after(&self, moment: &Moment<'a>) -> After<Self> {
        let mut after = self.0.clone();
        let answers = after.iter_mut().map(|model| moment.done_in(model));
        let Some(answer) = answers.last() else {
            return After::Nothing;
        };
        if !moment.agrees(&answer) {
            return After::Nothing;
        }
        if moment.what.only_looks() {
            return After::Same;
        }
        if moment.answer.is_none() && moment.what.changes_bytes() {
            after.splice(0..0, self.0.iter().cloned());
        }
        After::Other(Self(after, PhantomData))
    }

    fn key(&self) -> Vec<Model> {
        self.0.clone()
    }
}

impl Moment<'_> {
    /// Executes it in a model; returns the result.
    fn done_in(&self, model: &mut Model) -> Answer {
        match &self.what {
            What::Look(path, expected) => {
                let stat = Op::Stat {
                    path: path.clone(),
                    follow: false,
                };
                let found = match model_op(model, &stat) {
                    Answer::Attributes { kind, .. } => Some(kind),
                    _ => None,
                };
                match found == *expected {
                    true => Answer::Done,
                    false => Answer::Failed(libc::ENOENT),
                }
            }
            What::Call(step) => model_step(model, step),
            What::Find(op) | What::Ask(op) => model_op(model, op),
        }
    }

    /// Whether a result agrees with the recorded one. The result of a call in flight is unknown,
    /// but a call that fails does nothing.
    fn agrees(&self, found: &Answer) -> bool {
        match (self.answer, found, &self.what) {
            (_, Answer::Done, What::Find(_) | What::Look(..)) => true,
            (_, _, What::Look(..)) | (None, Answer::Failed(_), _) => false,
            (None, ..) => true,
            (
                Some(Answer::Failed(_)),
                Answer::Failed(_),
                What::Call(Step::Op(Op::Rename { .. })),
            ) => true,
            (Some(answer), ..) => answer == found,
        }
    }
}

/// The actions of a history's calls, each with those that must come before it. Actions that no
/// crash may undo are marked.
fn moments<'a>(
    workload: &'a ThreadWorkload,
    history: &'a History,
    names: &Names,
) -> linear::History<Moment<'a>> {
    let calls = || {
        let threads = history.0.iter().zip(&workload.threads).enumerate();
        threads.flat_map(|(thread, (calls, steps))| {
            let calls = steps.iter().zip(calls).enumerate();
            calls.map(move |(number, (step, call))| ((thread, number), step, call))
        })
    };
    // The bits of a call's actions are consecutive.
    let mut bits: HashMap<(usize, usize), u128> = HashMap::new();
    let mut first = 0;
    for (place, step, call) in calls() {
        let count = whats(step, call, names, first).len();
        let own = (first..first + count).fold(0, |bits, number| bits | 1 << number);
        bits.insert(place, own);
        first += count;
    }
    let mut moments = linear::History::default();
    let mut first = 0;
    for (_, step, call) in calls() {
        let returned = call.after.iter().enumerate();
        let returned =
            returned.flat_map(|(thread, &count)| (0..count).map(move |number| (thread, number)));
        let before = returned.fold(0, |all, place| all | bits[&place]);
        let mut found = 0;
        for (what, answer) in whats(step, call, names, first) {
            let (asks, syncs) = (matches!(what, What::Ask(_)), what.syncs());
            let own = moments.push(
                Moment { what, answer },
                before | if asks { found } else { 0 },
            );
            found = own;
            match answer {
                Some(_) if !workload.pool_kind.commits() => moments.keep(own),
                Some(Answer::Done) if syncs => moments.keep(before),
                _ => {}
            }
            first += 1;
        }
    }
    moments
}

fn whats<'a>(
    step: &'a Step,
    call: &'a Begun,
    names: &Names,
    number: usize,
) -> Vec<(What<'a>, Option<&'a Answer>)> {
    if let (Step::Op(Op::Stat { path, .. }), Some(answer @ Answer::Attributes { .. })) =
        (step, &call.answer)
    {
        // Slots that no workload uses.
        let slot = 255 - number as u8;
        let find = Op::Open {
            slot,
            path: path.clone(),
            flags: libc::O_RDONLY,
            mode: 0,
        };
        return vec![
            (What::Find(find), Some(answer)),
            (What::Ask(Op::StatSlot { slot }), Some(answer)),
        ];
    }
    let (Step::Op(Op::Readdir { path }), Some(answer @ Answer::Names(seen))) = (step, &call.answer)
    else {
        return vec![(What::Call(step), call.answer.as_ref())];
    };
    let path = path.strip_suffix(b"/").unwrap_or(path);
    let look = |name: &Vec<u8>| {
        let found = match seen.get(name) {
            Some(None) => return None,
            Some(found) => *found,
            None => None,
        };
        let path = [path, b"/", name].concat();
        Some((What::Look(path, found), Some(answer)))
    };
    names.looked_at(seen).iter().filter_map(look).collect()
}

/// Names that calls use, and names that exist before them.
struct Names {
    used: BTreeSet<Vec<u8>>,
    there: BTreeSet<Vec<u8>>,
}

impl Names {
    fn of(workload: &ThreadWorkload, before: &Model) -> Self {
        let used = workload.threads.iter().flatten().flat_map(paths);
        let snapshot = before.snapshot(false);
        Self {
            used: used.map(|path| last(path)).collect(),
            there: snapshot.keys().map(|path| last(path)).collect(),
        }
    }

    /// The names for which a listing with the result `seen` has to be explained. Names that no call
    /// touches are tested elsewhere.
    fn looked_at(&self, seen: &BTreeMap<Vec<u8>, Option<Kind>>) -> BTreeSet<Vec<u8>> {
        let strange = seen.keys().filter(|name| !self.there.contains(*name));
        self.used.iter().chain(strange).cloned().collect()
    }
}

fn last(path: &[u8]) -> Vec<u8> {
    let name = path.rsplit(|&byte| byte == b'/').next();
    name.unwrap_or(path).to_vec()
}

/// The paths that a step makes or removes.
fn paths(step: &Step) -> Vec<&Vec<u8>> {
    match step {
        Step::Op(Op::Rename { from, to, .. } | Op::Link { from, to }) => vec![from, to],
        Step::Op(
            Op::Create { path, .. }
            | Op::Mkdir { path, .. }
            | Op::Mknod { path, .. }
            | Op::Symlink { path, .. }
            | Op::Unlink { path }
            | Op::Rmdir { path },
        ) => vec![path],
        _ => Vec::new(),
    }
}

/// Executes `step` in the model.
pub(crate) fn model_step(model: &mut Model, step: &Step) -> Answer {
    answer_of(record::model_step(model, step))
}

fn model_op(model: &mut Model, op: &Op) -> Answer {
    answer_of(apply(model, op, &Cred::superuser(), CLOCK_START))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(threads: &[&[&str]]) -> (ThreadWorkload, Model) {
        let workload = ThreadWorkload::new("test", &["create f 644 -"], threads);
        let mut before = Model::new(CLOCK_START);
        for step in &workload.setup {
            assert_eq!(model_step(&mut before, step), Answer::Done);
        }
        (workload, before)
    }

    /// The paths of each ending, except for the root and `/f`.
    fn made(workload: &ThreadWorkload, before: &Model, history: &History) -> Vec<Vec<String>> {
        let endings = endings(workload, history, before);
        let last = endings.iter().filter_map(|ending| ending.last());
        let mut made: Vec<Vec<String>> = last
            .map(|nodes| {
                let paths = nodes.keys().map(|path| path.escape_ascii().to_string());
                paths.filter(|path| path != "/" && path != "/f").collect()
            })
            .collect();
        made.sort();
        made
    }

    #[test]
    fn a_call_in_flight_may_have_happened_and_a_returned_one_has() {
        let (workload, before) = workload(&[&["create g 644 -"], &["create h 644 -"]]);
        let mut history = History::new(2);
        assert_eq!(made(&workload, &before, &history), [[""; 0]]);
        history.begin(0);
        history.begin(1);
        let either: [&[&str]; 4] = [&[], &["/g"], &["/g", "/h"], &["/h"]];
        assert_eq!(made(&workload, &before, &history), either);
        history.returned(0, Answer::Done);
        let with_g: [&[&str]; 2] = [&["/g"], &["/g", "/h"]];
        assert_eq!(made(&workload, &before, &history), with_g);
    }

    #[test]
    fn a_log_keeps_what_a_sync_guarantees_and_any_beginning_of_the_rest() {
        let (workload, before) = workload(&[&["create g 644 -", "sync"], &["create h 644 -"]]);
        let workload = workload.logged(crate::workload::PoolKind::Logged);
        let mut history = History::new(2);
        history.begin(1);
        history.returned(1, Answer::Done);
        let either: [&[&str]; 2] = [&[], &["/h"]];
        assert_eq!(made(&workload, &before, &history), either);
        history.begin(0);
        history.returned(0, Answer::Done);
        let in_order: [&[&str]; 3] = [&[], &["/g", "/h"], &["/h"]];
        assert_eq!(made(&workload, &before, &history), in_order);
        history.begin(0);
        assert_eq!(made(&workload, &before, &history), in_order);
        history.returned(0, Answer::Done);
        assert_eq!(made(&workload, &before, &history), [["/g", "/h"]]);
    }

    #[test]
    fn what_another_call_saw_has_happened() {
        let (workload, before) = workload(&[&["create g 644 -"], &["readdir /"]]);
        let mut history = History::new(2);
        history.begin(0);
        history.begin(1);
        let names = |names: &[&str]| {
            let names = names
                .iter()
                .map(|name| (name.as_bytes().to_vec(), Some(Kind::File)));
            Answer::Names(names.collect())
        };
        let mut seen = history.clone();
        seen.returned(1, names(&["f", "g"]));
        assert_eq!(made(&workload, &before, &seen), [["/g"]]);
        history.returned(1, names(&["f"]));
        let either: [&[&str]; 2] = [&[], &["/g"]];
        assert_eq!(made(&workload, &before, &history), either);
    }

    #[test]
    fn a_call_comes_after_those_that_had_returned() {
        let (workload, before) = workload(&[&["unlink f"], &["create f 600 exclusive"]]);
        let mut history = History::new(2);
        history.begin(0);
        let mut beside = history.clone();
        history.returned(0, Answer::Done);
        history.begin(1);
        let mut impossible = history.clone();
        impossible.returned(1, Answer::Failed(libc::EEXIST));
        assert!(endings(&workload, &impossible, &before).is_empty());
        history.returned(1, Answer::Done);
        assert_eq!(endings(&workload, &history, &before).len(), 1);
        beside.begin(1);
        beside.returned(1, Answer::Failed(libc::EEXIST));
        assert_eq!(endings(&workload, &beside, &before).len(), 2);
    }

    #[test]
    fn attributes_are_of_what_the_path_named_before() {
        let (workload, before) = workload(&[&["unlink f"], &["stat f -"]]);
        let mut history = History::new(2);
        history.begin(0);
        history.begin(1);
        let answer = |nlink| Answer::Attributes {
            kind: Kind::File,
            mode: 0o644,
            nlink,
            size: 0,
        };
        for (nlink, count) in [(1, 2), (0, 1), (2, 0)] {
            let mut history = history.clone();
            history.returned(1, answer(nlink));
            assert_eq!(endings(&workload, &history, &before).len(), count);
        }
    }
}
