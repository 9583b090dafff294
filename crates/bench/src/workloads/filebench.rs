//! Personalities on pools and peers, which take turns.

use indicatif::ProgressBar;

use super::file::{Sizes, Workload};
use super::personality::FileSet;
use super::rows::{About, WorkloadRow};
use super::sides::{Peers, RunOptions, Side, Subject, Target, rows};
use crate::Result;
use crate::interrupt::Interrupt;

/// The figure's name.
const NAME: &str = "filebench";
/// The smallest size of a pool.
const POOL_LEAST_BYTES: u64 = 64 << 20;

/// AFPT's claims.
pub(crate) const OF_READING: About = About {
    name: NAME,
    title: "Filebench's personalities, by reading rule",
    claim: "AFPT, Fig 7: page tables gain up to 41.78 % (PMFS) and 55.62 % (NOVA) on personalities \
            that read (webserver, webproxy), up to 25.12 % on those that write, more with large \
            requests.",
    note: "Sizes as in AFPT's Table I, numbers of files and threads smaller; every operation opens \
           its file and closes it again.",
};

/// HashFS's claims.
pub(crate) const OF_MAPPING: About = About {
    name: NAME,
    title: "Filebench's personalities, by mapping",
    claim: "HashFS, Fig 12: in fileserver, HashFS does 26 % more than the page-cached extent tree \
            and a radix tree 10 % less; in webproxy all are within 2 %. Level hashing (4.9) is \
            behind HashFS in all of them, and in fileserver behind the page-cached extent tree.",
    note: "Sizes of the variant `hashfs` as in that paper's Table 2; every operation opens its \
           file and closes it again.",
};

/// FSMAC's claims.
pub(crate) const OF_DISKS: About = About {
    name: NAME,
    title: "Filebench's personalities on a disk",
    claim: "FSMAC, Fig 6: on an SSD 1.38 times as fast as ext4 in varmail; in all workloads 5.4 % \
         to 147.4 % faster.",
    note: "Numbers of files and threads smaller than in the paper; every operation opens its file \
         and closes it again.",
};

/// The workloads to run.
pub(crate) struct Plan<'a> {
    pub(crate) run: RunOptions<'a>,
    pub(crate) workloads: Vec<Workload>,
    /// The number of times that each thread executes a workload's steps in a round.
    pub(crate) loops: u64,
}

impl<'a> Plan<'a> {
    /// A plan for the workloads that were named, built-in ones or files; if there are none, for all
    /// built-in ones.
    ///
    /// # Errors
    /// A file cannot be read, or has a field or value that no workload has.
    pub(crate) fn of(
        run: RunOptions<'a>,
        named: &[&str],
        loops: u64,
        files: Option<u32>,
    ) -> Result<Self> {
        let mut workloads = match named {
            [] => Workload::shipped()?,
            named => named
                .iter()
                .map(|name| Workload::named(name))
                .collect::<Result<_>>()?,
        };
        for workload in &mut workloads {
            workload.files.count = files.unwrap_or(workload.files.count);
        }
        Ok(Self {
            run,
            workloads,
            loops,
        })
    }

    /// The number of steps of the progress bar.
    pub(crate) fn steps(&self, sides: usize) -> usize {
        let variants = self
            .workloads
            .iter()
            .map(|workload| workload.variants.len());
        variants.sum::<usize>() * sides * (self.run.rounds + 1)
    }

    /// Runs all workloads.
    ///
    /// # Errors
    /// There is not enough space, a signal came, or an operation failed or had another effect than
    /// it should.
    pub(crate) fn measure(
        &self,
        subjects: &[Subject],
        peers: Peers<'_>,
        interrupt: &Interrupt,
        progress: &ProgressBar,
    ) -> Result<Vec<WorkloadRow>> {
        let mut all = Vec::new();
        for workload in &self.workloads {
            for sizes in &workload.variants {
                let label = format!("{} {}", workload.name, sizes.name);
                progress.set_message(label.clone());
                let mut sides = self.sides(workload, sizes, subjects, peers)?;
                self.rounds(workload, sizes, &mut sides, interrupt, progress)?;
                all.extend(rows(NAME, &label, self.run.threads, &sides));
            }
        }
        Ok(all)
    }

    fn sides(
        &self,
        workload: &Workload,
        sizes: &Sizes,
        subjects: &[Subject],
        peers: Peers<'_>,
    ) -> Result<Vec<Side>> {
        let logged = self.run.threads as u64 * self.loops * sizes.append * 2;
        let files = u64::from(workload.files.count) * (sizes.file + sizes.append * 4 + 4096);
        let bytes = (files + logged).max(POOL_LEAST_BYTES / 3) * 3;
        Side::all(
            subjects,
            peers,
            bytes.next_multiple_of(2 << 20),
            self.run.pool_dir,
        )
    }

    fn rounds(
        &self,
        workload: &Workload,
        sizes: &Sizes,
        sides: &mut [Side],
        interrupt: &Interrupt,
        progress: &ProgressBar,
    ) -> Result<()> {
        let threads = self.run.threads;
        let make = |side: &Side| match &side.target {
            Target::Pool(pool) => FileSet::make(&pool.volume, workload, sizes, threads, interrupt),
            Target::Peer(peer) => FileSet::make(&peer.dir, workload, sizes, threads, interrupt),
        };
        let mut sets: Vec<FileSet<'_>> = sides.iter().map(make).collect::<Result<_>>()?;
        for round in 0..=self.run.rounds as u64 {
            for (side, set) in sides.iter_mut().zip(&mut sets) {
                side.note(round > 0, threads, |target| match target {
                    Target::Pool(pool) => set.round(&pool.volume, round, self.loops, interrupt),
                    Target::Peer(peer) => set.round(&peer.dir, round, self.loops, interrupt),
                })?;
                progress.inc(1);
            }
        }
        Ok(())
    }
}
