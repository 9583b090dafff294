//! A workload of threads that can run under any schedule, always from the same beginning.

use std::borrow::Cow;

use vellum_media::Event;

use super::oracle::Linear;
use super::run::{Run, run};
use super::schedule::Schedule;
use super::search::Search;
use super::workload::ThreadWorkload;
use crate::Subject;
use crate::id::{CrashId, Mode};
use crate::memories::image_after;
use crate::record::RecordError;
use crate::report::{Kind, Violation};
use crate::run::Change;
use crate::session::blank_image;

/// The common beginning of all runs of a workload.
pub(super) struct Ready {
    pub(super) workload: ThreadWorkload,
    linear: Linear,
    /// A formatted pool.
    blank: Vec<u8>,
    /// The events of the setup.
    setup: Vec<Event>,
    /// The image after the setup, as its thread sees it.
    begun: Vec<u8>,
}

impl Ready {
    /// Runs the setup of `workload` once.
    ///
    /// # Errors
    /// The setup fails.
    pub(super) fn new(workload: ThreadWorkload) -> Result<Self, RecordError> {
        let (linear, blank) = (
            Linear::new(&workload),
            blank_image(
                workload.thread_slots,
                workload.mapping,
                workload.namespace,
                workload.pool_kind,
            ),
        );
        let setup = run(&workload, &linear, &blank, &Schedule::default())?.setup;
        let begun = image_after(&blank, &setup);
        Ok(Self {
            workload,
            linear,
            blank,
            setup,
            begun,
        })
    }

    /// Runs the workload.
    ///
    /// # Errors
    /// The setup fails.
    pub(super) fn run(&self, schedule: &Schedule) -> Result<Run, RecordError> {
        run(&self.workload, &self.linear, &self.blank, schedule)
    }

    /// A search over runs of the workload.
    pub(super) fn search(&self) -> Search<'_> {
        Search::new(self)
    }

    /// The name of a run in identifiers.
    pub(super) fn name(&self, schedule: &Schedule) -> String {
        format!("{}!{schedule}", self.workload.name)
    }

    /// Logs that begin where runs do; `change` is applied to them.
    pub(super) fn subject<'a>(&'a self, mode: Mode, change: Change<'a>) -> Subject<'a> {
        let (base, skip) = match mode {
            Mode::Lazy => (&self.blank, self.setup.len()),
            _ => (&self.begun, 0),
        };
        Subject {
            name: self.workload.name.clone(),
            mode,
            oracle: &self.linear,
            cache_entries: self.workload.cache_entries,
            base: base.clone(),
            log: &[],
            skip,
            change,
        }
    }

    /// The log of a run, from the point at which [`subject`](Self::subject) begins.
    pub(super) fn log<'r>(&self, mode: Mode, run: &'r Run) -> Cow<'r, [Event]> {
        match mode {
            Mode::Lazy => Cow::Owned([&run.setup[..], &run.log].concat()),
            _ => Cow::Borrowed(&run.log),
        }
    }

    /// What went wrong in a run without any crash, and independently of results.
    pub(super) fn ends_badly(&self, mode: Mode, schedule: &Schedule, run: &Run) -> Vec<Violation> {
        let stuck = run.trace.stuck.iter().map(|why| (Kind::Stuck, why));
        let panics = run.panics.iter().map(|text| (Kind::Panic, text));
        let id = CrashId {
            mode,
            workload: self.name(schedule),
            mutant: None,
            cuts: Vec::new(),
        };
        let of = self.workload.operation();
        stuck
            .chain(panics)
            .map(|(kind, detail)| Violation::of_run(&id.to_string(), kind, detail.clone(), of))
            .collect()
    }
}
