//! Reduces violations of threads: to as few preemptions, steps, threads and lost lines as still
//! show them.

use super::ready::Ready;
use super::schedule::Schedule;
use super::search::{Bounds, Found};
use super::workload::ThreadWorkload;
use crate::Options;
use crate::explore::Explorer;
use crate::id::Mode;
use crate::record::RecordError;
use crate::reduce::{Parts, least};
use crate::report::{Kind, Minimised, Violation, WorkloadReport};
use crate::run::{Change, Progress};
use crate::shrink::fewest;

/// Workloads tried to find a smaller one: with fewer threads, with fewer steps, and with a shorter
/// setup.
const WORKLOADS_TRIED: usize = 40;
/// Schedules tried to find one with fewer preemptions.
const SCHEDULES_TRIED: usize = 20;
/// Schedules of a smaller workload in which the violation is looked for.
const SCHEDULES: Bounds = Bounds {
    once: 60,
    twice: 20,
    often: 0,
};
/// The most violations of a workload for which smaller ones are looked for.
const MINIMISED_MAX: usize = 2;

/// The parameters of a trial.
pub(super) struct Trial<'a> {
    pub(super) mode: Mode,
    pub(super) options: &'a Options,
    /// The change that is applied to logs.
    pub(super) change: Change<'a>,
}

impl Trial<'_> {
    /// Replaces the violations of the run of `schedule` by those of a run with fewer preemptions,
    /// and adds smaller workloads to them if the options ask for that.
    ///
    /// # Errors
    /// The setup fails.
    pub(super) fn explain(
        &self,
        ready: &Ready,
        schedule: Schedule,
        report: &mut WorkloadReport,
    ) -> Result<(), RecordError> {
        if report.violations.is_empty() {
            return Ok(());
        }
        let is_wrong = |schedule: &Schedule| self.wrong(ready, schedule, false);
        let shorter = fewer_handovers(schedule, |less| is_wrong(less).is_ok_and(|w| !w.is_empty()));
        let wrong = self.wrong(ready, &shorter, self.options.diagnose)?;
        if !wrong.is_empty() {
            report.violations = wrong;
        }
        if self.options.diagnose {
            for violation in report.violations.iter_mut().take(MINIMISED_MAX) {
                violation.minimised = self.minimised(&ready.workload, violation)?;
            }
        }
        Ok(())
    }

    /// What is wrong with the run of a schedule; with as few lost lines as possible if `diagnose`
    /// is set.
    fn wrong(
        &self,
        ready: &Ready,
        schedule: &Schedule,
        diagnose: bool,
    ) -> Result<Vec<Violation>, RecordError> {
        let options = Options {
            diagnose,
            ..self.options.clone()
        };
        let run = ready.run(schedule)?;
        let bad = ready.ends_badly(self.mode, schedule, &run);
        let (subject, progress) = (ready.subject(self.mode, self.change), Progress::default());
        let mut explorer = Explorer::new(&subject, &options, &progress);
        explorer.explore(&ready.name(schedule), &ready.log(self.mode, &run));
        let mut wrong = explorer.finish().violations;
        wrong.extend(bad);
        Ok(wrong)
    }

    /// A smaller workload that shows the same as `violation` of `whole`.
    fn minimised(
        &self,
        whole: &ThreadWorkload,
        violation: &Violation,
    ) -> Result<Option<Minimised>, RecordError> {
        let mut schedule = None;
        let shortest = least(whole, WORKLOADS_TRIED, |less| {
            let found = self.schedule_that_shows(violation.kind, less);
            let shows = found.is_some();
            schedule = found.or(schedule.take());
            shows
        });
        let Some(schedule) = schedule else {
            return Ok(None);
        };
        let ready = Ready::new(shortest)?;
        let shows = |wrong: Vec<Violation>| {
            let mut wrong = wrong.into_iter();
            wrong.find(|found| found.kind == violation.kind)
        };
        let schedule = fewer_handovers(schedule, |less| {
            let wrong = self.wrong(&ready, less, false);
            wrong.is_ok_and(|wrong| shows(wrong).is_some())
        });
        let found = shows(self.wrong(&ready, &schedule, true)?);
        Ok(found.map(|found| Minimised::of(found, &ready.workload.parts())))
    }

    /// The first schedule of a workload that shows a violation of this kind.
    fn schedule_that_shows(&self, kind: Kind, workload: &ThreadWorkload) -> Option<Schedule> {
        let options = Options {
            diagnose: false,
            wrong_states: 20,
            nested_recoveries: [1, 1],
            ..self.options.clone()
        };
        let ready = Ready::new(workload.clone()).ok()?;
        let (subject, progress) = (ready.subject(self.mode, self.change), Progress::default());
        let mut explorer = Explorer::new(&subject, &options, &progress);
        let mut shows = None;
        let searched = ready.search().all(&SCHEDULES, options.seed, &mut |found| {
            let Found { schedule, run } = found;
            let bad = ready.ends_badly(self.mode, &schedule, &run);
            explorer.explore(&ready.name(&schedule), &ready.log(self.mode, &run));
            let is_wrong = explorer.has_found(kind) || bad.iter().any(|bad| bad.kind == kind);
            shows = is_wrong.then_some(schedule);
            shows.is_none()
        });
        searched.ok()?;
        shows
    }
}

/// A schedule with as few preemptions as `shows` allows.
fn fewer_handovers(schedule: Schedule, shows: impl Fn(&Schedule) -> bool) -> Schedule {
    let holds = |left: &[_]| shows(&Schedule(left.to_vec()));
    Schedule(fewest(schedule.0, SCHEDULES_TRIED, holds))
}

#[cfg(test)]
mod tests {
    use vellum::sites;
    use vellum_media::Event;

    use super::*;
    use crate::id::CrashId;
    use crate::mutant::Mutant;
    use crate::reduce;
    use crate::threads::replay::replay_run;

    /// A creation and a concurrent listing, among unrelated steps.
    fn workload() -> ThreadWorkload {
        ThreadWorkload::new(
            "test",
            &["create y 644 -", "mkdir d 755", "create d/f 644 -"],
            &[
                &["chmod y 600", "create d/g 644 -"],
                &["readdir d", "stat y -"],
                &["stat d -"],
            ],
        )
    }

    fn without_a_flush(log: &[Event]) -> Vec<Event> {
        Mutant::Omit(sites::LIST_WORDS.into()).rewrite(log)
    }

    /// What its runs show if a listing does not flush the names that it returns.
    fn found(trial: &Trial<'_>, ready: &Ready) -> (Schedule, WorkloadReport) {
        let (subject, progress) = (ready.subject(trial.mode, trial.change), Progress::default());
        let mut explorer = Explorer::new(&subject, trial.options, &progress);
        let mut shows = None;
        let bounds = Bounds {
            once: usize::MAX,
            twice: 0,
            often: 0,
        };
        let mut search = ready.search();
        let searched = search.all(&bounds, 1, &mut |Found { schedule, run }| {
            explorer.explore(&ready.name(&schedule), &ready.log(trial.mode, &run));
            shows = (explorer.violations() > 0).then_some(schedule);
            shows.is_none()
        });
        searched.unwrap();
        (shows.expect("a schedule that shows it"), explorer.finish())
    }

    #[test]
    fn a_violation_of_threads_is_reduced_and_repeated() {
        let options = Options {
            states_per_point: 64,
            nested_recoveries: [0, 0],
            diagnose: true,
            ..Options::default()
        };
        let trial = Trial {
            mode: Mode::X86,
            options: &options,
            change: Change::By(&without_a_flush),
        };
        let ready = Ready::new(workload()).unwrap();
        let (schedule, mut report) = found(&trial, &ready);
        // Preemptions that change nothing.
        let mut longer = Schedule::default().and(1, 0).and(2, 0);
        longer.0.extend(&schedule.0);
        trial.explain(&ready, longer, &mut report).unwrap();
        let violation = &report.violations[0];
        let (id, name) = (&violation.id, ready.name(&schedule));
        assert!(id.starts_with(&format!("x86:{name}@")), "{violation}");

        let shortest = violation.minimised.as_ref().expect("a shorter workload");
        assert_eq!(shortest.setup, ["mkdir d 755"], "{violation}");
        let explored = ["thread 0: create d/g 644 -", "thread 1: readdir d"];
        assert_eq!(shortest.explored, explored, "{violation}");
        assert_eq!(shortest.missing.len(), 1, "{violation}");

        let id: CrashId = shortest.id.parse().unwrap();
        let (name, schedule) = id.workload.split_once('!').unwrap();
        let known = |name: &str| (name == "threads/test").then(workload);
        let less = reduce::find(name, known).expect("a workload of that name");
        let schedule: Schedule = schedule.parse().unwrap();
        assert!(schedule.0.len() <= 2, "{violation}");
        let ready = Ready::new(less).unwrap();
        let again = replay_run(&ready, &schedule, &id, trial.change).unwrap();
        let kinds: Vec<Kind> = again.wrong.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, [violation.kind], "{again}");
        let whole = replay_run(&ready, &schedule, &id, Change::None);
        assert!(whole.is_err() || whole.unwrap().wrong.is_empty());
    }
}
