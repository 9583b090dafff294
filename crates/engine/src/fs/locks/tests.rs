//! Locks, as owners see them.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::scope;
use std::time::{Duration, Instant};

use vellum_layout::{MappingKind, NamespaceKind};
use vellum_media::{HeapMemory, Memories, Real, SimPool, Simulated};

use super::table::{FileId, Table, arena_bytes};
use super::{LAST, LockCancel, LockKind, LockOwner, LockRange, LockWait};
use crate::checking::small_fs;
use crate::core::cachelet::flag;
use crate::error::{Error, Result};
use crate::fs::{Cred, Fs, Handle, OpenOptions};
use crate::pool::Pool;

const EXCLUSIVE: LockKind = LockKind::Exclusive;
const SHARED: LockKind = LockKind::Shared;
const POOL_BYTES: u64 = 2 << 20;

fn pool() -> Pool {
    Pool::memory(POOL_BYTES).unwrap()
}

fn opened(pool: &Pool, name: &str) -> Handle<Real> {
    opened_in(&pool.fs(), name)
}

fn opened_in<M: Memories>(fs: &Arc<Fs<M>>, name: &str) -> Handle<M> {
    let options = OpenOptions::new().read(true).write(true).create(true);
    fs.open(&Cred::root(), &fs.root(), name.as_bytes(), &options)
        .unwrap()
}

fn bytes(first: u64, last: u64) -> LockRange {
    LockRange::new(first..=last).unwrap()
}

/// An owner that uses a handle.
struct By<'h, M: Memories>(&'h Handle<M>, LockOwner);

impl<M: Memories> Clone for By<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Memories> Copy for By<'_, M> {}

impl<M: Memories> By<'_, M> {
    fn lock(self, kind: LockKind, range: LockRange, wait: LockWait<'_>) -> Result<()> {
        self.0.lock_range(self.1, kind, range, wait)
    }

    fn tries(self, kind: LockKind, range: LockRange) -> bool {
        match self.lock(kind, range, LockWait::NO) {
            Ok(()) => true,
            Err(Error::WouldBlock) => false,
            Err(error) => panic!("{error}"),
        }
    }

    fn unlocks(self, range: LockRange) {
        self.0.unlock_range(self.1, range).unwrap();
    }
}

fn process<M: Memories>(handle: &Handle<M>, number: u64) -> By<'_, M> {
    By(handle, LockOwner::Process(number))
}

/// What a stranger finds locked, from byte 0 on: first byte, last byte, kind.
fn locks_of<M: Memories>(handle: &Handle<M>) -> Vec<(u64, u64, LockKind)> {
    let mut found = Vec::new();
    let locked = |range| {
        let stranger = LockOwner::Process(u64::MAX);
        handle.find_lock(stranger, EXCLUSIVE, range).unwrap()
    };
    let mut from = 0;
    while from <= LAST {
        let next = (from..=LAST.min(from + 64)).find_map(|byte| locked(bytes(byte, byte)));
        let Some(next) = next else {
            assert_eq!(locked(LockRange::new(from..).unwrap()), None);
            break;
        };
        found.push((next.range.first, next.range.last, next.kind));
        from = next.range.last + 1;
    }
    found
}

fn waiting(pool: &Pool) -> usize {
    pool.fs().lock_waits()
}

/// Returns once that many requests wait.
fn until_waiting(pool: &Pool, count: usize) {
    while waiting(pool) != count {
        std::thread::yield_now();
    }
}

fn has_answered<T>(answers: &Receiver<T>) -> bool {
    answers.try_recv().is_ok()
}

#[test]
fn ranges_are_checked_as_fcntl_does() {
    let max = i64::MAX;
    for (start, len, expected) in [
        (0, 0, Ok((0, LAST))),
        (5, 1, Ok((5, 5))),
        (5, -5, Ok((0, 4))),
        (max, 1, Ok((LAST, LAST))),
        (max, 0, Ok((LAST, LAST))),
        (max - 1, 2, Ok((LAST - 1, LAST))),
        (5, -6, Err(libc::EINVAL)),
        (-1, 2, Err(libc::EINVAL)),
        (0, i64::MIN, Err(libc::EINVAL)),
        (max, 2, Err(libc::EOVERFLOW)),
        (1, max, Ok((1, LAST))),
        (2, max, Err(libc::EOVERFLOW)),
    ] {
        let found = LockRange::of_fcntl(start, len);
        let found = found.map(|range| (range.first, range.last));
        assert_eq!(found.map_err(|e| e.errno()), expected, "{start} {len}");
    }
    assert_eq!(
        LockRange::new(..=u64::MAX).unwrap_err().errno(),
        libc::EOVERFLOW
    );
    assert_eq!(LockRange::new(1 << 63..).unwrap_err().errno(), libc::EINVAL);
    assert_eq!(LockRange::new(..0).unwrap_err().errno(), libc::EINVAL);
}

#[test]
fn locks_are_split_and_merged() {
    let pool = pool();
    let file = opened(&pool, "f");
    let one = process(&file, 1);
    assert!(one.tries(EXCLUSIVE, bytes(0, 9)));
    one.unlocks(bytes(3, 4));
    assert_eq!(locks_of(&file), [(0, 2, EXCLUSIVE), (5, 9, EXCLUSIVE)]);
    assert!(one.tries(SHARED, bytes(2, 6)));
    assert_eq!(
        locks_of(&file),
        [(0, 1, EXCLUSIVE), (2, 6, SHARED), (7, 9, EXCLUSIVE)]
    );
    assert!(one.tries(EXCLUSIVE, bytes(2, 6)));
    assert_eq!(locks_of(&file), [(0, 9, EXCLUSIVE)]);
    assert!(one.tries(SHARED, LockRange::ALL));
    assert_eq!(locks_of(&file), [(0, LAST, SHARED)]);
    one.unlocks(LockRange::ALL);
    assert_eq!(locks_of(&file), []);
}

#[test]
fn an_owner_keeps_its_place_among_others() {
    let pool = pool();
    let file = opened(&pool, "f");
    let (one, other) = (process(&file, 1), process(&file, 2));
    assert!(one.tries(SHARED, bytes(5, 9)) && other.tries(SHARED, bytes(0, 9)));
    // Replaced whole, and gone for a moment.
    one.unlocks(bytes(6, 9));
    assert!(one.tries(SHARED, bytes(0, 9)));
    let first = |kind| {
        let found = file.find_lock(LockOwner::Process(3), kind, bytes(0, 9));
        found.unwrap().map(|lock| lock.owner)
    };
    assert_eq!(first(EXCLUSIVE), Some(LockOwner::Process(1)));
    one.unlocks(LockRange::ALL);
    assert!(one.tries(SHARED, bytes(0, 9)));
    assert_eq!(first(EXCLUSIVE), Some(LockOwner::Process(2)));
}

#[test]
fn an_upgrade_waits_with_its_shared_lock() {
    let pool = pool();
    let file = opened(&pool, "f");
    let (one, other) = (process(&file, 1), process(&file, 2));
    assert!(one.tries(SHARED, bytes(0, 9)) && other.tries(SHARED, bytes(5, 5)));
    assert!(!one.tries(EXCLUSIVE, bytes(0, 9)));
    assert!(!other.tries(EXCLUSIVE, bytes(0, 0)));
    other.unlocks(LockRange::ALL);
    assert!(one.tries(EXCLUSIVE, bytes(0, 9)));
}

#[test]
fn the_kinds_of_owners_exclude_each_other() {
    let pool = pool();
    let (file, again) = (opened(&pool, "f"), opened(&pool, "f"));
    let (of_handle, of_other) = (By(&file, LockOwner::Handle), By(&again, LockOwner::Handle));
    assert!(of_handle.tries(EXCLUSIVE, bytes(0, 9)));
    assert!(!of_other.tries(SHARED, bytes(9, 9)));
    assert!(!process(&file, 1).tries(SHARED, bytes(9, 9)));
    // Locks of the whole file never meet them.
    again.try_lock().unwrap();
    assert!(matches!(file.try_lock_shared(), Err(Error::WouldBlock)));
    assert!(of_handle.tries(SHARED, bytes(0, 9)));
    assert!(of_other.tries(SHARED, LockRange::ALL));
}

#[test]
fn locks_of_ranges_need_the_handles_mode() {
    let pool = pool();
    let file = opened(&pool, "f");
    let fs = pool.fs();
    for (options, shared, exclusive) in [
        (OpenOptions::new().read(true), true, false),
        (OpenOptions::new().write(true), false, true),
        (OpenOptions::new().append(true), false, true),
    ] {
        let handle = fs.open_node(&Cred::root(), file.node(), &options).unwrap();
        for (kind, permitted) in [(SHARED, shared), (EXCLUSIVE, exclusive)] {
            let done = By(&handle, LockOwner::Handle).lock(kind, LockRange::ALL, LockWait::NO);
            assert_eq!(done.map_err(|e| e.errno()).is_ok(), permitted);
            handle.lock_file(kind, LockWait::NO).unwrap();
            handle
                .unlock_range(LockOwner::Handle, LockRange::ALL)
                .unwrap();
        }
    }
}

#[test]
fn locks_end_with_their_handle() {
    let pool = pool();
    let (file, again) = (opened(&pool, "f"), opened(&pool, "f"));
    let me = LockOwner::this_process();
    again.lock().unwrap();
    assert!(By(&again, LockOwner::Handle).tries(EXCLUSIVE, bytes(0, 9)));
    assert!(By(&again, me).tries(EXCLUSIVE, bytes(20, 29)));
    assert!(process(&again, 7).tries(EXCLUSIVE, bytes(40, 49)));
    assert!(By(&file, me).tries(EXCLUSIVE, bytes(60, 69)));
    drop(again);
    // Those of the handle, and all of this process; not those of others.
    assert_eq!(locks_of(&file), [(40, 49, EXCLUSIVE)]);
    file.try_lock().unwrap();
    file.release_process_locks(7).unwrap();
    assert_eq!(locks_of(&file), []);
}

#[test]
fn a_file_that_was_never_locked_costs_nothing() {
    let pool = pool();
    let (file, other) = (opened(&pool, "f"), opened(&pool, "g"));
    let flagged = |handle: &Handle<Real>| {
        let core = &handle.node().fs().core;
        core.has_flag(handle.node().cachelet, flag::LOCKED)
    };
    other.lock().unwrap();
    assert!(flagged(&other) && !flagged(&file));
    // A bucket that somebody holds would stop whoever looked at the table.
    let fs = pool.fs();
    let op = fs.core.op_begin().unwrap();
    let table = Table::new(&op);
    let id = FileId {
        ino: file.node().ino(),
        generation: file.node().generation(),
    };
    let chain = table.chain(id);
    assert_eq!(locks_of(&file), []);
    drop(file);
    drop(chain);
    other.unlock().unwrap();
    assert!(!flagged(&other), "nobody has a lock any more");
}

#[test]
fn waiting_requests_are_served_in_their_order() {
    let pool = pool();
    let file = opened(&pool, "f");
    let holder = process(&file, 1);
    assert!(holder.tries(EXCLUSIVE, bytes(0, 9)));
    scope(|scope| {
        let (tells, told) = channel();
        for number in 2..6 {
            let (tells, by) = (tells.clone(), process(&file, number));
            scope.spawn(move || {
                by.lock(EXCLUSIVE, bytes(5, 5), LockWait::FOREVER).unwrap();
                tells.send(number).unwrap();
            });
            until_waiting(&pool, number as usize - 1);
        }
        holder.unlocks(bytes(0, 4));
        assert_eq!(waiting(&pool), 4);
        assert!(!has_answered(&told));
        holder.unlocks(bytes(5, 5));
        for number in 2..6 {
            assert_eq!(told.recv().unwrap(), number);
            // A request that comes now overtakes none that waits.
            let waits = waiting(&pool);
            assert_eq!(waits, 5 - number as usize);
            assert!(!holder.tries(SHARED, bytes(5, 5)));
            process(&file, number).unlocks(LockRange::ALL);
        }
    });
}

#[test]
fn a_close_serves_those_who_wait() {
    let pool = pool();
    let (file, again) = (opened(&pool, "f"), opened(&pool, "f"));
    file.lock().unwrap();
    assert!(By(&file, LockOwner::this_process()).tries(EXCLUSIVE, bytes(0, 9)));
    scope(|scope| {
        scope.spawn(|| again.lock_shared().unwrap());
        scope.spawn(|| {
            let by = process(&again, 2);
            by.lock(SHARED, bytes(9, 9), LockWait::FOREVER).unwrap();
        });
        until_waiting(&pool, 2);
        drop(file);
    });
    assert_eq!(locks_of(&again), [(9, 9, SHARED)]);
}

#[test]
fn another_close_of_a_waiting_owner_leaves_its_request() {
    let pool = pool();
    let (file, again) = (opened(&pool, "f"), opened(&pool, "f"));
    let (me, holder) = (LockOwner::this_process(), process(&again, 1));
    assert!(holder.tries(EXCLUSIVE, bytes(0, 9)));
    assert!(By(&file, me).tries(EXCLUSIVE, bytes(20, 29)));
    scope(|scope| {
        let waits = || By(&again, me).lock(EXCLUSIVE, bytes(5, 5), LockWait::FOREVER);
        let waiting = scope.spawn(waits);
        until_waiting(&pool, 1);
        drop(file);
        assert_eq!(locks_of(&again), [(0, 9, EXCLUSIVE)]);
        holder.unlocks(LockRange::ALL);
        waiting.join().unwrap().unwrap();
    });
    assert_eq!(locks_of(&again), [(5, 5, EXCLUSIVE)]);
}

#[test]
fn a_wait_ends_in_time_or_when_it_is_cancelled() {
    let pool = pool();
    let (file, again) = (opened(&pool, "f"), opened(&pool, "f"));
    file.lock().unwrap();
    let soon = LockWait::FOREVER.until(Instant::now() + Duration::from_millis(1));
    assert!(matches!(
        again.lock_file(SHARED, soon),
        Err(Error::TimedOut)
    ));
    let (cancel, other) = (LockCancel::new(), LockCancel::new());
    scope(|scope| {
        let wait = LockWait::FOREVER.cancelled_by(&cancel);
        let waiting = scope.spawn(move || again.lock_file(SHARED, wait));
        until_waiting(&pool, 1);
        pool.fs().cancel_lock_waits(&other);
        pool.fs().cancel_lock_waits(&cancel);
        assert!(matches!(waiting.join().unwrap(), Err(Error::Interrupted)));
    });
    assert_eq!(waiting(&pool), 0);
}

#[test]
fn the_end_of_the_pool_ends_waits() {
    let pool = pool();
    let (file, again) = (opened(&pool, "f"), opened(&pool, "f"));
    file.lock().unwrap();
    scope(|scope| {
        let waiting = scope.spawn(|| again.lock());
        until_waiting(&pool, 1);
        pool.close().unwrap();
        assert!(matches!(waiting.join().unwrap(), Err(Error::Closed)));
        assert!(matches!(again.try_lock(), Err(Error::Closed)));
    });
}

/// Each process of `count` holds a byte of a file of its own, and waits for the next one's. Returns
/// the answer to the last one; all others get their locks.
fn cycle(count: u64) -> Result<()> {
    let pool = pool();
    let files: Vec<_> = (0..count)
        .map(|number| opened(&pool, &number.to_string()))
        .collect();
    let by = |number: u64, file: u64| process(&files[file as usize], number);
    for number in 0..count {
        assert!(by(number, number).tries(EXCLUSIVE, bytes(0, 0)));
    }
    let answer = scope(|scope| {
        for number in 0..count - 1 {
            let by = by(number, number + 1);
            scope.spawn(move || by.lock(SHARED, LockRange::ALL, LockWait::FOREVER).unwrap());
            until_waiting(&pool, number as usize + 1);
        }
        let answer = by(count - 1, 0).lock(SHARED, LockRange::ALL, LockWait::FOREVER);
        // The one before the last gets its lock, and so on.
        for number in (1..count).rev() {
            by(number, number).unlocks(LockRange::ALL);
        }
        answer
    });
    assert_eq!(waiting(&pool), 0);
    answer
}

#[test]
fn processes_do_not_wait_for_themselves() {
    for count in [2, 3, 15] {
        let answer = cycle(count);
        assert!(matches!(answer, Err(Error::LockDeadlock)), "{answer:?}");
    }
}

#[test]
fn handles_that_wait_for_each_other_are_left_alone() {
    let pool = pool();
    let (file, again) = (opened(&pool, "f"), opened(&pool, "f"));
    let (one, other) = (By(&file, LockOwner::Handle), By(&again, LockOwner::Handle));
    assert!(one.tries(EXCLUSIVE, bytes(0, 0)) && other.tries(EXCLUSIVE, bytes(1, 1)));
    scope(|scope| {
        scope.spawn(move || one.lock(SHARED, bytes(1, 1), LockWait::FOREVER).unwrap());
        until_waiting(&pool, 1);
        let soon = LockWait::FOREVER.until(Instant::now() + Duration::from_millis(1));
        let answer = other.lock(SHARED, bytes(0, 0), soon);
        assert!(matches!(answer, Err(Error::TimedOut)), "{answer:?}");
        other.unlocks(LockRange::ALL);
    });
}

#[test]
fn every_holder_in_the_way_counts_for_a_deadlock() {
    let pool = pool();
    let file = opened(&pool, "f");
    let [one, two, three] = [1, 2, 3].map(|number| process(&file, number));
    assert!(one.tries(SHARED, bytes(0, 0)) && two.tries(SHARED, bytes(0, 0)));
    assert!(three.tries(EXCLUSIVE, bytes(1, 1)));
    scope(|scope| {
        scope.spawn(move || {
            three
                .lock(EXCLUSIVE, bytes(0, 0), LockWait::FOREVER)
                .unwrap();
        });
        until_waiting(&pool, 1);
        let answer = two.lock(SHARED, bytes(1, 1), LockWait::FOREVER);
        assert!(matches!(answer, Err(Error::LockDeadlock)), "{answer:?}");
        one.unlocks(LockRange::ALL);
        two.unlocks(LockRange::ALL);
    });
}

#[test]
fn a_conversion_gives_the_lock_of_a_file_up_first() {
    let pool = pool();
    let (file, again) = (opened(&pool, "f"), opened(&pool, "f"));
    file.lock_shared().unwrap();
    again.lock_shared().unwrap();
    assert!(matches!(file.try_lock(), Err(Error::WouldBlock)));
    again.try_lock().unwrap(); // the refused one has nothing any more
    again.lock_shared().unwrap();
    file.try_lock_shared().unwrap();
}

#[test]
fn a_full_table_refuses_and_changes_nothing() {
    let kinds = (NamespaceKind::Direct, MappingKind::HashFs);
    let fs = small_fs::<Simulated>(SimPool::new(1 << 20), HeapMemory::new, 4, kinds, Some(8));
    let file = opened_in(&fs, "f");
    assert!(process(&file, 1).tries(EXCLUSIVE, bytes(0, 9)));
    let refused = (2..).find_map(|number| {
        let byte = bytes(20 + 2 * number, 20 + 2 * number);
        let done = process(&file, number).lock(SHARED, byte, LockWait::NO);
        done.err().map(|error| (number, error))
    });
    let (number, error) = refused.unwrap();
    assert!(matches!(error, Error::NoLocks), "{error}");
    assert_eq!(arena_bytes(0), fs.core.map.lock_bytes);
    assert_eq!(number, 65, "the smallest table has 64 records");
    // It would become two.
    let halves = file.unlock_range(LockOwner::Process(1), bytes(4, 5));
    assert!(matches!(halves, Err(Error::NoLocks)));
    let found = file.find_lock(LockOwner::Process(0), SHARED, bytes(5, 5));
    assert_eq!(found.unwrap().map(|lock| lock.range), Some(bytes(0, 9)));
    // What needs no more is possible.
    process(&file, 1).unlocks(bytes(5, 9));
    process(&file, 1).unlocks(LockRange::ALL);
    assert!(process(&file, 1).tries(SHARED, bytes(0, 9)));
}
