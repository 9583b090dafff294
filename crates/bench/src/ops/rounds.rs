//! Rounds, in which every side does the same, one after the other.

use indicatif::ProgressBar;

use super::collect::Collected;
use super::workload::{AnyWorkload, Laps};
use crate::Result;
use crate::interrupt::Interrupt;
use crate::kernel::Kernel;
use crate::library::Library;

/// The number of times that the pool is reopened for figures of first accesses.
const COLD_ROUNDS: usize = 3;

/// The label of a peer in rows.
#[derive(Clone, Debug)]
pub(crate) struct Label {
    pub(crate) name: String,
    /// Type of file system.
    pub(crate) kind: String,
}

/// The way in which Vellum is accessed.
pub(crate) enum Vellum<'a> {
    Library(&'a mut Library),
    Mount(&'a Kernel),
}

/// A running measurement.
pub(crate) struct Bench<'a> {
    pub(crate) vellum: Vellum<'a>,
    pub(crate) peers: Vec<&'a Kernel>,
    pub(crate) interrupt: &'a Interrupt,
    pub(crate) progress: &'a ProgressBar,
}

impl Bench<'_> {
    /// Measures every workload.
    pub(crate) fn run(
        &mut self,
        workloads: &[Box<dyn AnyWorkload>],
        rounds: usize,
    ) -> Result<Vec<Collected>> {
        let mut collected = Vec::new();
        for workload in workloads {
            self.progress.set_message("preparing");
            self.fill(&**workload)?;
            collected.push(Collected::new(workload.parts(), self.peers.len()));
        }
        self.first_accesses(workloads, &mut collected)?;
        for (workload, collected) in workloads.iter().zip(&mut collected) {
            self.progress.set_message(workload.parts()[0].op);
            self.rounds(&**workload, rounds, collected)?;
        }
        Ok(collected)
    }

    fn fill(&mut self, workload: &dyn AnyWorkload) -> Result<()> {
        match &self.vellum {
            Vellum::Library(library) => workload.fill_library(library)?,
            Vellum::Mount(kernel) => workload.fill_kernel(kernel)?,
        }
        for peer in &self.peers {
            self.interrupt.check()?;
            workload.fill_kernel(peer)?;
        }
        self.interrupt.check()
    }

    /// Reopens the pool and visits everything once, several times.
    fn first_accesses(
        &mut self,
        workloads: &[Box<dyn AnyWorkload>],
        collected: &mut [Collected],
    ) -> Result<()> {
        let Vellum::Library(library) = &mut self.vellum else {
            return Ok(());
        };
        self.progress.set_message("first accesses after opening");
        for _ in 0..COLD_ROUNDS {
            library.reopen()?;
            for (workload, collected) in workloads.iter().zip(&mut *collected) {
                if workload.has_first_access() {
                    self.interrupt.check()?;
                    let mut laps = Laps::first_access(workload.parts().len());
                    workload.round_library(library, &mut laps)?;
                    collected.add_cold(&laps);
                }
            }
        }
        Ok(())
    }

    /// Runs one round more than requested: the first one warms up.
    fn rounds(
        &mut self,
        workload: &dyn AnyWorkload,
        rounds: usize,
        collected: &mut Collected,
    ) -> Result<()> {
        for round in 0..=rounds {
            let counts = round > 0;
            let mut laps = Laps::warm(workload.parts().len());
            match &self.vellum {
                Vellum::Library(library) => workload.round_library(library, &mut laps)?,
                Vellum::Mount(kernel) => workload.round_kernel(kernel, &mut laps)?,
            }
            if counts {
                collected.add_vellum(&laps);
            }
            for (number, peer) in self.peers.iter().enumerate() {
                self.interrupt.check()?;
                let mut laps = Laps::warm(workload.parts().len());
                workload.round_kernel(peer, &mut laps)?;
                if counts {
                    collected.add_peer(number, &laps);
                }
            }
            self.progress.inc(1);
            self.interrupt.check()?;
        }
        Ok(())
    }
}
