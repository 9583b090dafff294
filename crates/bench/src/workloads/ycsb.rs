//! Runs mixes of operations ([`super::mix`]), by default YCSB's A to F, over redb, a key-value
//! store that keeps a copy-on-write B-tree in one file.
//!
//! Records are single values, so an update writes a whole record (YCSB's default writes one of ten
//! fields). The workloads run one after the other on one database per side, YCSB's in its order: A,
//! B, C, F, D, E. Every change is a transaction of its own, durable before it returns. redb allows
//! one changing transaction at a time, and keeps pages in its own cache, whose size is an option.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::ValueEnum as _;
use indicatif::ProgressBar;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};

use super::file_tree::{FileTree, Purpose};
use super::kv::Backend;
use super::mix::{Deed, Distribution, Mix};
use super::personality::Done;
use super::rows::{About, WorkloadRow};
use super::sides::{Peers, RunOptions, Side, Subject, Target, rows};
use super::zipf::{Zipf, fnv};
use crate::Result;
use crate::error::{Error, expect};
use crate::figure::bytes;
use crate::interrupt::Interrupt;
use crate::order::Numbers;
use crate::stopwatch::Stopwatch;

/// The figure's name.
const NAME: &str = "ycsb";
const TABLE: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("usertable");
/// The number of records per transaction while loading.
const LOAD_AT_ONCE: u64 = 1000;
/// Bytes of a pool per byte of records: the tree's nodes, the copies by transactions, and redb's
/// growth by doubling.
const POOL_PART: u64 = 8;
const POOL_LEAST_BYTES: u64 = 64 << 20;

/// HashFS's claims.
pub(crate) const ABOUT: About = About {
    name: NAME,
    title: "YCSB over a key-value store, by mapping",
    claim: "HashFS, Figs 13 and 14: with LevelDB on Strata, HashFS does up to 45 % more operations \
            than the page-cached extent tree (workload F, 4 threads; 23 % with one); A and E are \
            within 3 %. There, mapping takes 70 % of the file I/O path.",
    note: "redb 4 instead of LevelDB; every change is durable before it returns.",
};

/// Options of YCSB.
#[derive(Clone, Debug, clap::Args)]
pub struct YcsbOptions {
    /// Records of `ycsb`
    #[arg(long, value_name = "N", default_value_t = 50_000)]
    pub records: u64,
    /// Operations of a round of `ycsb`, of all threads together
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub operations: u64,
    /// Bytes of a record of `ycsb`
    #[arg(long, value_name = "BYTES", default_value_t = 1000)]
    pub record_bytes: u64,
    /// Bytes of the key-value store's own cache
    #[arg(long, value_name = "BYTES", default_value_t = 8 << 20)]
    pub cache_bytes: usize,
    /// Distribution of `ycsb`'s requests over records [default: by workload]
    #[arg(long, value_name = "WHICH", value_enum)]
    pub distribution: Option<Distribution>,
}

impl YcsbOptions {
    pub(crate) fn check(&self) -> Result<()> {
        let refuse = |text: &str| Err(Error::Option(text.into()));
        if !(2..=1 << 30).contains(&self.records) || self.operations == 0 {
            return refuse("--records must be at least 2, --operations at least 1");
        }
        if !(1..=1 << 20).contains(&self.record_bytes) {
            return refuse("--record-bytes must be from 1 to 1048576");
        }
        Ok(())
    }
}

impl YcsbOptions {
    /// The options and their values, for reports.
    pub(crate) fn settings(&self) -> Vec<(&'static str, String)> {
        let distribution = self.distribution.and_then(|it| it.to_possible_value());
        let distribution =
            distribution.map_or("as the workload says".into(), |it| it.get_name().into());
        vec![
            ("Records of YCSB", self.records.to_string()),
            ("Bytes of a record", self.record_bytes.to_string()),
            ("Operations of YCSB in a round", self.operations.to_string()),
            (
                "Cache of the key-value store",
                bytes(self.cache_bytes as u64),
            ),
            ("Distribution of YCSB", distribution),
        ]
    }
}

/// A database on a side.
struct Store {
    database: Database,
    /// The number of existing records, which every thread may read.
    records: AtomicU64,
    /// Held while a record is added.
    adding: Mutex<()>,
    value: Vec<u8>,
}

/// An error of redb.
fn said(error: impl Into<redb::Error>) -> Error {
    let error: redb::Error = error.into();
    Error::Wrong(format!("the key-value store: {error}"))
}

/// The key of a record: YCSB's, whose order differs from the order of creation.
fn key(record: u64) -> [u8; 24] {
    let mut key = *b"user00000000000000000000";
    let mut rest = fnv(record);
    for digit in key[4..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

impl Store {
    fn make<P: FileTree>(place: &P, options: &YcsbOptions, interrupt: &Interrupt) -> Result<Self>
    where
        P::File: std::fmt::Debug + 'static,
    {
        drop(place.open(c"database", Purpose::Create)?);
        let file = place.open(c"database", Purpose::ReadWrite)?;
        let database = Database::builder()
            .set_cache_size(options.cache_bytes)
            .create_with_backend(Backend(file))
            .map_err(said)?;
        let store = Self {
            database,
            records: AtomicU64::new(0),
            adding: Mutex::new(()),
            value: (0..options.record_bytes).map(|i| (i % 251) as u8).collect(),
        };
        let mut next = 0;
        while next < options.records {
            interrupt.check()?;
            let end = (next + LOAD_AT_ONCE).min(options.records);
            store.put(next..end)?;
            next = end;
        }
        store.records.store(options.records, Ordering::Release);
        Ok(store)
    }

    /// Writes records in one transaction.
    fn put(&self, records: impl Iterator<Item = u64>) -> Result<()> {
        let transaction = self.database.begin_write().map_err(said)?;
        {
            let mut table = transaction.open_table(TABLE).map_err(said)?;
            for record in records {
                table
                    .insert(key(record).as_slice(), self.value.as_slice())
                    .map_err(said)?;
            }
        }
        transaction.commit().map_err(said)
    }

    fn read(&self, record: u64) -> Result<()> {
        let transaction = self.database.begin_read().map_err(said)?;
        let table = transaction.open_table(TABLE).map_err(said)?;
        let found = table.get(key(record).as_slice()).map_err(said)?;
        let bytes = found.map_or(0, |value| value.value().len());
        expect("bytes of a record", bytes, self.value.len())
    }

    /// Reads a record and writes it again in one transaction.
    fn modify(&self, record: u64) -> Result<()> {
        let transaction = self.database.begin_write().map_err(said)?;
        {
            let mut table = transaction.open_table(TABLE).map_err(said)?;
            let old = {
                let found = table.get(key(record).as_slice()).map_err(said)?;
                found
                    .map(|value| value.value().to_vec())
                    .unwrap_or_default()
            };
            expect("bytes of a record", old.len(), self.value.len())?;
            table
                .insert(key(record).as_slice(), old.as_slice())
                .map_err(said)?;
        }
        transaction.commit().map_err(said)
    }

    fn scan(&self, from: u64, most: u64) -> Result<()> {
        let transaction = self.database.begin_read().map_err(said)?;
        let table = transaction.open_table(TABLE).map_err(said)?;
        let first = key(from);
        let found = table.range(first.as_slice()..).map_err(said)?;
        let mut count = 0;
        for entry in found.take(most as usize) {
            let (_, value) = entry.map_err(said)?;
            expect("bytes of a record", value.value().len(), self.value.len())?;
            count += 1;
        }
        // The record itself exists, so no scan is empty.
        expect("an empty scan", count == 0, false)
    }

    fn insert(&self) -> Result<()> {
        let held = self.adding.lock();
        let record = self.records.load(Ordering::Acquire);
        let done = self.put(record..record + 1);
        self.records.store(record + 1, Ordering::Release);
        drop(held);
        done
    }

    /// One thread's part of a round.
    fn work(&self, load: &Load<'_>, mix: &Mix, salt: u64, operations: u64) -> Result<Done> {
        let distribution = load.options.distribution.unwrap_or(mix.distribution);
        let zipf = &load.zipf;
        let mut numbers = Numbers::new(salt);
        let watch = Stopwatch::start();
        for _ in 0..operations {
            load.interrupt.check()?;
            let there = self.records.load(Ordering::Acquire);
            let record = match distribution {
                Distribution::Latest => there - 1 - zipf.draw(&mut numbers).min(there - 1),
                Distribution::Zipfian => fnv(zipf.draw(&mut numbers)) % there,
                Distribution::Uniform => numbers.below(there),
            };
            let part = mix.part(numbers.below(100));
            match part.deed {
                Deed::Read => self.read(record)?,
                Deed::Update => self.put(std::iter::once(record))?,
                Deed::Insert => self.insert()?,
                Deed::Scan => self.scan(record, 1 + numbers.below(part.most))?,
                Deed::Modify => self.modify(record)?,
            }
        }
        Ok(Done {
            ops: operations,
            time: watch.elapsed(),
        })
    }

    fn round(&self, load: &Load<'_>, (number, mix): (u64, &Mix), round: u64) -> Result<Done> {
        let share = load.options.operations.div_ceil(load.threads);
        std::thread::scope(|scope| {
            let start = |thread: u64| {
                let salt = round << 32 | number << 16 | thread;
                scope.spawn(move || self.work(load, mix, salt, share))
            };
            let running: Vec<_> = (0..load.threads).map(start).collect();
            let mut sum = Done::default();
            for thread in running {
                sum += thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            }
            Ok(sum)
        })
    }
}

/// The parameters of all threads.
struct Load<'a> {
    options: &'a YcsbOptions,
    threads: u64,
    zipf: Zipf,
    interrupt: &'a Interrupt,
}

/// The workloads to run.
pub(crate) struct Plan<'a> {
    run: RunOptions<'a>,
    options: &'a YcsbOptions,
    mixes: Vec<Mix>,
}

impl<'a> Plan<'a> {
    /// A plan for the workloads that were named, built-in ones or files; if there are none, for all
    /// built-in ones.
    ///
    /// # Errors
    /// A file cannot be read, or has a field or value that no workload has.
    pub(crate) fn of(
        run: RunOptions<'a>,
        options: &'a YcsbOptions,
        named: &[&str],
    ) -> Result<Self> {
        let mixes = match named {
            [] => Mix::shipped()?,
            named => named
                .iter()
                .map(|name| Mix::named(name))
                .collect::<Result<_>>()?,
        };
        Ok(Self {
            run,
            options,
            mixes,
        })
    }

    /// The number of steps of the progress bar.
    pub(crate) fn steps(&self, sides: usize) -> usize {
        self.mixes.len() * sides * (self.run.rounds + 1)
    }

    /// Runs the workloads on every side.
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
        let (run, options) = (&self.run, self.options);
        let bytes = options.records * (options.record_bytes + 64) * POOL_PART;
        let bytes = bytes.max(POOL_LEAST_BYTES).next_multiple_of(2 << 20);
        let mut sides = Side::all(subjects, peers, bytes, run.pool_dir)?;
        let make = |side: &Side| match &side.target {
            Target::Pool(pool) => Store::make(&pool.volume, options, interrupt),
            Target::Peer(peer) => Store::make(&peer.dir, options, interrupt),
        };
        progress.set_message("ycsb: loading");
        let stores: Vec<Store> = sides.iter().map(make).collect::<Result<_>>()?;
        let load = Load {
            options,
            threads: run.threads as u64,
            zipf: Zipf::new(options.records),
            interrupt,
        };
        let mut all = Vec::new();
        for mix in (0..).zip(&self.mixes) {
            let name = &*mix.1.name;
            progress.set_message(format!("ycsb {name}"));
            for round in 0..=run.rounds as u64 {
                for (side, store) in sides.iter_mut().zip(&stores) {
                    side.note(round > 0, run.threads, |_| store.round(&load, mix, round))?;
                    progress.inc(1);
                }
            }
            all.extend(rows(NAME, name, run.threads, &sides));
            sides.iter_mut().for_each(Side::forget);
        }
        // Databases write when they are dropped, and the pools must still exist then.
        drop(stores);
        all.sort_by(|a, b| a.workload.cmp(&b.workload));
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_differ_and_have_one_length() {
        let keys: std::collections::BTreeSet<_> = (0..10_000).map(key).collect();
        assert_eq!(keys.len(), 10_000);
        assert!(
            keys.iter()
                .all(|key| key.starts_with(b"user") && key[4..].iter().all(u8::is_ascii_digit))
        );
    }

    #[test]
    fn every_mix_changes_what_it_says() {
        let pool = vellum::Pool::memory(128 << 20).expect("a pool");
        let interrupt = Interrupt::watch();
        let options = YcsbOptions {
            records: 500,
            operations: 300,
            record_bytes: 100,
            cache_bytes: 1 << 20,
            distribution: None,
        };
        let store = Store::make(&pool.volume(), &options, &interrupt).expect("made");
        for mix in (0..).zip(&Mix::shipped().expect("sound")) {
            for distribution in [None, Some(Distribution::Uniform)] {
                let options = YcsbOptions {
                    distribution,
                    ..options.clone()
                };
                let load = Load {
                    options: &options,
                    threads: 2,
                    zipf: Zipf::new(options.records),
                    interrupt: &interrupt,
                };
                let before = store.records.load(Ordering::Relaxed);
                let done = store.round(&load, mix, 1).expect("a round");
                assert_eq!(done.ops, 300);
                let added = store.records.load(Ordering::Relaxed) - before;
                let inserts = mix.1.operations.iter();
                let inserts = inserts.filter(|part| part.deed == Deed::Insert).count() > 0;
                assert_eq!(added > 0, inserts, "{}", mix.1.name);
            }
        }
        let transaction = store.database.begin_read().expect("a transaction");
        let table = transaction.open_table(TABLE).expect("a table");
        let there = redb::ReadableTableMetadata::len(&table).expect("a count");
        assert_eq!(there, store.records.load(Ordering::Relaxed));
    }
}
