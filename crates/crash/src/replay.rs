//! Repeats a crash by its identifier.

use std::borrow::Cow;
use std::fmt;

use vellum_media::{CrashState, Event, Op};

use crate::explore::crash_points;
use crate::id::{CrashId, Cut, Mode};
use crate::ignored_flushes::replay_ignored_flush;
use crate::judge::{Judge, other_than_recovery};
use crate::kills::replay_kill;
use crate::mkfs::replay_making;
use crate::oracle::{Stage, stage_after};
use crate::record::{RecordError, record};
use crate::report::Kind;
use crate::run::Change;
use crate::threads::all_thread_workloads;
use crate::workload::Workload;
use crate::workloads::WorkloadFile;
use crate::{Subject, reduce, threads};

/// Why a crash cannot be repeated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// The text is not an identifier.
    #[error("`{0}` does not name a crash")]
    NotAnId(String),
    /// There is no such workload.
    #[error("there is no workload `{0}`")]
    NoWorkload(String),
    /// The run has no such point, or has other lines in flight there.
    #[error("the workload has changed: no such crash at {0}")]
    NoSuchPoint(usize),
    /// The engine fails to format a pool.
    #[error("{0}")]
    Making(String),
    /// The workload cannot be recorded.
    #[error(transparent)]
    Record(#[from] RecordError),
}

/// A repeated crash.
#[derive(Clone, Debug)]
pub struct Replay {
    /// The identifier.
    pub id: String,
    /// What had returned and what was in flight.
    pub moment: String,
    /// The events around the crash, one per line.
    pub events: Vec<String>,
    /// What each line in flight received, one per line.
    pub lines: Vec<String>,
    /// What is wrong.
    pub wrong: Vec<(Kind, String)>,
    /// The image that the crash left.
    pub image: Vec<u8>,
}

impl Replay {
    /// A replay about which nothing is known yet.
    pub(crate) fn of(id: &CrashId) -> Self {
        Self {
            id: id.to_string(),
            moment: String::new(),
            events: Vec::new(),
            lines: Vec::new(),
            wrong: Vec::new(),
            image: Vec::new(),
        }
    }
}

impl fmt::Display for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.id, self.moment)?;
        for line in self.events.iter().chain(&self.lines) {
            writeln!(f, "  {line}")?;
        }
        for (kind, detail) in &self.wrong {
            writeln!(f, "{kind}: {detail}")?;
        }
        if self.wrong.is_empty() {
            writeln!(f, "nothing is wrong")
        } else {
            Ok(())
        }
    }
}

/// Repeats the crash that `id` names.
///
/// # Errors
/// The identifier does not fit any workload.
pub fn replay(id: &str) -> Result<Replay, ReplayError> {
    let parsed = parse(id)?;
    if parsed.workload.starts_with("threads/") {
        return threads::replay_threads(&parsed, &all_thread_workloads());
    }
    match replay_making(&parsed) {
        Some(replayed) => replayed,
        None => replay_sequence(&parsed, crate::find),
    }
}

/// Repeats the crash of a workload of `file` that `id` names.
///
/// # Errors
/// The identifier does not fit any workload of the file.
pub fn replay_of(file: &WorkloadFile, id: &str) -> Result<Replay, ReplayError> {
    let parsed = parse(id)?;
    if parsed.workload.starts_with("threads/") {
        return threads::replay_threads(&parsed, &file.threads);
    }
    let known = |name: &str| {
        let mut all = file.sequences.iter();
        all.find(|workload| workload.name == name).cloned()
    };
    replay_sequence(&parsed, |name| reduce::find(name, known))
}

fn parse(id: &str) -> Result<CrashId, ReplayError> {
    let parsed = id.parse();
    parsed.map_err(|()| ReplayError::NotAnId(id.to_owned()))
}

/// Repeats the crash of a sequence; `find` looks up the workload.
fn replay_sequence(
    parsed: &CrashId,
    find: impl FnOnce(&str) -> Option<Workload>,
) -> Result<Replay, ReplayError> {
    let (name, number) = match parsed.workload.split_once('!') {
        Some((name, number)) => (name, number.parse().ok()),
        None => (parsed.workload.as_str(), None),
    };
    let unknown = || ReplayError::NoWorkload(parsed.workload.clone());
    let recorded = record(&find(name).ok_or_else(unknown)?)?;
    let change = Change::from(parsed.mutant.as_ref());
    let subject = Subject {
        change,
        ..recorded.subject(parsed.mode)
    };
    match (parsed.mode, number) {
        (Mode::Kill, Some(events)) => replay_kill(&subject, &recorded.expected, parsed, events),
        (Mode::IgnoredFlushes, Some(sync)) => {
            replay_ignored_flush(&subject, &recorded.expected, parsed, sync)
        }
        (Mode::X86 | Mode::Lazy | Mode::Eadr, None) => {
            replay_log(&subject, &change.of(subject.log), parsed)
        }
        _ => Err(unknown()),
    }
}

/// Repeats the crash of `log` that `id` names. The log already went through the change of
/// `subject`.
pub(crate) fn replay_log(
    subject: &Subject<'_>,
    log: &[Event],
    id: &CrashId,
) -> Result<Replay, ReplayError> {
    let mut image = subject.base.clone();
    let mut log = Cow::Borrowed(log);
    let mut stage = Stage::default();
    let mut meaning = None;
    let mut replay = Replay::of(id);
    for (depth, cut) in id.cuts.iter().enumerate() {
        let crash = crash_at(&image, &log, id.mode, cut)?;
        if depth == 0 {
            stage = stage_after(subject.oracle, stage, &log[..cut.events]);
            replay.moment = subject.oracle.describe(stage);
        }
        let is_shared = depth == 0 && id.workload.starts_with("threads/");
        replay.events = events_around(&log, cut, is_shared);
        replay.lines = crash.lines;
        image = crash.image;
        let judged = Judge::new(image.clone(), subject.cache_entries).judge(0);
        let verdict = judged.verdict;
        let is_sound = verdict.failures.is_empty();
        replay.wrong = verdict.failures;
        if depth == 0 {
            replay
                .wrong
                .retain(|wrong| !subject.oracle.is_told(wrong, stage));
        }
        if let Some(tree) = &judged.tree {
            replay.wrong.extend(subject.oracle.judge(tree, stage));
        }
        if depth == 0 && matches!(log[cut.events - 1].op, Op::Marker(_)) {
            replay
                .wrong
                .extend(subject.oracle.broken_promise(stage, &image));
        }
        let before = meaning.replace(verdict.meaning);
        if is_sound && before.is_some_and(|before| before != verdict.meaning) {
            replay.wrong.push(other_than_recovery());
        }
        log = Cow::Owned(subject.change.of(&judged.recovery).into_owned());
    }
    replay.image = image;
    Ok(replay)
}

/// The result of a power cut.
pub(crate) struct Crash {
    pub(crate) image: Vec<u8>,
    /// What each line in flight received.
    pub(crate) lines: Vec<String>,
}

/// Cuts `log`, which begins with `base`.
///
/// # Errors
/// The log has no such point.
pub(crate) fn crash_at(
    base: &[u8],
    log: &[Event],
    mode: Mode,
    cut: &Cut,
) -> Result<Crash, ReplayError> {
    let found = find_crash(base, log, mode, cut);
    found.ok_or(ReplayError::NoSuchPoint(cut.events))
}

fn find_crash(base: &[u8], log: &[Event], mode: Mode, cut: &Cut) -> Option<Crash> {
    let Cut { events, ref choice } = *cut;
    let mut points = crash_points(base, log, mode);
    while let Some(point) = points.next_point() {
        if point.events_done() < events {
            continue;
        }
        let lines = point.in_flight();
        if point.events_done() != events || choice.len() > lines.len() {
            return None;
        }
        let mut state = CrashState {
            choice: choice.to_vec(),
        };
        state.choice.resize(lines.len(), 0);
        let fits = lines
            .iter()
            .zip(&state.choice)
            .all(|(line, &i)| i < line.contents.len());
        let lines = lines.iter().zip(&state.choice).map(|(line, choice)| {
            format!(
                "line {:#x}: content {choice} of 0..={}",
                line.line,
                line.contents.len() - 1
            )
        });
        return fits.then(|| Crash {
            lines: lines.collect(),
            image: point.image(&state),
        });
    }
    None
}

/// The events around a crash in words, with their threads if several share the log.
pub(crate) fn events_around(log: &[Event], cut: &Cut, is_shared: bool) -> Vec<String> {
    const AROUND: usize = 24;
    let first = cut.events.saturating_sub(AROUND);
    let around = log[first..(cut.events + 4).min(log.len())].iter();
    around
        .zip(first..)
        .map(|(event, at)| describe(event, at, cut.events, is_shared))
        .collect()
}

/// An event in words, with its thread if several share the log.
fn describe(event: &Event, at: usize, crash: usize, is_shared: bool) -> String {
    let mark = if at + 1 == crash { " <- crash" } else { "" };
    let thread = match is_shared {
        true => format!("thread {}: ", event.thread),
        false => String::new(),
    };
    format!("{at}: {thread}{:x?}{mark}", event.op)
}
