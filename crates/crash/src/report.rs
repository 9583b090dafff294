//! What an exploration found.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What is wrong with an image that a crash left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The checker finds what no crash may leave.
    Damage,
    /// It cannot be opened.
    Recovery,
    /// The recovered tree cannot be read.
    Reading,
    /// The recovered tree is neither that of before the step nor that of after it.
    Tree,
    /// A time of the recovered tree is neither that of before the step nor that of after it.
    Times,
    /// The recovered file system does not work.
    Use,
    /// It cannot be closed.
    Close,
    /// The checker finds something after the close.
    Unclean,
    /// A crash of recovery leads to another tree than recovery does.
    Nested,
    /// The engine failed an assertion, or reached outside the pool.
    Panic,
    /// The engine disagrees with the model even without a crash.
    Outcome,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Damage => "damage",
            Self::Recovery => "recovery failed",
            Self::Reading => "the recovered tree cannot be read",
            Self::Tree => "wrong tree",
            Self::Times => "wrong time",
            Self::Use => "cannot be used",
            Self::Close => "cannot be closed",
            Self::Unclean => "unclean after closing",
            Self::Nested => "recovery is not repeatable",
            Self::Panic => "panic",
            Self::Outcome => "disagrees with the model without a crash",
        };
        f.write_str(text)
    }
}

/// Something wrong, with the identifier that repeats it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violation {
    /// Which crash: for [`replay`](crate::replay).
    pub id: String,
    /// What kind of thing is wrong.
    pub kind: Kind,
    /// What exactly.
    pub detail: String,
    /// How many states showed the same.
    pub states: u64,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            id,
            kind,
            detail,
            states,
        } = self;
        write!(f, "{id}: {kind}: {detail} ({states} states)")
    }
}

/// How much was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Crash points: moments at which a crash could leave or mean something new.
    pub points: u64,
    /// States generated.
    pub generated: u64,
    /// Different images among them.
    pub distinct: u64,
    /// Different trees that recovery made of them.
    pub meanings: u64,
    /// Images checked, recovered, compared and used; crashes of recovery included.
    pub checked: u64,
    /// Recoveries whose own crashes were explored.
    pub recoveries_crashed: u64,
    /// Violations: different ones, by kind and detail.
    pub violations: u64,
}

impl Counts {
    /// Adds what another workload did.
    pub fn add(&mut self, more: &Self) {
        self.points += more.points;
        self.generated += more.generated;
        self.distinct += more.distinct;
        self.meanings += more.meanings;
        self.checked += more.checked;
        self.recoveries_crashed += more.recoveries_crashed;
        self.violations += more.violations;
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
    /// Every point was explored with every state.
    pub exhaustive: bool,
    /// The first violations of each kind and detail.
    pub violations: Vec<Violation>,
    /// Seconds that it took on one thread.
    pub seconds: f64,
}

/// What an exploration found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Each workload under each crash model.
    pub workloads: Vec<WorkloadReport>,
    /// Explorations left out because the time was up.
    pub left_out: u64,
    /// Seconds from begin to end.
    pub seconds: f64,
}

impl Report {
    /// The sum over all workloads.
    pub fn totals(&self) -> Counts {
        let mut totals = Counts::default();
        self.workloads
            .iter()
            .for_each(|report| totals.add(&report.counts));
        totals
    }

    /// All violations.
    pub fn violations(&self) -> impl Iterator<Item = &Violation> {
        self.workloads.iter().flat_map(|report| &report.violations)
    }

    /// Different images judged in a second.
    pub fn checked_per_second(&self) -> f64 {
        self.totals().checked as f64 / self.seconds.max(1e-9)
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
                seconds,
                ..
            } = report;
            let how = if *exhaustive { "all" } else { "sampled" };
            writeln!(
                f,
                "{mode} {workload}: {} points, {} states ({how}), {} distinct, {} meanings, {} checked, {seconds:.2} s",
                counts.points, counts.generated, counts.distinct, counts.meanings, counts.checked,
            )?;
            report
                .violations
                .iter()
                .try_for_each(|violation| writeln!(f, "  {violation}"))?;
        }
        let totals = self.totals();
        writeln!(
            f,
            "{} explorations, {} points, {} states, {} distinct, {} checked, {} violations, {:.1} s, {:.0} checked a second",
            self.workloads.len(),
            totals.points,
            totals.generated,
            totals.distinct,
            totals.checked,
            totals.violations,
            self.seconds,
            self.checked_per_second(),
        )
    }
}
