//! Repeating a crash of threads by its identifier.

use super::ready::Ready;
use super::workload::ThreadWorkload;
use crate::id::CrashId;
use crate::reduce;
use crate::replay::{Replay, ReplayError, replay_log};
use crate::run::Change;

/// Repeats a run of one of `workloads`, and the crash of it that `id` names.
///
/// # Errors
/// There is no such workload, or it has no such crash.
pub(crate) fn replay_threads(
    id: &CrashId,
    workloads: &[ThreadWorkload],
) -> Result<Replay, ReplayError> {
    let unknown = || ReplayError::NoWorkload(id.workload.clone());
    let (name, schedule) = id.workload.split_once('!').unwrap_or((&id.workload, ""));
    let known = |name: &str| {
        let mut all = workloads.iter();
        all.find(|workload| workload.name == name).cloned()
    };
    let workload = reduce::find(name, known).ok_or_else(unknown)?;
    let schedule = schedule.parse().map_err(|()| unknown())?;
    let change = Change::from(id.mutant.as_ref());
    replay_run(&Ready::new(workload)?, &schedule, id, change)
}

/// Repeats the crash that `id` names of a run whose logs are changed by `change`.
///
/// # Errors
/// The run has no such crash.
pub(super) fn replay_run(
    ready: &Ready,
    schedule: &super::schedule::Schedule,
    id: &CrashId,
    change: Change<'_>,
) -> Result<Replay, ReplayError> {
    let run = ready.run(schedule)?;
    let bad = ready.ends_badly(id.mode, schedule, &run).into_iter();
    let log = ready.log(id.mode, &run);
    let mut replay = replay_log(&ready.subject(id.mode, change), &change.of(&log), id)?;
    let bad = bad.map(|violation| (violation.kind, violation.detail));
    replay.wrong.extend(bad);
    Ok(replay)
}
