//! What an exploration found.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use crate::id::{CrashId, Mode};
use crate::workload::{PoolKind, Step};

/// What is wrong with an image that a crash left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The checker finds damage that no crash may leave.
    Damage,
    /// The image cannot be opened.
    Recovery,
    /// The recovered tree cannot be read.
    Reading,
    /// The recovered tree is neither the one before the step nor the one after it.
    Tree,
    /// A time in the recovered tree is neither the one before the step nor the one after it.
    Times,
    /// A file takes other space than before the step or after it.
    Space,
    /// The recovered file system does not work.
    Use,
    /// The file system cannot be closed.
    Close,
    /// The checker finds something after the close.
    Unclean,
    /// The external data device alone has another tree, or none, though its metadata replica claims
    /// to be complete.
    Replica,
    /// A crash of recovery leads to another tree than the recovery itself.
    Nested,
    /// The engine failed an assertion, or accessed bytes outside the pool.
    Panic,
    /// The engine disagrees with the model even without a crash.
    Outcome,
    /// Threads wait for each other forever.
    Stuck,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Damage => "damage",
            Self::Recovery => "recovery failed",
            Self::Reading => "the recovered tree cannot be read",
            Self::Tree => "wrong tree",
            Self::Times => "wrong time",
            Self::Space => "wrong space",
            Self::Use => "cannot be used",
            Self::Close => "cannot be closed",
            Self::Unclean => "unclean after closing",
            Self::Replica => "the external data device alone is something else",
            Self::Nested => "recovery is not repeatable",
            Self::Panic => "panic",
            Self::Outcome => "disagrees with the model without a crash",
            Self::Stuck => "does not come to an end",
        };
        f.write_str(text)
    }
}

/// A violation, with the identifier that repeats it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violation {
    /// The crash, for [`replay`](crate::replay).
    pub id: String,
    /// The kind of violation.
    pub kind: Kind,
    /// The details.
    pub detail: String,
    /// The kind of operation that was in flight.
    pub operation: String,
    /// The number of states that showed the same.
    pub states: u64,
    /// What had returned and what was in flight.
    #[serde(default)]
    pub moment: String,
    /// The lines of the pool that the power cut lost: as few as still show the violation.
    #[serde(default)]
    pub missing: Vec<String>,
    /// A shorter workload that shows the same kind of violation.
    #[serde(default)]
    pub minimised: Option<Minimised>,
}

/// A workload from which nothing more can be left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Minimised {
    /// The crash of it, for [`replay`](crate::replay).
    #[serde(default)]
    pub id: String,
    /// The lines of the pool that this crash lost.
    #[serde(default)]
    pub missing: Vec<String>,
    /// The steps that prepare the pool.
    pub setup: Vec<String>,
    /// The steps that crash.
    pub explored: Vec<String>,
}

impl Minimised {
    /// A shorter workload of these parts, setup first, whose crash shows the violation `found`.
    pub(crate) fn of(found: Violation, parts: &[Vec<Step>]) -> Self {
        let setup = parts.iter().take(1).flatten().map(Step::to_string);
        let explored = parts.iter().skip(1).enumerate();
        let explored = explored.flat_map(|(thread, steps)| {
            steps.iter().map(move |step| match parts.len() {
                0..=2 => step.to_string(),
                _ => format!("thread {thread}: {step}"),
            })
        });
        Self {
            id: found.id,
            missing: found.missing,
            setup: setup.collect(),
            explored: explored.collect(),
        }
    }
}

impl Violation {
    /// A violation of a workload where there is no crash to name.
    pub(crate) fn of_run(id: &str, kind: Kind, detail: String, operation: &str) -> Self {
        Self {
            id: id.to_owned(),
            kind,
            detail,
            operation: operation.to_owned(),
            states: 0,
            moment: String::new(),
            missing: Vec::new(),
            minimised: None,
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            id,
            kind,
            detail,
            operation,
            states,
            moment,
            missing,
            minimised,
        } = self;
        write!(f, "{id}: {operation}: {kind}: {detail} ({states} states)")?;
        if !moment.is_empty() {
            write!(f, "\n    when: {moment}")?;
        }
        for line in missing {
            write!(f, "\n    missing: {line}")?;
        }
        if let Some(Minimised {
            id,
            missing,
            setup,
            explored,
        }) = minimised
        {
            let lines = |lines: &[String]| lines.join("; ");
            write!(f, "\n    shortest setup: {}", lines(setup))?;
            write!(f, "\n    shortest workload: {}", lines(explored))?;
            write!(f, "\n    shortest crash: {id}")?;
            for line in missing {
                write!(f, "\n    shortest missing: {line}")?;
            }
        }
        Ok(())
    }
}

/// How much work was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// Workloads under a crash model that contain this kind of operation; a workload counts for
    /// each kind that it has.
    pub workloads: u64,
    /// Runs of threads, each under a schedule of its own.
    pub schedules: u64,
    /// Processes killed in the middle, after which another opened the pool.
    pub kills: u64,
    /// Crash points: moments at which a crash could leave something new or mean something new.
    pub points: u64,
    /// Points at which every state was tried.
    pub points_exhaustive: u64,
    /// Further points at which every state was tried, except for differences in lines that nothing
    /// reads.
    pub points_tracked: u64,
    /// Further points at which states were sampled.
    pub points_sampled: u64,
    /// States generated.
    pub generated: u64,
    /// Different images among them.
    pub distinct: u64,
    /// Different trees that recovery made of them.
    pub meanings: u64,
    /// Images that were checked, recovered, compared and used, including those of crashed
    /// recoveries.
    pub checked: u64,
    /// Recoveries whose own crashes were explored.
    pub recoveries_crashed: u64,
    /// Different violations, by kind and detail.
    pub violations: u64,
    /// Seconds of thread time.
    pub seconds: f64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, more: Self) {
        self.workloads += more.workloads;
        self.schedules += more.schedules;
        self.kills += more.kills;
        self.points += more.points;
        self.points_exhaustive += more.points_exhaustive;
        self.points_tracked += more.points_tracked;
        self.points_sampled += more.points_sampled;
        self.generated += more.generated;
        self.distinct += more.distinct;
        self.meanings += more.meanings;
        self.checked += more.checked;
        self.recoveries_crashed += more.recoveries_crashed;
        self.violations += more.violations;
        self.seconds += more.seconds;
    }
}

/// What the exploration of a workload found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkloadReport {
    /// The workload.
    pub workload: String,
    /// The crash model: see [`Mode`](crate::Mode).
    pub mode: String,
    /// How much was done.
    pub counts: Counts,
    /// The same by the kind of operation that was in flight; crashes of recovery count under
    /// [`RECOVERY`].
    pub operations: BTreeMap<String, Counts>,
    /// Every state of every point was explored.
    pub exhaustive: bool,
    /// The time was up before everything was explored.
    #[serde(default)]
    pub cut_short: bool,
    /// The first violations of each kind and detail.
    pub violations: Vec<Violation>,
}

/// The operation in flight when recovery itself is crashed.
pub const RECOVERY: &str = "recovery";

/// What was found while one kind of operation was in flight.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OperationReport {
    /// The kind of operation.
    pub operation: String,
    /// How much was done.
    #[serde(flatten)]
    pub counts: Counts,
    /// Its violations.
    pub found: Vec<Violation>,
}

/// The findings of an exploration by operation: the form that is printed and written as JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Each kind of operation.
    pub operations: Vec<OperationReport>,
    /// The totals.
    pub totals: Counts,
    /// Workloads explored, each counted once for each crash model.
    pub runs: u64,
    /// Different images by the kind of pool: see [`PoolKind`](crate::PoolKind).
    #[serde(default)]
    pub grounds: BTreeMap<String, u64>,
    /// What was left out because the time was up.
    pub left_out: LeftOut,
    /// Seconds from begin to end.
    pub elapsed_seconds: f64,
    /// Different images judged per second.
    pub distinct_per_second: f64,
}

/// The findings of an exploration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Each workload under each crash model.
    pub workloads: Vec<WorkloadReport>,
    /// What was left out because the time was up.
    pub left_out: LeftOut,
    /// Seconds from begin to end.
    pub seconds: f64,
}

/// What was left out because the time was up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Workloads that did not begin.
    pub workloads: u64,
    /// Workloads that began, and ended before everything was explored.
    pub cut_short: u64,
    /// How many of these workloads contain each kind of operation.
    pub operations: BTreeMap<String, u64>,
    /// Kinds of operations without an explored crash.
    pub unexplored: BTreeSet<String>,
}

impl LeftOut {
    /// Whether nothing was left out.
    pub fn is_nothing(&self) -> bool {
        self.workloads + self.cut_short == 0
    }

    /// Counts a workload with these kinds of operations, which was left out or cut short.
    pub(crate) fn note(&mut self, operations: &BTreeSet<&'static str>, is_begun: bool) {
        if is_begun {
            self.cut_short += 1;
        } else {
            self.workloads += 1;
        }
        for &operation in operations {
            *self.operations.entry(operation.to_owned()).or_default() += 1;
        }
    }

    /// Adds what another exploration left out.
    fn add(&mut self, more: Self) {
        self.workloads += more.workloads;
        self.cut_short += more.cut_short;
        for (operation, count) in more.operations {
            *self.operations.entry(operation).or_default() += count;
        }
    }

    /// Finds the kinds of operations of which `explored` has no crash.
    fn compare(&mut self, explored: &[OperationReport]) {
        let is_explored = |operation: &String| {
            let mut same = explored.iter().filter(|of| of.operation == *operation);
            same.any(|of| of.counts.points > 0)
        };
        let left_out = self.operations.keys();
        self.unexplored = left_out
            .filter(|operation| !is_explored(operation))
            .cloned()
            .collect();
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_nothing() {
            return Ok(());
        }
        let counts = self.operations.iter();
        let counts: Vec<_> = counts.map(|(of, count)| format!("{of} {count}")).collect();
        writeln!(
            f,
            "the time was up: {} workloads left out, {} cut short; with {}",
            self.workloads,
            self.cut_short,
            counts.join(", ")
        )?;
        let unexplored: Vec<_> = self.unexplored.iter().map(String::as_str).collect();
        match &unexplored[..] {
            [] => writeln!(f, "of every kind of operation something was explored"),
            _ => writeln!(f, "nothing was explored of {}", unexplored.join(", ")),
        }
    }
}

impl WorkloadReport {
    /// A report on a workload of `operation` that cannot be explored, because it does not run.
    pub(crate) fn not_run(workload: &str, error: &dyn fmt::Display, operation: &str) -> Self {
        let mode = Mode::X86;
        let id = CrashId {
            mode,
            workload: workload.to_owned(),
            mutant: None,
            cuts: Vec::new(),
        };
        let text = error.to_string();
        let violation = Violation::of_run(&id.to_string(), Kind::Outcome, text, operation);
        let counts = Counts {
            workloads: 1,
            violations: 1,
            ..Counts::default()
        };
        Self {
            workload: workload.to_owned(),
            mode: mode.name().to_owned(),
            counts,
            operations: [(violation.operation.clone(), counts)].into(),
            exhaustive: false,
            cut_short: false,
            violations: vec![violation],
        }
    }
}

impl Report {
    /// The sum over all workloads.
    pub fn totals(&self) -> Counts {
        let mut totals = Counts::default();
        self.workloads
            .iter()
            .for_each(|report| totals += report.counts);
        totals
    }

    /// All violations.
    pub fn violations(&self) -> impl Iterator<Item = &Violation> {
        self.workloads.iter().flat_map(|report| &report.violations)
    }

    /// What was found, by the kind of operation.
    pub fn summary(&self) -> Summary {
        let mut operations: BTreeMap<&str, OperationReport> = BTreeMap::new();
        for report in &self.workloads {
            for (operation, &counts) in &report.operations {
                operations.entry(operation).or_default().counts += counts;
            }
            for violation in &report.violations {
                let of = operations.entry(&violation.operation).or_default();
                of.found.push(violation.clone());
            }
        }
        let named = |(operation, report)| OperationReport {
            operation: str::to_owned(operation),
            ..report
        };
        let operations: Vec<_> = operations.into_iter().map(named).collect();
        let mut totals = Counts::default();
        operations.iter().for_each(|of| totals += of.counts);
        let mut left_out = self.left_out.clone();
        left_out.compare(&operations);
        let mut grounds = BTreeMap::new();
        for report in &self.workloads {
            let pool_kind = PoolKind::of_workload(&report.workload).name().to_owned();
            *grounds.entry(pool_kind).or_default() += report.counts.distinct;
        }
        Summary {
            operations,
            totals,
            runs: self.workloads.len() as u64,
            grounds,
            left_out,
            elapsed_seconds: self.seconds,
            distinct_per_second: totals.distinct as f64 / self.seconds.max(1e-9),
        }
    }
}

impl Summary {
    /// The number of different images of pools with a disk, for everything or only for their data.
    pub fn on_disks(&self) -> u64 {
        let in_memory = [PoolKind::Memory, PoolKind::Narrow].map(PoolKind::name);
        let on_disks = self
            .grounds
            .iter()
            .filter(|(pool_kind, _)| !in_memory.contains(&pool_kind.as_str()));
        on_disks.map(|(_, distinct)| distinct).sum()
    }

    /// Adds the findings of another, later exploration.
    pub fn add(&mut self, more: Self) {
        for report in more.operations {
            self.totals += report.counts;
            let same = |of: &&mut OperationReport| of.operation == report.operation;
            match self.operations.iter_mut().find(same) {
                Some(of) => {
                    of.counts += report.counts;
                    of.found.extend(report.found);
                }
                None => self.operations.push(report),
            }
        }
        let name = |of: &OperationReport| of.operation.clone();
        self.operations.sort_by_key(name);
        self.runs += more.runs;
        for (pool_kind, distinct) in more.grounds {
            *self.grounds.entry(pool_kind).or_default() += distinct;
        }
        self.left_out.add(more.left_out);
        self.left_out.compare(&self.operations);
        self.elapsed_seconds += more.elapsed_seconds;
        self.distinct_per_second = self.totals.distinct as f64 / self.elapsed_seconds.max(1e-9);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for report in &self.workloads {
            let WorkloadReport {
                workload,
                mode,
                counts,
                exhaustive,
                cut_short,
                ..
            } = report;
            let how = match (cut_short, exhaustive) {
                (true, _) => "cut short",
                (false, true) => "all",
                (false, false) => "sampled",
            };
            writeln!(
                f,
                "{mode} {workload}: {} points, {} states ({how}), {} distinct, {} meanings, {:.2} \
                 s",
                counts.points, counts.generated, counts.distinct, counts.meanings, counts.seconds,
            )?;
            report
                .violations
                .iter()
                .try_for_each(|violation| writeln!(f, "  {violation}"))?;
        }
        self.summary().fmt(f)
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:14} {:>9} {:>9} {:>10} {:>10} {:>9} {:>10} {:>9}",
            "operation",
            "workloads",
            "points",
            "generated",
            "distinct",
            "meanings",
            "violations",
            "seconds"
        )?;
        let mut line = |operation: &str, counts: &Counts| {
            writeln!(
                f,
                "{operation:14} {:>9} {:>9} {:>10} {:>10} {:>9} {:>10} {:>9.1}",
                counts.workloads,
                counts.points,
                counts.generated,
                counts.distinct,
                counts.meanings,
                counts.violations,
                counts.seconds
            )
        };
        for report in &self.operations {
            line(&report.operation, &report.counts)?;
        }
        line("total", &self.totals)?;
        let Counts {
            points_exhaustive,
            points_tracked,
            points_sampled,
            ..
        } = self.totals;
        writeln!(
            f,
            "points: {points_exhaustive} exhaustive, {points_tracked} tracked, {points_sampled} \
             sampled"
        )?;
        writeln!(
            f,
            "{} runs, {:.1} s, {:.0} different images a second",
            self.runs, self.elapsed_seconds, self.distinct_per_second
        )?;
        writeln!(f, "{} different images on disks", self.on_disks())?;
        self.left_out.fmt(f)?;
        let mut found = self.operations.iter().flat_map(|report| &report.found);
        found.try_for_each(|violation| writeln!(f, "{violation}"))
    }
}
