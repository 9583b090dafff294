//! Works in a mount until it is dead.

use crate::kernel::Kernel;
use crate::kernel::agreement::agree;
use crate::record::Record;
use crate::work::Work;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use vellum_model::{Block, Cred, Ino, Model, Op};

/// Works with one thread per record, and reports how many operations returned. Prints `working`
/// once all threads are in the mount.
pub(crate) fn load(mount: &Path, records: &[PathBuf], seed: u64) -> Result<String, String> {
    let entered = Barrier::new(records.len());
    let returned: Result<Vec<u64>, String> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..)
            .zip(records)
            .map(|(worker, path)| {
                let entered = &entered;
                scope.spawn(move || work(mount, path, worker, seed, entered))
            })
            .collect();
        let ends = workers.into_iter().map(|worker| {
            let end = worker.join();
            end.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        ends.collect()
    });
    let returned: u64 = returned?.iter().sum();
    Ok(format!("{returned} operations"))
}

/// The work of one thread; returns how many operations returned.
fn work(
    mount: &Path,
    path: &Path,
    worker: usize,
    seed: u64,
    entered: &Barrier,
) -> Result<u64, String> {
    let record = Record::open(path, worker);
    let kernel = Kernel::enter(mount);
    if entered.wait().is_leader() {
        println!("working");
    }
    let (mut record, mut kernel) = (record?, kernel.map_err(|error| error.to_string())?);
    let before = record.returned;
    let mut work = Work::new(worker, seed);
    loop {
        let step = work.next(&record.model);
        let preallocated = is_preallocated(&record.model, &step.op);
        record.ask(&step);
        let found = kernel.apply(&step.op, &step.cred);
        let expected = record.finish().expect("a step was begun");
        if agree(&step.op, &expected, &found, preallocated) {
            record.returned();
        } else if is_dead() {
            return Ok(record.returned - before);
        } else {
            let path = path.display();
            return Err(format!(
                "{path}: {step}\n  model: {expected}\n  mount: {found}"
            ));
        }
    }
}

/// Whether the mount at the thread's root no longer answers. Attributes may be cached, but counts
/// of blocks are not.
fn is_dead() -> bool {
    rustix::fs::statvfs("/").is_err()
}

/// Whether the file of a seek has unwritten blocks.
fn is_preallocated(model: &Model, op: &Op) -> bool {
    let (Op::SeekData { path, .. } | Op::SeekHole { path, .. }) = op else {
        return false;
    };
    let content = model
        .resolve(Ino::ROOT, path, true, &Cred::superuser())
        .and_then(|ino| model.content(ino));
    content.is_ok_and(|content| content.blocks().values().any(|b| *b == Block::Unwritten))
}
