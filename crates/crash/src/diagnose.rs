//! What a violation needs: as few lines lost as show it, and as short a workload.

use vellum_check::Locator;
use vellum_media::CrashState;

use crate::explore::{At, Explorer, Scope, cut, explore};
use crate::id::{CrashId, Mode};
use crate::judge::Wrong;
use crate::record::record;
use crate::report::{Kind, Minimised, Violation, WorkloadReport};
use crate::run::{Options, Progress, Rewrite, Subject};
use crate::shrink::fewest;
use crate::workload::{Step, Workload};

/// States tried to find one with fewer lines missing.
const STATES_TRIED: usize = 400;
/// Workloads tried to find a shorter one.
const WORKLOADS_TRIED: usize = 60;
/// Missing lines that are told.
const LINES_TOLD: usize = 16;
/// Violations of a workload for which shorter ones are looked for.
const MINIMISED_MAX: usize = 2;

impl Explorer<'_> {
    /// A violation that `state` showed.
    pub(crate) fn diagnose(
        &mut self,
        at: &At<'_>,
        state: &CrashState,
        scope: &Scope,
        (kind, detail): Wrong,
    ) -> Violation {
        let (state, detail) = if self.options.diagnose {
            self.fewest_missing(at, state, scope, (kind, detail))
        } else {
            (state.clone(), detail)
        };
        let mut cuts = scope.cuts.clone();
        cuts.push(cut(at.point, &state));
        let id = CrashId {
            mode: self.subject.mode,
            workload: self.name.clone(),
            cuts,
        };
        Violation {
            moment: self.subject.oracle.describe(at.stage),
            missing: missing(at, &state),
            ..Violation::of_run(&id.to_string(), kind, detail, self.operation(at, scope))
        }
    }

    /// A state of the point with the same kind of violation in which more lines have arrived.
    fn fewest_missing(
        &mut self,
        at: &At<'_>,
        state: &CrashState,
        scope: &Scope,
        (kind, detail): Wrong,
    ) -> (CrashState, String) {
        let newest = newest(at);
        let lost = (0..newest.len()).filter(|&line| state.choice[line] < newest[line]);
        let with = |lost: &[usize]| {
            let mut choice = newest.clone();
            lost.iter()
                .for_each(|&line| choice[line] = state.choice[line]);
            CrashState { choice }
        };
        let mut found = (state.clone(), detail);
        fewest(lost.collect(), STATES_TRIED, |lost| {
            let state = with(lost);
            let wrong = self.wrong_with(at, &state, scope).into_iter();
            match wrong.into_iter().find(|(of, _)| *of == kind) {
                Some((_, detail)) => {
                    found = (state, detail);
                    true
                }
                None => false,
            }
        });
        found
    }
}

/// The choice of a state in which everything has arrived.
fn newest(at: &At<'_>) -> Vec<usize> {
    let lines = at.point.in_flight().iter();
    lines.map(|line| line.contents.len() - 1).collect()
}

/// The lines that did not get all that was stored to them, by what lies there once everything is.
fn missing(at: &At<'_>, state: &CrashState) -> Vec<String> {
    let newest = newest(at);
    let whole = at.point.image(&CrashState {
        choice: newest.clone(),
    });
    let locator = Locator::new(&whole);
    let lines = at.point.in_flight().iter().zip(&state.choice).zip(&newest);
    let mut lines = lines.filter(|((_, got), newest)| got < newest);
    let told = lines
        .by_ref()
        .take(LINES_TOLD)
        .map(|((line, got), newest)| {
            let place = locator.name(line.line);
            format!(
                "{place} (at {:#x}): {got} of {newest} stores arrived",
                line.line
            )
        });
    let mut told: Vec<_> = told.collect();
    let more = lines.count();
    if more > 0 {
        told.push(format!("and {more} more"));
    }
    told
}

/// Gives the violations of `workload` shorter workloads that show the same kind.
pub(crate) fn minimise(
    report: &mut WorkloadReport,
    workload: &Workload,
    mode: Mode,
    options: &Options,
    rewrite: Option<&Rewrite>,
) {
    let options = Options {
        diagnose: false,
        wrong_states: 20,
        nested_recoveries: [1, 1],
        ..options.clone()
    };
    for violation in report.violations.iter_mut().take(MINIMISED_MAX) {
        let shows = |workload: &Workload| shows(workload, violation.kind, mode, &options, rewrite);
        let Workload {
            setup, explored, ..
        } = shortest(workload, shows);
        let lines = |steps: &[Step]| steps.iter().map(ToString::to_string).collect();
        violation.minimised = Some(Minimised {
            setup: lines(&setup),
            explored: lines(&explored),
        });
    }
}

/// Whether a crash of `workload` shows something wrong of this kind.
fn shows(
    workload: &Workload,
    kind: Kind,
    mode: Mode,
    options: &Options,
    rewrite: Option<&Rewrite>,
) -> bool {
    let Ok(recorded) = record(workload) else {
        return false;
    };
    let subject = Subject {
        rewrite,
        ..recorded.subject(mode)
    };
    let report = explore(&subject, options, &Progress::default());
    report.violations.iter().any(|found| found.kind == kind)
}

/// A workload with as few steps as show what `workload` does.
fn shortest(workload: &Workload, shows: impl Fn(&Workload) -> bool) -> Workload {
    let with = |setup: &[Step], explored: &[Step]| Workload {
        setup: setup.to_vec(),
        explored: explored.to_vec(),
        covered: 0,
        ..workload.clone()
    };
    let Workload {
        setup, explored, ..
    } = workload;
    let explored = fewest(explored.clone(), WORKLOADS_TRIED, |explored| {
        !explored.is_empty() && shows(&with(setup, explored))
    });
    let setup = fewest(setup.clone(), WORKLOADS_TRIED, |setup| {
        shows(&with(setup, &explored))
    });
    with(&setup, &explored)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::replay_subject;
    use vellum_media::{Event, Op};

    /// What a file system without fences would do.
    fn without_fences(log: &[Event]) -> Vec<Event> {
        let mut log = log.to_vec();
        log.retain(|event| event.op != Op::Fence);
        log
    }

    #[test]
    fn a_violation_is_repeated_told_and_made_small() {
        let setup = ["create f 644 -", "append f 5 5000", "mkdir d 755"];
        let explored = ["chmod f 600", "create d/g 644 -", "rename f h 0"];
        let workload = Workload::new("small", &setup, &explored);
        let options = Options {
            states_per_point: 32,
            nested_recoveries: [0, 0],
            wrong_states: 200,
            diagnose: true,
            ..Options::default()
        };
        let recorded = record(&workload).unwrap();
        let subject = Subject {
            rewrite: Some(&without_fences),
            ..recorded.subject(Mode::X86)
        };
        let mut report = explore(&subject, &options, &Progress::default());
        minimise(
            &mut report,
            &workload,
            Mode::X86,
            &options,
            Some(&without_fences),
        );

        let is_tree = |violation: &&Violation| violation.kind == Kind::Tree;
        let violation = report
            .violations
            .iter()
            .find(is_tree)
            .expect("a wrong tree");
        let replayed = replay_subject(&subject, &violation.id.parse().unwrap()).unwrap();
        let again = (violation.kind, violation.detail.clone());
        assert!(
            replayed.wrong.contains(&again),
            "{violation} but {replayed}"
        );
        assert!(violation.moment.contains("had returned"), "{violation}");
        assert!((1..4).contains(&violation.missing.len()), "{violation}");
        let named = ["inode", "journal", "log of directory"];
        let is_named = |line: &String| named.iter().any(|name| line.contains(name));
        assert!(violation.missing.iter().any(is_named), "{violation}");

        let first = report
            .violations
            .first()
            .and_then(|of| of.minimised.as_ref());
        let Minimised { setup, explored } = first.expect("a shorter workload");
        assert_eq!(explored.len(), 1, "{report:?}");
        assert!(setup.len() < 3, "{report:?}");
    }
}
