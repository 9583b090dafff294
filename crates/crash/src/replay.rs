//! Repeating a crash by its identifier.

use std::fmt;

use vellum_media::{CrashPoints, CrashState, Event};

use crate::id::{CrashId, Mode};
use crate::judge::Judge;
use crate::oracle::{Stage, stage_after};
use crate::record::{RecordError, record};
use crate::report::Kind;
use crate::{Subject, threads};

/// Why a crash cannot be repeated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// The text is no identifier.
    #[error("`{0}` does not name a crash")]
    NotAnId(String),
    /// There is no such workload.
    #[error("there is no workload `{0}`")]
    NoWorkload(String),
    /// The run has no such point, or other lines in flight there.
    #[error("the workload has changed: no such crash after {0} events")]
    NoSuchPoint(usize),
    /// The workload cannot be recorded.
    #[error(transparent)]
    Record(#[from] RecordError),
}

/// A crash, repeated.
#[derive(Clone, Debug)]
pub struct Replay {
    /// The identifier.
    pub id: String,
    /// What had returned and what was under way.
    pub moment: String,
    /// The events around the crash, a line each.
    pub events: Vec<String>,
    /// What each line in flight got, a line each.
    pub lines: Vec<String>,
    /// What is wrong.
    pub wrong: Vec<(Kind, String)>,
    /// What the crash left.
    pub image: Vec<u8>,
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
    let parsed: CrashId = id
        .parse()
        .map_err(|()| ReplayError::NotAnId(id.to_owned()))?;
    if parsed.workload.starts_with("threads/") {
        return threads::replay_threads(&parsed);
    }
    let workload = crate::find(&parsed.workload);
    let workload = workload.ok_or(ReplayError::NoWorkload(parsed.workload.clone()))?;
    let recorded = record(&workload)?;
    replay_subject(&recorded.subject(parsed.mode), &parsed)
}

/// Repeats the crash of `subject` that `id` names.
pub(crate) fn replay_subject(subject: &Subject<'_>, id: &CrashId) -> Result<Replay, ReplayError> {
    const AROUND: usize = 24;
    let mut image = subject.base.clone();
    let mut log = subject.rewritten(subject.log).into_owned();
    let mut stage = Stage::default();
    let mut replay = Replay {
        id: id.to_string(),
        moment: String::new(),
        events: Vec::new(),
        lines: Vec::new(),
        wrong: Vec::new(),
        image: Vec::new(),
    };
    for (depth, cut) in id.cuts.iter().enumerate() {
        let missing = || ReplayError::NoSuchPoint(cut.events);
        let eadr = id.mode == Mode::Eadr;
        let crash = crash_at(&image, &log, eadr, cut.events, &cut.choice).ok_or_else(missing)?;
        if depth == 0 {
            stage = stage_after(subject.oracle, stage, &log[..cut.events]);
            replay.moment = subject.oracle.describe(stage);
        }
        let is_shared = depth == 0 && id.workload.starts_with("threads/");
        let first = cut.events.saturating_sub(AROUND);
        let around = log[first..(cut.events + 4).min(log.len())].iter();
        replay.events = around
            .zip(first..)
            .map(|(event, at)| describe(event, at, cut.events, is_shared))
            .collect();
        replay.lines = crash.lines;
        image = crash.image;
        let judged = Judge::new(image.clone(), subject.cache_entries).judge(0);
        replay.wrong = judged.verdict.failures;
        if let Some(tree) = &judged.tree {
            replay.wrong.extend(subject.oracle.judge(tree, stage));
        }
        log = subject.rewritten(&judged.recovery).into_owned();
    }
    replay.image = image;
    Ok(replay)
}

struct Crash {
    image: Vec<u8>,
    lines: Vec<String>,
}

fn crash_at(
    base: &[u8],
    log: &[Event],
    eadr: bool,
    events: usize,
    choice: &[usize],
) -> Option<Crash> {
    let points = CrashPoints::new(base.to_vec(), log);
    let mut points = if eadr { points.eadr() } else { points };
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

/// An event in words; of which thread, if several share the log.
fn describe(event: &Event, at: usize, crash: usize, is_shared: bool) -> String {
    let mark = if at + 1 == crash { " <- crash" } else { "" };
    let thread = match is_shared {
        true => format!("thread {}: ", event.thread),
        false => String::new(),
    };
    format!("{at}: {thread}{:x?}{mark}", event.op)
}
