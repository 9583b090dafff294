//! Runs a workload file: each thread executes its steps repeatedly, on files of its own in
//! directories that all threads share.
//!
//! Every thread owns a part of the names, so that none finds a file removed by another; Filebench
//! draws from all names and marks those in use. Random numbers depend only on the round and the
//! thread, so every side does the same and has the same files at any time.

use std::ffi::{CStr, CString};

use super::file::{Deed, Sizes, Step, Workload};
use super::file_tree::{FileTree, Opened, Purpose};
use crate::Result;
use crate::error::expect;
use crate::interrupt::Interrupt;
use crate::order::Numbers;
use crate::stopwatch::Stopwatch;
use std::time::Duration;

/// The file that all threads append to.
const LOG: &CStr = c"log";
/// This many of ten names have a file at the start.
const PRESENT_OF_TEN: u32 = 8;
/// Distinguishes the random numbers for creating a set from those of its rounds.
const SETUP_SALT: u64 = u64::MAX;

/// A set of files on one side, and its known state.
pub(super) struct FileSet<'w> {
    workload: &'w Workload,
    sizes: &'w Sizes,
    names: Vec<CString>,
    shares: Vec<Share>,
    /// The bytes that are written.
    data: Vec<u8>,
}

/// The names of a thread.
struct Share {
    present: Vec<Known>,
    absent: Vec<u32>,
}

/// An existing file.
#[derive(Clone, Copy)]
struct Known {
    name: u32,
    bytes: u64,
}

/// The work done in a round.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Done {
    /// The number of operations.
    pub(crate) ops: u64,
    /// The time of all threads together, without waits for a processor.
    pub(crate) time: Duration,
}

impl std::ops::AddAssign for Done {
    fn add_assign(&mut self, other: Self) {
        self.ops += other.ops;
        self.time += other.time;
    }
}

impl<'w> FileSet<'w> {
    /// Creates the directories, and the files that exist at the start.
    pub(super) fn make<P: FileTree>(
        place: &P,
        workload: &'w Workload,
        sizes: &'w Sizes,
        threads: usize,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        let files = &workload.files;
        let directories = files.count.div_ceil(files.a_directory);
        for directory in 0..directories {
            let name = CString::new(format!("d{directory}")).unwrap_or_default();
            place.make_dir(&name)?;
        }
        let name = |file: u32| {
            let path = format!("d{}/f{file}", file / files.a_directory);
            CString::new(path).unwrap_or_default()
        };
        let longest = [sizes.write, sizes.append.saturating_mul(16)];
        let mut set = Self {
            workload,
            sizes,
            names: (0..files.count).map(name).collect(),
            shares: Vec::new(),
            data: (0..longest[0].max(longest[1]))
                .map(|i| (i % 251) as u8)
                .collect(),
        };
        drop(place.open(LOG, Purpose::Create)?);
        let mut numbers = Numbers::new(SETUP_SALT);
        for thread in 0..threads as u32 {
            let mine = (0..files.count).filter(|file| file % threads as u32 == thread);
            let (mut present, mut absent) = (Vec::new(), Vec::new());
            for name in mine {
                interrupt.check()?;
                if name / threads as u32 % 10 < PRESENT_OF_TEN {
                    present.push(set.create(place, name, &mut numbers, false)?);
                } else {
                    absent.push(name);
                }
            }
            set.shares.push(Share { present, absent });
        }
        Ok(set)
    }

    /// Runs a round: every thread executes the steps `loops` times.
    pub(super) fn round<P: FileTree>(
        &mut self,
        place: &P,
        round: u64,
        loops: u64,
        interrupt: &Interrupt,
    ) -> Result<Done> {
        place.open(LOG, Purpose::ReadWrite)?.set_len(0)?;
        let mut shares = std::mem::take(&mut self.shares);
        let set = &*self;
        let done: Result<Vec<Done>> = std::thread::scope(|scope| {
            let start = |(thread, share)| {
                scope.spawn(move || set.work(place, share, (round, thread), loops, interrupt))
            };
            let running: Vec<_> = (0_u64..).zip(&mut shares).map(start).collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, Result<Done>>| {
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            running.into_iter().map(join).collect()
        });
        self.shares = shares;
        let mut sum = Done::default();
        done?.into_iter().for_each(|done| sum += done);
        Ok(sum)
    }

    fn work<P: FileTree>(
        &self,
        place: &P,
        share: &mut Share,
        (round, thread): (u64, u64),
        loops: u64,
        interrupt: &Interrupt,
    ) -> Result<Done> {
        let mut numbers = Numbers::new(round << 16 | thread);
        let mut buffer = vec![0; self.sizes.read as usize];
        let mut ops = 0;
        let watch = Stopwatch::start();
        for _ in 0..loops {
            interrupt.check()?;
            for step in &self.workload.steps {
                for _ in 0..step.times {
                    ops += u64::from(self.step(place, share, step, &mut numbers, &mut buffer)?);
                }
            }
        }
        Ok(Done {
            ops,
            time: watch.elapsed(),
        })
    }

    /// Executes one action; returns `false` if there is no file, or no name, for it.
    fn step<P: FileTree>(
        &self,
        place: &P,
        share: &mut Share,
        step: &Step,
        numbers: &mut Numbers,
        buffer: &mut [u8],
    ) -> Result<bool> {
        if step.what == Deed::Log {
            self.append(place, LOG, numbers, step.sync)?;
            return Ok(true);
        }
        if step.what == Deed::Create {
            let Some((at, name)) = numbers.pick(&share.absent) else {
                return Ok(false);
            };
            share.absent.swap_remove(at);
            share
                .present
                .push(self.create(place, name, numbers, step.sync)?);
            return Ok(true);
        }
        let Some((at, file)) = numbers.pick(&share.present) else {
            return Ok(false);
        };
        let name = self.name(file.name);
        match step.what {
            Deed::Append => {
                share.present[at].bytes += self.append(place, name, numbers, step.sync)?
            }
            Deed::Read => expect("bytes read", read_whole(place, name, buffer)?, file.bytes)?,
            Deed::Stat => expect("bytes of a file", place.stat(name)?, file.bytes)?,
            Deed::Delete => {
                place.remove(name)?;
                share.present.swap_remove(at);
                share.absent.push(file.name);
            }
            Deed::Create | Deed::Log => {}
        }
        Ok(true)
    }

    fn name(&self, name: u32) -> &CStr {
        &self.names[name as usize]
    }

    fn create<P: FileTree>(
        &self,
        place: &P,
        name: u32,
        numbers: &mut Numbers,
        sync: bool,
    ) -> Result<Known> {
        let bytes = Numbers::bytes(numbers.gamma(self.sizes.file as f64), self.sizes.file);
        let file = place.open(self.name(name), Purpose::Create)?;
        let mut at = 0;
        while at < bytes {
            let len = (bytes - at).min(self.sizes.write);
            file.write_at(at, &self.data[..len as usize])?;
            at += len;
        }
        if sync {
            file.sync()?;
        }
        Ok(Known { name, bytes })
    }

    fn append<P: FileTree>(
        &self,
        place: &P,
        name: &CStr,
        numbers: &mut Numbers,
        sync: bool,
    ) -> Result<u64> {
        let mean = self.sizes.append;
        let bytes = Numbers::bytes(numbers.exponential(mean as f64), mean);
        let file = place.open(name, Purpose::Append)?;
        for piece in self.data[..bytes as usize].chunks(self.sizes.write as usize) {
            file.append(piece)?;
        }
        if sync {
            file.sync()?;
        }
        Ok(bytes)
    }
}

/// Reads a file sequentially; returns the number of bytes.
fn read_whole<P: FileTree>(place: &P, name: &CStr, buffer: &mut [u8]) -> Result<u64> {
    let file = place.open(name, Purpose::Read)?;
    let mut at = 0;
    loop {
        let len = file.read_at(at, buffer)?;
        at += len as u64;
        if len < buffer.len() {
            return Ok(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::file_tree::KernelDir;

    /// The sizes of all files of a set by name, as the set records them.
    fn known(set: &FileSet<'_>) -> Vec<(u32, u64)> {
        let files = set.shares.iter().flat_map(|share| &share.present);
        let mut files: Vec<_> = files.map(|file| (file.name, file.bytes)).collect();
        files.sort_unstable();
        files
    }

    #[test]
    fn every_personality_leaves_the_same_files_on_every_side() {
        let interrupt = Interrupt::watch();
        for mut workload in Workload::shipped().expect("sound") {
            workload.files.count = 40;
            for sizes in &workload.variants {
                let dir = tempfile::tempdir().expect("a directory");
                let kernel = KernelDir::open(dir.path()).expect("open");
                let pool = vellum::Pool::memory(256 << 20).expect("a pool");
                let volume = pool.volume();
                let make = "made";
                let mut there =
                    FileSet::make(&kernel, &workload, sizes, 2, &interrupt).expect(make);
                let mut here = FileSet::make(&volume, &workload, sizes, 2, &interrupt).expect(make);
                assert_eq!(known(&here).len(), 32);
                for round in 0..3 {
                    let there = there.round(&kernel, round, 5, &interrupt).expect("a round");
                    let here = here.round(&volume, round, 5, &interrupt).expect("a round");
                    let steps: u32 = workload.steps.iter().map(|step| step.times).sum();
                    assert_eq!((here.ops, there.ops), (u64::from(steps) * 10, here.ops));
                }
                assert_eq!(known(&here), known(&there));
                for (name, bytes) in known(&here) {
                    assert_eq!(volume.stat(here.name(name)).expect("there"), bytes);
                    assert_eq!(kernel.stat(here.name(name)).expect("there"), bytes);
                }
            }
        }
    }
}
