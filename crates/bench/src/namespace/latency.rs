//! Fig 7: creating and removing names where each flushed line takes longer.

use std::ffi::CString;
use std::sync::Arc;

use vellum::media::count::{self, Counts};
use vellum::media::{MappedArena, MappedPool};
use vellum::{
    Cred, FileKind, FormatOptions, Fs, ListPosition, MountOptions, NamespaceKind, Node, attach,
    format,
};

use super::subjects::{ADAM, BASELINE, DEFAULT, Setting, pool_bytes};
use crate::Result;
use crate::error::expect;
use crate::figure::{Axis, Scale};
use crate::library::settle;
use crate::mapping::{Grid, Sample};
use crate::order::{names, shuffled_names};
use crate::report::Outcome;
use crate::slowed::{Latency, Slowed, SlowedPool};
use crate::stopwatch::Stopwatch;
use crate::target::Target;

/// Additional nanoseconds per line.
const LATENCIES_NS: [u64; 6] = [0, 200, 400, 600, 800, 1000];
const OPERATIONS: [&str; 4] = ["create", "unlink", "mkdir", "rmdir"];

/// A pool in memory with its own namespace, whose lines take longer.
struct Slow {
    namespace: NamespaceKind,
    fs: Arc<Fs<Slowed>>,
    root: Node<Slowed>,
    cred: Cred,
    latency: Latency,
}

pub(super) fn measure(setting: &Setting<'_>) -> Result<Outcome> {
    let files = setting.options.files;
    let bytes = pool_bytes(files);
    let pools = NamespaceKind::ALL.map(|namespace| Slow::new(namespace, bytes));
    let pools: Vec<Slow> = pools.into_iter().collect::<Result<_>>()?;
    let mut grids: Vec<Grid> = OPERATIONS
        .iter()
        .map(|name| grid(name, &pools, files))
        .collect();
    let (made, removed) = (names("name-", files), shuffled_names("name-", files, 31));
    for round in 0..=setting.options.rounds {
        for (label, ns) in LATENCIES_NS.into_iter().enumerate() {
            for (side, pool) in pools.iter().enumerate() {
                setting.check()?;
                let samples = pool.round(ns, &made, &removed)?;
                for (grid, sample) in grids.iter_mut().zip(samples) {
                    grid.add(round, side, label, sample);
                }
            }
        }
    }
    let grids_of = OPERATIONS.iter().zip(&grids);
    let targets = grids_of.flat_map(|(name, grid)| {
        let costs = [DEFAULT, ADAM].map(|side| cost(side, name, grid));
        costs.into_iter().chain([growth(name, grid)])
    });
    let targets = targets.flatten().collect();
    let figures = grids.into_iter().map(Grid::figure);
    Ok(Outcome::new(figures.collect(), targets))
}

fn grid(operation: &str, pools: &[Slow], files: usize) -> Grid {
    let x = Axis::of("injected latency of a flushed line", "ns", Scale::Linear);
    let labels = LATENCIES_NS.iter().map(u64::to_string).collect();
    let name = format!("latency-{operation}");
    let title = format!("{operation}, where a flushed line takes longer");
    let sides = pools.iter().map(|pool| pool.namespace.name().to_owned());
    Grid::lines(&name, &title, x, labels)
        .named(sides.collect(), DEFAULT, BASELINE)
        .claim(
            "Fig 7: with 1000 ns more for each flush, NOVA slows down by 57 to 291 %, and ADAM by \
             7 to 65 %. These are times of system calls; through the library an operation takes a \
             tenth of that without latency, so lines weigh more.",
        )
        .note(format!(
            "{files} names in one directory; the thread waits where a line is flushed or written \
             past the cache, once for each."
        ))
}

/// The target that the latency adds no more time to a namespace than to the baseline.
fn cost(side: &str, operation: &str, grid: &Grid) -> Option<Target> {
    let ratio = grid.last_less_first(side)? / grid.last_less_first(BASELINE)?;
    let what =
        format!("{side}, {operation}: what 1000 ns a line add, over what they add with {BASELINE}");
    Some(Target::at_most(what, ratio, 1.0))
}

/// The target that the latency increases the ratio by which a namespace is faster.
fn growth(operation: &str, grid: &Grid) -> Option<Target> {
    let ratio = grid.last_over_first(BASELINE)? / grid.last_over_first(ADAM)?;
    let what = format!(
        "{ADAM}, {operation}: how many times as fast as {BASELINE} with 1000 ns a line, over \
         without"
    );
    Some(Target::at_least(what, ratio, 1.0))
}

impl Slow {
    fn new(namespace: NamespaceKind, bytes: u64) -> Result<Self> {
        let latency = Latency::default();
        let pool = MappedPool::anonymous(bytes).map_err(vellum::Error::from)?;
        pool.populate();
        let pool = SlowedPool::new(pool, latency.clone());
        let options = FormatOptions {
            namespace,
            metadata_bytes: Some(bytes / 2),
            known_zero: true,
            ..FormatOptions::default()
        };
        format(&pool, &options)?;
        let arena = |bytes| {
            let arena = MappedArena::private(bytes)?;
            arena.populate();
            Ok(arena)
        };
        let (fs, _) = attach::<Slowed>(pool, arena, MountOptions::default())?;
        Ok(Self {
            namespace,
            root: fs.root(),
            fs,
            cred: Cred::root(),
            latency,
        })
    }

    /// Creates and removes all names, as files and as directories, with `ns` additional nanoseconds
    /// per line.
    fn round(&self, ns: u64, made: &[CString], removed: &[CString]) -> Result<[Sample; 4]> {
        let (fs, root, cred) = (&self.fs, &self.root, &self.cred);
        let create = self.timed(ns, made, |name| {
            drop(fs.mknod(cred, root, name, FileKind::File, 0o644, 0)?);
            Ok(())
        })?;
        expect("files after creating", self.listed()?, made.len() as u64)?;
        let unlink = self.timed(ns, removed, |name| fs.unlink(cred, root, name))?;
        let mkdir = self.timed(ns, made, |name| {
            drop(fs.mkdir(cred, root, name, 0o755)?);
            Ok(())
        })?;
        let rmdir = self.timed(ns, removed, |name| fs.rmdir(cred, root, name))?;
        expect("names at the end", self.listed()?, 0)?;
        Ok([create, unlink, mkdir, rmdir])
    }

    /// Times one operation for all names. Background work follows untimed, without additional
    /// latency.
    fn timed(
        &self,
        ns: u64,
        names: &[CString],
        each: impl Fn(&[u8]) -> vellum::Result<()>,
    ) -> Result<Sample> {
        self.latency.set_ns(ns);
        let (before, watch) = (count::snapshot(), Stopwatch::start());
        let done = names.iter().try_for_each(|name| each(name.to_bytes()));
        let (time, counts): (_, Counts) = (watch.elapsed(), count::snapshot() - before);
        self.latency.set_ns(0);
        done?;
        settle(&self.fs)?;
        Ok(Sample {
            value: time.as_nanos() as f64 / names.len() as f64,
            ops: names.len() as u64,
            counts,
        })
    }

    fn listed(&self) -> Result<u64> {
        let (mut position, mut entries) = (ListPosition::default(), 0);
        self.fs.list(&self.root, 0, &mut position, &mut |_| {
            entries += 1;
            true
        })?;
        Ok(entries)
    }
}
