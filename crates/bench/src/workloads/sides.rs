//! The sides of a run: pools and directories of peers. They take turns, round by round.

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
use crate::error::Error;
use crate::figure::{Point, median};
use crate::peer::Peer;
use crate::scratch::dir_in;
use crate::variant::Variant;

/// Bytes of the file with which the costs of reading are measured: as many as a measurement reads.
const MEASURED_BYTES: u64 = 16 << 20;

/// The common options of all runs of workloads.
#[derive(Clone, Debug)]
pub(crate) struct RunOptions<'a> {
    /// Rounds that count; one more warms up.
    pub(crate) rounds: usize,
    /// The number of threads.
    pub(crate) threads: usize,
    /// Directory for the pools.
    pub(crate) pool_dir: &'a Path,
}

/// A kind of pool to measure, on a medium, read by a rule.
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

/// The file system of a side.
pub(super) enum Target {
    Pool(Box<Pooled>),
    Peer(Box<PeerDir>),
}

/// A pool created for the run.
pub(super) struct Pooled {
    pub(super) volume: Volume,
    timer: Arc<MappingTimer>,
    pool: Pool,
    // Field order: removed last.
    _dir: TempDir,
}

/// A directory of a peer.
pub(super) struct PeerDir {
    pub(super) dir: KernelDir,
    _peer: Peer,
}

impl Side {
    /// A new pool of `bytes`. The costs of reading are measured at once: no file of a workload is
    /// read as much as the engine requires for a measurement, and until then every rule searches.
    fn pool(subject: Subject, label: String, bytes: u64, pool_dir: &Path) -> Result<Self> {
        let side = Self::unmeasured(subject, label, bytes, pool_dir)?;
        if let Target::Pool(pooled) = &side.target {
            let volume = pooled.pool.volume();
            let path = "/measured";
            let sample = MEASURED_BYTES.min(bytes / 8);
            volume.write(path, vec![1; sample as usize])?;
            // The file system keeps the costs for later readers.
            let _ = volume.open(path)?.handle().read_costs();
            volume.remove_file(path)?;
        }
        Ok(side)
    }

    fn unmeasured(subject: Subject, label: String, bytes: u64, pool_dir: &Path) -> Result<Self> {
        let dir = dir_in(pool_dir)?;
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

    /// Adds the result of a round by `threads` threads, if the round counts.
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

    /// Starts another workload.
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
        // Threads in excess of the processors take turns, and their waits are not in the time.
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
    /// The number of readings: too few for a measurement by the engine, more than any rule waits
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

    /// The page table of a file that was read repeatedly in the pool of a side.
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

    /// Whether a table is built at once depends on the existence of a measurement, not on its
    /// values.
    #[test]
    fn sides_know_what_reading_costs_before_the_first_workload() {
        let dir = tempfile::tempdir().expect("a directory");
        let side = |rule| Side::pool(subject(rule), String::new(), POOL_BYTES, dir.path());
        let table = read_again(&side(Rule::Mmu).expect("a side"));
        assert_eq!(table.blocks, FILE_BYTES as u64 / 4096);
        assert_eq!(read_again(&side(Rule::Search).expect("a side")).blocks, 0);
    }

    #[test]
    fn the_papers_rule_and_the_default_one_build_a_page_table_for_repeated_reads() {
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
