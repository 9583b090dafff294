//! Locks on files under schedules at random, and the step by which a waiting request is given its
//! lock under every order of accesses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use vellum_media::Memory;

use super::kernels::{Job, Stage, explore as explore_orders};
use super::loom_memory::{Loomed, Swaps};
use super::shuttle_memory::Shuttled;
use super::world::{World, explore, together};
use crate::core::cachelet::{Cachelet, field};
use crate::error::{Error, Result};
use crate::fs::{
    Cred, Handle, LockCancel, LockKind, LockOwner, LockRange, LockWait, Node, OpenOptions,
};

const EXCLUSIVE: LockKind = LockKind::Exclusive;

/// Handles of files that the processes 1, 2, ... share.
type Files = Arc<Vec<Handle<Shuttled>>>;

fn files(world: &World, count: usize) -> Files {
    let file = |number| {
        let node = world.file(&format!("/{number}")).unwrap();
        world.open(&Cred::root(), &node)
    };
    Arc::new((0..count).map(file).collect())
}

fn lock(file: &Handle<Shuttled>, process: u64, range: LockRange) -> Result<()> {
    let owner = LockOwner::Process(process);
    file.lock_range(owner, EXCLUSIVE, range, LockWait::FOREVER)
}

fn unlock(file: &Handle<Shuttled>, process: u64) {
    let owner = LockOwner::Process(process);
    file.unlock_range(owner, LockRange::ALL).unwrap();
}

/// A wake-up that gets lost leaves a thread asleep for ever, which the scheduler notices.
#[test]
fn everybody_gets_an_exclusive_lock_alone() {
    explore(200, |world| {
        let (files, taken) = (files(&world, 1), Arc::new(AtomicBool::new(false)));
        let job = |process: u64| {
            let (files, taken) = (Arc::clone(&files), Arc::clone(&taken));
            move |world: World| {
                lock(&files[0], process, LockRange::ALL).unwrap();
                assert!(!taken.swap(true, Ordering::SeqCst), "two have the lock");
                world.glance("/0");
                taken.store(false, Ordering::SeqCst);
                unlock(&files[0], process);
            }
        };
        together!(world, job(1), job(2), job(3));
    });
}

/// Process `n` holds file `n` and wants the next one: somebody is refused, and all others end.
fn cycle(world: &World, count: usize) -> usize {
    let files = files(world, count);
    let job = |number: usize| -> Box<dyn FnOnce(World) -> bool + Send> {
        let files = Arc::clone(&files);
        Box::new(move |_| {
            let (process, own) = (number as u64, &files[number]);
            let next = &files[(number + 1) % files.len()];
            lock(own, process, LockRange::ALL).unwrap();
            let done = lock(next, process, LockRange::ALL);
            unlock(own, process);
            unlock(next, process);
            match done {
                Ok(()) => false,
                Err(Error::LockDeadlock) => true,
                Err(error) => panic!("{error}"),
            }
        })
    };
    let refused = world.together((0..count).map(job).collect());
    refused.into_iter().filter(|&is_refused| is_refused).count()
}

#[test]
fn two_processes_do_not_wait_for_each_other() {
    explore(200, |world| assert!(cycle(&world, 2) <= 1));
}

#[test]
fn three_processes_do_not_wait_for_each_other() {
    explore(200, |world| assert!(cycle(&world, 3) <= 1));
}

#[test]
fn a_cancelled_wait_ends_and_a_granted_lock_stays() {
    explore(200, |world| {
        let files = files(&world, 1);
        lock(&files[0], 1, LockRange::ALL).unwrap();
        let cancel = Arc::new(LockCancel::new());
        let (waits, holds) = (Arc::clone(&files), Arc::clone(&files));
        let (named, used) = (Arc::clone(&cancel), cancel);
        let granted = together!(
            world,
            move |_: World| {
                let wait = LockWait::FOREVER.cancelled_by(&named);
                let owner = LockOwner::Process(2);
                match waits[0].lock_range(owner, EXCLUSIVE, LockRange::ALL, wait) {
                    Ok(()) => true,
                    Err(Error::Interrupted) => false,
                    Err(error) => panic!("{error}"),
                }
            },
            move |world: World| {
                world.fs.cancel_lock_waits(&used);
                true
            },
            move |_: World| {
                unlock(&holds[0], 1);
                true
            },
        );
        let stranger = LockOwner::Process(3);
        let found = files[0].find_lock(stranger, EXCLUSIVE, LockRange::ALL);
        assert_eq!(found.unwrap().is_some(), granted[0]);
    });
}

#[test]
fn closing_a_handle_wakes_those_who_wait_for_its_lock() {
    explore(200, |world| {
        let node = world.file("/f").unwrap();
        let open = || world.open(&Cred::root(), &node);
        let (holder, waiting, other) = (open(), open(), open());
        holder.lock().unwrap();
        together!(
            world,
            move |_: World| drop(holder),
            move |_: World| waiting.lock().unwrap(),
            move |_: World| other.lock_shared().unwrap(),
        );
    });
}

/// A word that a lock protects.
fn word(stage: &Stage) -> u64 {
    stage.core().cachelet_at(Cachelet(60), field::SIZE)
}

fn handle(stage: &Stage, file: &Node<Loomed>) -> Handle<Loomed> {
    let options = OpenOptions::new().read(true).write(true);
    let handle = stage.fs().open_node(&Cred::root(), file, &options).unwrap();
    // Its number is allocated here.
    handle.lock_shared().unwrap();
    handle.unlock().unwrap();
    handle
}

/// Whoever gets a lock sees what the one before it did, whether it slept or came later.
#[test]
fn a_given_lock_shows_what_was_done_under_it() {
    explore_orders(2, Swaps::Plain, |stage| {
        let file = stage.make("f").unwrap();
        let (holder, waiting) = (handle(&stage, &file), handle(&stage, &file));
        holder.lock().unwrap();
        let releases: Job = Box::new(move |stage: Stage| {
            crate::core::slots::prefer_thread_slot(0);
            let arena = &stage.core().arena;
            arena.store(word(&stage), 1, Ordering::Relaxed);
            holder.unlock().unwrap();
        });
        let waits: Job = Box::new(move |stage: Stage| {
            crate::core::slots::prefer_thread_slot(1);
            waiting.lock().unwrap();
            let arena = &stage.core().arena;
            assert_eq!(arena.load(word(&stage), Ordering::Relaxed), 1);
        });
        stage.together(vec![releases, waits]);
    });
}
