//! Compares the tree of a mount with the trees that the records allow.

use crate::kernel::Kernel;
use crate::kernel::agreement::told_mode;
use crate::record::Record;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use vellum_model::{Cred, Ino, Model, Op, Snapshot, SnapshotBody, Step, diff};

/// Bytes that are either all old or all new.
const WORD_BYTES: usize = 8;
/// A block of zeros, which snapshots leave out.
static ZEROS: [u8; vellum_model::BLOCK_SIZE] = [0; vellum_model::BLOCK_SIZE];

/// Compares, writes the fate of operations in flight to the records, and reports how much was
/// compared.
pub(crate) fn verify(mount: &Path, records: &[PathBuf]) -> Result<String, String> {
    let mut records: Vec<Record> = (0..)
        .zip(records)
        .map(|(worker, path)| Record::open(path, worker))
        .collect::<Result<_, _>>()?;
    std::thread::scope(|scope| {
        let compared = scope.spawn(|| compare(mount, &mut records)).join();
        compared.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn compare(mount: &Path, records: &mut [Record]) -> Result<String, String> {
    let entered = Kernel::enter(mount);
    let mut kernel = entered.map_err(|error| format!("{}: {error}", mount.display()))?;
    let found = told(kernel.snapshot());
    let known = |path: &[u8]| {
        matches!(path, b"/" | b"/shared") || (0..records.len()).any(|worker| is_of(worker, path))
    };
    if let Some(path) = found.keys().find(|path| !known(path)) {
        return Err(format!("{} belongs to no worker", path.escape_ascii()));
    }
    for (worker, record) in records.iter_mut().enumerate() {
        let found = part(&found, worker);
        let failed = |difference| format!("worker {worker}: {difference}");
        if record.pending.is_none() {
            same(&part(&tree(&record.model), worker), &found).map_err(failed)?;
            continue;
        }
        let happened = judge(record, worker, &found).map_err(failed)?;
        settle(record, happened, &mut kernel).map_err(failed)?;
    }
    let sum = |count: fn(&Record) -> u64| records.iter().map(count).sum::<u64>();
    Ok(format!(
        "{} operations had returned; of {} in flight {} had happened; {} names are correct",
        sum(|record| record.returned),
        sum(|record| record.cut),
        sum(|record| record.happened),
        found.len()
    ))
}

/// The tree of a model, as far as a mount shows it.
fn tree(model: &Model) -> Snapshot {
    told(model.snapshot(false))
}

fn told(mut tree: Snapshot) -> Snapshot {
    for node in tree.values_mut() {
        node.mode = told_mode(node.mode);
    }
    tree
}

/// Whether a path belongs to this worker.
fn is_of(worker: usize, path: &[u8]) -> bool {
    let own = format!("/w{worker}");
    let below = format!("/w{worker}/");
    let shared = format!("/shared/w{worker}-");
    path == own.as_bytes()
        || path.starts_with(below.as_bytes())
        || path.starts_with(shared.as_bytes())
}

fn part(tree: &Snapshot, worker: usize) -> Snapshot {
    let own = tree.iter().filter(|(path, _)| is_of(worker, path));
    own.map(|(path, node)| (path.clone(), node.clone()))
        .collect()
}

fn same(expected: &Snapshot, found: &Snapshot) -> Result<(), String> {
    let differences = diff(expected, found);
    if differences.is_empty() {
        Ok(())
    } else {
        Err(format!("expected / found:\n{}", differences.join("\n")))
    }
}

/// Whether the step in flight happened, if the tree is one that it may leave.
fn judge(record: &Record, worker: usize, found: &Snapshot) -> Result<bool, String> {
    let before = part(&tree(&record.model), worker);
    let after = part(&tree(&record.after()), worker);
    if before == *found {
        return Ok(false);
    }
    if after == *found {
        return Ok(true);
    }
    let step = record.pending.as_ref().ok_or("nothing is in flight")?;
    if changes_bytes(&step.op) && between(&before, &after, found) {
        return Ok(false);
    }
    Err(format!(
        "in flight: {step}\nnot as before it, {}\nnor as after it, {}",
        same(&before, found).err().unwrap_or_default(),
        same(&after, found).err().unwrap_or_default()
    ))
}

/// Whether an operation writes or allocates, which may happen in part.
fn changes_bytes(op: &Op) -> bool {
    matches!(
        op,
        Op::Write { .. }
            | Op::Append { .. }
            | Op::Fallocate { .. }
            | Op::WriteSlot { .. }
            | Op::FallocateSlot { .. }
    )
}

/// Whether the trees differ only in contents that are old or new, word by word.
fn between(before: &Snapshot, after: &Snapshot, found: &Snapshot) -> bool {
    let same_names = before.keys().eq(found.keys());
    same_names
        && found.iter().all(|(path, node)| {
            let (old, new) = (&before[path], &after[path]);
            let mut without_body = old.clone();
            without_body.body = node.body.clone();
            *node == without_body && is_mixture(&old.body, &new.body, &node.body)
        })
}

fn is_mixture(old: &SnapshotBody, new: &SnapshotBody, found: &SnapshotBody) -> bool {
    use SnapshotBody::File;
    let (
        File {
            size: old_size,
            blocks: old,
        },
        File {
            size: new_size,
            blocks: new,
        },
        File { size, blocks },
    ) = (old, new, found)
    else {
        return old == found;
    };
    // The kernel splits a long write at page boundaries. A grown size covers everything that was
    // written.
    if size > old_size {
        let ends_with_page = size.is_multiple_of(vellum_model::BLOCK_SIZE as u64);
        let below = new.range(..size.div_ceil(vellum_model::BLOCK_SIZE as u64));
        return size <= new_size && (size == new_size || ends_with_page) && below.eq(blocks);
    }
    let numbers: BTreeSet<u64> = old
        .keys()
        .chain(new.keys())
        .chain(blocks.keys())
        .copied()
        .collect();
    size == old_size
        && numbers.into_iter().all(|number| {
            // Bytes of the write beyond the old size are invisible, even in the word that contains
            // the old end.
            let block = |blocks: &BTreeMap<u64, Vec<u8>>| {
                let mut block = blocks.get(&number).cloned().unwrap_or(ZEROS.to_vec());
                let below = size.saturating_sub(number * block.len() as u64);
                let from = block.len().min(below as usize);
                block[from..].fill(0);
                block
            };
            let (old, new, found) = (block(old), block(new), block(blocks));
            let words = found.chunks(WORD_BYTES);
            let (mut old, mut new) = (old.chunks(WORD_BYTES), new.chunks(WORD_BYTES));
            words.into_iter().all(|word| {
                let (old, new) = (old.next(), new.next());
                Some(word) == old || Some(word) == new
            })
        })
}

/// Records the fate of the step in flight. A file that it may have changed in part is emptied,
/// because its blocks are unknown.
fn settle(record: &mut Record, happened: bool, kernel: &mut Kernel) -> Result<(), String> {
    let target = record.pending.as_ref().and_then(|step| {
        let ino = target(&record.model, &step.op)?;
        let tree = record.model.snapshot(false);
        let names = |path: &Vec<u8>| {
            let named = record
                .model
                .resolve(Ino::ROOT, path, false, &Cred::superuser());
            named == Ok(ino)
        };
        tree.into_keys().find(names)
    });
    record.killed(happened);
    let Some(path) = target else {
        return Ok(());
    };
    let step = Step {
        cred: Cred::superuser(),
        op: Op::Truncate { path, size: 0 },
    };
    record.ask(&step);
    let found = kernel.apply(&step.op, &step.cred);
    if record.finish() != Some(found.clone()) {
        return Err(format!("{step}: {found}"));
    }
    record.returned();
    Ok(())
}

/// The file whose bytes an operation changes.
fn target(model: &Model, op: &Op) -> Option<Ino> {
    match op {
        Op::Write { path, .. } | Op::Append { path, .. } | Op::Fallocate { path, .. } => {
            let file = model.resolve(Ino::ROOT, path, true, &Cred::superuser());
            file.ok().filter(|&ino| model.content(ino).is_ok())
        }
        Op::WriteSlot { slot, .. } | Op::FallocateSlot { slot, .. } => {
            let handle = model.handle_in(*slot)?;
            let attr = model.handle_attr(handle).ok()?;
            model.content(attr.ino).is_ok().then_some(attr.ino)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of one block in which each byte below `size` is `byte`.
    fn file(size: u64, byte: u8) -> SnapshotBody {
        let mut block = ZEROS.to_vec();
        block[..size as usize].fill(byte);
        SnapshotBody::File {
            size,
            blocks: [(0, block)].into(),
        }
    }

    #[test]
    fn the_word_with_the_old_end_may_be_new_below_it() {
        let (old, new) = (file(2036, 1), file(3000, 2));
        assert!(is_mixture(&old, &new, &file(2036, 2)));
        assert!(is_mixture(&old, &new, &old));
        assert!(!is_mixture(&old, &new, &file(2036, 3)));
    }

    #[test]
    fn a_word_is_old_or_new_as_one() {
        let (old, new) = (file(4096, 1), file(4096, 2));
        let torn = |at: usize| {
            let SnapshotBody::File { size, mut blocks } = file(4096, 1) else {
                unreachable!("it is a file")
            };
            blocks.entry(0).and_modify(|block| block[..at].fill(2));
            SnapshotBody::File { size, blocks }
        };
        assert!(is_mixture(&old, &new, &torn(16)));
        assert!(!is_mixture(&old, &new, &torn(12)));
    }
}
