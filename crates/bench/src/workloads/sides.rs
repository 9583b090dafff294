//! The sides of a run: pools and peers' directories. They take turns, round by round.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use vellum::media::MediaChoice;
use vellum::reading::Rule;
use vellum::{MappingTime, MappingTimer, Pool, PoolOptions, Volume};

use crate::library::make_pool;

use super::file_tree::KernelDir;
use super::personality::Done;
use super::rows::{Rounds, WorkloadRow};
use crate::Result;
use crate::error::{Error, doing};
use crate::figure::{Point, median};
use crate::peer::Peer;
use crate::variant::Variant;

/// Bytes of the file by which it is measured what reading costs: as many as a measurement reads.
const MEASURED_BYTES: u64 = 16 << 20;

/// Options that all runs of workloads have.
#[derive(Clone, Debug)]
pub(crate) struct RunOptions<'a> {
    /// Rounds that count, beside the one that warms up.
    pub(crate) rounds: usize,
    /// Threads.
    pub(crate) threads: usize,
    /// Directory for the pools.
    pub(crate) pool_dir: &'a Path,
}

/// What is measured: a kind of pool on a medium, read by a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Subject {
    pub(crate) variant: Variant,
    pub(crate) rule: Rule,
    pub(crate) media: MediaChoice,
}

/// Directories to compare with.
pub(crate) type Peers<'a> = &'a [String];

/// A side.
pub(super) struct Side {
    label: String,
    subject: Option<Subject>,
    pub(super) target: Target,
    rounds: Rounds,
}

/// Where a side works.
pub(super) enum Target {
    Pool(Box<Pooled>),
    Peer(Box<PeerDir>),
}

/// A pool of the run's own.
pub(super) struct Pooled {
    pub(super) volume: Volume,
    timer: Arc<MappingTimer>,
    pool: Pool,
    // Goes last.
    _dir: TempDir,
}

/// A directory of a peer.
pub(super) struct PeerDir {
    pub(super) dir: KernelDir,
    _peer: Peer,
}

impl Side {
    /// A new pool of `bytes`. What reading costs there is measured at once: no opening of a
    /// workload reads as much as the engine waits for, and until then every rule searches.
    fn pool(subject: Subject, label: String, bytes: u64, pool_dir: &Path) -> Result<Self> {
        let side = Self::unmeasured(subject, label, bytes, pool_dir)?;
        if let Target::Pool(pooled) = &side.target {
            let volume = pooled.pool.volume();
            let path = "/measured";
            let sample = MEASURED_BYTES.min(bytes / 8);
            volume.write(path, vec![1; sample as usize])?;
            // Kept by the file system for those who read.
            let _ = volume.open(path)?.handle().read_costs();
            volume.remove_file(path)?;
        }
        Ok(side)
    }

    fn unmeasured(subject: Subject, label: String, bytes: u64, pool_dir: &Path) -> Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("vellum-bench-")
            .tempdir_in(pool_dir)
            .map_err(doing(format!("make a directory in {}", pool_dir.display())))?;
        let path = dir.path().join("pool");
        let create = subject.variant.create(bytes).media(subject.media);
        make_pool(&path, &create)?.close()?;
        let timer = MappingTimer::new();
        let options = PoolOptions::new()
            .populate(true)
            .mapping_timer(Some(Arc::clone(&timer)));
        let pool = options.open(&path)?;
        pool.fs().set_read_rule(subject.rule);
        let pooled = Pooled {
            volume: pool.volume(),
            timer,
            pool,
            _dir: dir,
        };
        Ok(Self {
            label,
            subject: Some(subject),
            target: Target::Pool(Box::new(pooled)),
            rounds: Rounds::default(),
        })
    }

    fn peer(name: &str, bytes: u64) -> Result<Self> {
        let peer = Peer::new(name, bytes)?;
        let dir = KernelDir::open(peer.dir())?;
        let label = peer.label();
        let label = format!("{} ({})", label.kind, label.name);
        Ok(Self {
            label,
            subject: None,
            target: Target::Peer(Box::new(PeerDir { dir, _peer: peer })),
            rounds: Rounds::default(),
        })
    }

    /// All sides of a run: pools of `bytes` each, then peers.
    pub(super) fn all(
        subjects: &[Subject],
        peers: Peers<'_>,
        bytes: u64,
        pool_dir: &Path,
    ) -> Result<Vec<Self>> {
        let one_rule = subjects.windows(2).all(|two| two[0].rule == two[1].rule);
        let one_pool = subjects
            .windows(2)
            .all(|two| two[0].variant == two[1].variant);
        let label = |subject: &Subject| match (one_pool, one_rule) {
            _ if subject.media == MediaChoice::Logged => "logged".to_owned(),
            (_, true) => subject.variant.label(),
            (true, false) => subject.rule.name().to_owned(),
            (false, false) => format!("{}, {}", subject.variant.label(), subject.rule.name()),
        };
        let pools = subjects
            .iter()
            .map(|subject| Self::pool(*subject, label(subject), bytes, pool_dir));
        let peers = peers.iter().map(|name| Self::peer(name, bytes));
        pools.chain(peers).collect()
    }

    /// Does a round and notes it, if it counts. `threads` did it together.
    pub(super) fn note(
        &mut self,
        counts: bool,
        threads: usize,
        run: impl FnOnce(&mut Target) -> Result<Done>,
    ) -> Result<()> {
        let before = self.mapping_time();
        let done = run(&mut self.target)?;
        let mapping = self
            .mapping_time()
            .zip(before)
            .map(|(now, before)| now - before);
        if done.ops == 0 || done.time == Duration::ZERO {
            return Err(Error::Wrong(format!("{}: a round did nothing", self.label)));
        }
        if counts {
            self.rounds.note(threads, done, mapping);
        }
        Ok(())
    }

    /// Begins another workload.
    pub(super) fn forget(&mut self) {
        self.rounds = Rounds::default();
    }

    fn mapping_time(&self) -> Option<MappingTime> {
        match &self.target {
            Target::Pool(pooled) => Some(pooled.timer.read()),
            Target::Peer(_) => None,
        }
    }
}

impl Rounds {
    fn note(&mut self, threads: usize, done: Done, mapping: Option<MappingTime>) {
        // Threads beyond the processors take turns, and their waiting is not in the time.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let at_once = threads.min(cores) as f64;
        let time = done.time.as_secs_f64();
        self.operations = done.ops;
        self.speeds.push(done.ops as f64 * at_once / time);
        if let Some(mapping) = mapping {
            self.lookup_shares.push(mapping.lookup.as_secs_f64() / time);
            self.change_shares.push(mapping.change.as_secs_f64() / time);
        }
    }
}

/// The rows of a workload.
pub(super) fn rows(
    figure: &'static str,
    workload: &str,
    threads: usize,
    sides: &[Side],
) -> Vec<WorkloadRow> {
    let peer = sides.iter().find(|side| side.subject.is_none());
    let row = |side: &Side| {
        let speeds = Point::of_rounds("", &side.rounds.speeds)?;
        let share = |shares: &[f64]| (!shares.is_empty()).then(|| median(shares));
        Some(WorkloadRow {
            figure,
            workload: workload.to_owned(),
            side: side.label.clone(),
            pool: side.subject.map(|subject| subject.variant),
            rule: side.subject.map(|subject| subject.rule.name()),
            threads,
            operations: side.rounds.operations,
            ops_per_second: speeds.value,
            ops_per_second_spread: [speeds.low, speeds.high],
            over_peer: peer.map(|peer| side.rounds.over(&peer.rounds)),
            over_first: side.rounds.over(&sides.first()?.rounds),
            lookup_share: share(&side.rounds.lookup_shares),
            change_share: share(&side.rounds.change_shares),
            page_table_gave_up: false,
        })
    };
    sides.iter().filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use vellum::experiments::page_table;
    use vellum::reading::{Costs, PageTable};
    use vellum::{MappingKind, OpenOptions};

    use super::*;

    const POOL_BYTES: u64 = 64 << 20;
    const FILE_BYTES: usize = 1 << 20;
    /// Times that the file is read: less than the engine measures after, more than any rule waits
    /// for.
    const READINGS: usize = 4;

    fn subject(rule: Rule) -> Subject {
        let variant = Variant {
            mapping: MappingKind::HashFs,
            layout_score: 1000,
        };
        Subject {
            variant,
            rule,
            media: MediaChoice::Auto,
        }
    }

    /// The pool of a side, and what the page table of a file came to that was read again and again.
    fn read_again(side: &Side) -> PageTable {
        let Target::Pool(pooled) = &side.target else {
            panic!("a side without a pool");
        };
        let volume = &pooled.volume;
        volume.write("/file", [1; FILE_BYTES]).expect("written");
        let reading = OpenOptions::new().read(true);
        let file = volume.open_with("/file", &reading).expect("opened");
        let mut out = vec![0; 64 << 10];
        for _ in 0..READINGS {
            for at in (0..FILE_BYTES).step_by(out.len()) {
                let read = file.read_at(&mut out, at as u64).expect("read");
                assert_eq!(read, out.len());
            }
        }
        page_table(file.handle())
    }

    /// Whether a table is bought at once does not depend on what was measured, but on its having
    /// been.
    #[test]
    fn sides_know_what_reading_costs_before_the_first_workload() {
        let dir = tempfile::tempdir().expect("a directory");
        let side = |rule| Side::pool(subject(rule), String::new(), POOL_BYTES, dir.path());
        let table = read_again(&side(Rule::Mmu).expect("a side"));
        assert_eq!(table.blocks, FILE_BYTES as u64 / 4096);
        assert_eq!(read_again(&side(Rule::Search).expect("a side")).blocks, 0);
    }

    #[test]
    fn the_papers_rule_and_the_default_one_lay_a_page_table_for_what_is_read_again() {
        let dir = tempfile::tempdir().expect("a directory");
        for rule in [Rule::Threshold, Rule::Layout] {
            let side = Side::unmeasured(subject(rule), String::new(), POOL_BYTES, dir.path());
            let side = side.expect("a side");
            let Target::Pool(pooled) = &side.target else {
                panic!("a side without a pool");
            };
            // A page table costs nothing and saves a microsecond a page.
            let costs = Costs {
                search_page_ps: 1_000_000,
                ..Costs::default()
            };
            assert_eq!(pooled.pool.fs().set_read_costs(costs), Some(costs));
            let table = read_again(&side);
            assert_eq!(table.blocks, FILE_BYTES as u64 / 4096, "{rule:?}");
            assert!(!table.gave_up, "{rule:?}");
        }
    }
}
