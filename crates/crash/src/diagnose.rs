//! Reduces violations: to as few lost lines as still show them, and to a short workload.

use vellum_check::Locator;
use vellum_media::{CrashPoint, CrashState};

use crate::explore::{At, Explorer, Scope, cut};
use crate::id::{CrashId, Mode};
use crate::judge::Wrong;
use crate::record::record;
use crate::reduce::{Parts, least};
use crate::report::{Minimised, Violation, WorkloadReport};
use crate::run::{Change, Options, Progress, explore_recorded};
use crate::shrink::fewest;
use crate::workload::Workload;

/// States tried to find one with fewer missing lines.
const STATES_TRIED: usize = 400;
/// Workloads tried to find a shorter one.
const WORKLOADS_TRIED: usize = 60;
/// The most missing lines that are reported.
const LINES_TOLD: usize = 16;
/// The most violations of a workload for which shorter workloads are looked for.
const MINIMISED_MAX: usize = 2;

impl Explorer<'_> {
    /// The violation that `state` showed.
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
            mutant: self.subject.change.mutant(),
            cuts,
        };
        Violation {
            moment: self.subject.oracle.describe(at.stage),
            missing: missing(at.point, &state),
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
        let newest = newest(at.point);
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

/// The choice of the state in which everything has arrived.
fn newest(point: &CrashPoint<'_>) -> Vec<usize> {
    let lines = point.in_flight().iter();
    lines.map(|line| line.contents.len() - 1).collect()
}

/// The lines that lack some of their stores, named by what lies there once everything has arrived.
pub(crate) fn missing(point: &CrashPoint<'_>, state: &CrashState) -> Vec<String> {
    let newest = newest(point);
    let whole = point.image(&CrashState {
        choice: newest.clone(),
    });
    let locator = Locator::new(&whole);
    let lines = point.in_flight().iter().zip(&state.choice).zip(&newest);
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

/// Adds shorter workloads that show the same kind to the violations of `workload`.
pub(crate) fn minimise(
    report: &mut WorkloadReport,
    workload: &Workload,
    mode: Mode,
    options: &Options,
    change: Change<'_>,
) {
    let options = Options {
        wrong_states: 20,
        nested_recoveries: [1, 1],
        ..options.clone()
    };
    let quickly = Options {
        diagnose: false,
        ..options.clone()
    };
    for violation in report.violations.iter_mut().take(MINIMISED_MAX) {
        let shows = |less: &Workload, options: &Options| {
            if options.is_over() {
                return None;
            }
            let mut found = violations(less, mode, options, change).into_iter();
            found.find(|found| found.kind == violation.kind)
        };
        let shortest = least(workload, WORKLOADS_TRIED, |less| {
            shows(less, &quickly).is_some()
        });
        let found = shows(&shortest, &options).unwrap_or_else(|| violation.clone());
        violation.minimised = Some(Minimised::of(found, &shortest.parts()));
    }
}

/// The violations that crashes of a workload show.
fn violations(
    workload: &Workload,
    mode: Mode,
    options: &Options,
    change: Change<'_>,
) -> Vec<Violation> {
    let Ok(recorded) = record(workload) else {
        return Vec::new();
    };
    explore_recorded(&recorded, mode, change, options, &Progress::default()).violations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Subject;
    use crate::explore::explore;
    use crate::replay::replay_log;
    use crate::report::Kind;
    use vellum_media::{Event, Op};

    /// The log of a file system without fences.
    fn without_fences(log: &[Event]) -> Vec<Event> {
        let mut log = log.to_vec();
        log.retain(|event| event.op != Op::Fence);
        log
    }

    #[test]
    fn a_violation_is_described_repeated_and_reduced() {
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
            change: Change::By(&without_fences),
            ..recorded.subject(Mode::X86)
        };
        let mut report = explore(&subject, &options, &Progress::default());
        minimise(
            &mut report,
            &workload,
            Mode::X86,
            &options,
            Change::By(&without_fences),
        );

        let is_tree = |violation: &&Violation| violation.kind == Kind::Tree;
        let violation = report
            .violations
            .iter()
            .find(is_tree)
            .expect("a wrong tree");
        let log = without_fences(subject.log);
        let replayed = replay_log(&subject, &log, &violation.id.parse().unwrap()).unwrap();
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
        let shortest = first.expect("a shorter workload");
        assert_eq!(shortest.explored.len(), 1, "{report:?}");
        assert!(shortest.setup.len() < 3, "{report:?}");
        let id: CrashId = shortest.id.parse().unwrap();
        let known = |name: &str| (name == "small").then(|| workload.clone());
        let less = crate::reduce::find(&id.workload, known).expect("a workload of that name");
        let recorded = record(&less).unwrap();
        let subject = Subject {
            change: Change::By(&without_fences),
            ..recorded.subject(Mode::X86)
        };
        let log = without_fences(subject.log);
        let replayed = replay_log(&subject, &log, &id).unwrap();
        let kind = report.violations[0].kind;
        assert!(
            replayed.wrong.iter().any(|(of, _)| *of == kind),
            "{report:?}"
        );
    }
}
