//! Copying logs, and dissolving removed directories (NOVA's collection).
//!
//! Runs under the background's lease. It copies a run of blocks before the tail's block. Only
//! existing names are copied, and those records of removed names whose names were added before the
//! run. One word puts the copies in place of the run. If there is space, the run is all blocks
//! before the tail's, so that nothing of removed names is left. Else it is a run that gains a block
//! with the available blocks.

use std::ops::Range;

use vellum_layout::{
    BLOCK_BYTES, Inode, LogExtentHead, LogPosition, NameRecord, RECORD_MAX_BYTES, RecordKind,
    Recorded, SLOTS_PER_BLOCK,
};
use vellum_media::{Memories, Memory, Persistent};
use zerocopy::IntoBytes;

use super::Name;
use super::log::{Names, runs_in_a_circle};
use super::radix::Leaf;
use crate::core::Core;
use crate::core::cachelet::{Cachelet, field};
use crate::core::slots::Op;
use crate::error::{Error, Location, Result};
use crate::sites;

/// A record that may have to be copied.
struct Kept {
    record: NameRecord,
    name: Vec<u8>,
}

impl Kept {
    fn went(&self) -> bool {
        self.record.kind() == Some(RecordKind::Went)
    }

    fn is_gone(&self) -> bool {
        self.record.kind() == Some(RecordKind::Gone)
    }
}

/// A block before that of the tail.
struct Front {
    slot: u64,
    base_cookie: u64,
    /// Its records of existing names, and its records of removals.
    kept: Vec<Kept>,
    /// Number of its records of names that no longer exist.
    dead: u64,
}

/// Copies the log of `dir` without what is no longer needed, if that makes it shorter.
pub(super) fn recycle<M: Memories>(core: &Core<M>, dir: Cachelet) -> Result<()> {
    loop {
        let op = core.op_step();
        let names = op.names(dir)?;
        let fronts = read_fronts(core, &names)?;
        let gained = shorten(&op, &names, &fronts)?;
        let nodes = core.radix_prune(dir);
        drop(names);
        drop(op);
        if gained.is_empty() && nodes.is_empty() {
            return Ok(());
        }
        core.wait_for_readers();
        let goes_on = !gained.is_empty() && gained.len() < fronts.len();
        for slot in gained {
            core.free_slots(slot, SLOTS_PER_BLOCK);
        }
        nodes.into_iter().for_each(|node| core.free_node(node));
        if !goes_on {
            return Ok(());
        }
    }
}

/// Reads the blocks before that of the tail.
fn read_fronts<M: Memories>(core: &Core<M>, names: &Names<'_, '_, M>) -> Result<Vec<Front>> {
    let (mut fronts, mut slot) = (Vec::new(), core.log_root(names.owner().slot));
    while slot != 0 && slot != names.tail().slot() && names.tail() != LogPosition::NONE {
        let block = core.read_block(slot, names.owner())?;
        let mut front = Front {
            slot,
            base_cookie: block.head.base_cookie,
            kept: Vec::new(),
            dead: 0,
        };
        for found in block.records(names.owner(), names.tail()).unsealed() {
            let found = found.map_err(|unsound| {
                let place = Location::Slot(unsound.place.slot());
                Error::damaged("record of a directory log", place)
            })?;
            let is_needed = match found.record.kind() {
                Some(RecordKind::Went | RecordKind::Gone) => true,
                _ => is_there(core, names.dir, &found),
            };
            if is_needed {
                front.kept.push(Kept {
                    record: found.record,
                    name: found.name.to_vec(),
                });
            } else {
                front.dead += 1;
            }
        }
        fronts.push(front);
        slot = block.head.next;
        if fronts.len() as u64 > core.geometry.meta_slots() {
            return Err(runs_in_a_circle(names.owner().slot));
        }
    }
    let latest_ns = latest_at_the_end(core, names)?;
    keep_latest_gone(&mut fronts, latest_ns);
    Ok(fronts)
}

/// Keeps, of the names that were removed in place, only the last one, and only if no later record
/// holds the time of the directory's last change.
fn keep_latest_gone(fronts: &mut [Front], latest_ns: i64) {
    let gone = fronts.iter().flat_map(|front| &front.kept);
    let gone = gone.filter(|kept| kept.is_gone());
    let last_ns = gone.map(|kept| kept.record.ns()).max();
    let last_ns = last_ns.filter(|&ns| ns > latest_ns);
    for front in fronts {
        let before = front.kept.len();
        let is_needed = |kept: &Kept| !kept.is_gone() || Some(kept.record.ns()) == last_ns;
        front.kept.retain(is_needed);
        front.dead += (before - front.kept.len()) as u64;
    }
}

fn is_there<M: Memories>(core: &Core<M>, dir: Cachelet, found: &Recorded<'_>) -> bool {
    let name = Name {
        bytes: found.name,
        hash: found.record.name_hash,
    };
    let leaf = core.radix_find(dir, name);
    leaf.is_some_and(|(_, leaf)| leaf.place() == found.place)
}

/// The latest time in a record of the tail's block, in nanoseconds since 1970.
fn latest_at_the_end<M: Memories>(core: &Core<M>, names: &Names<'_, '_, M>) -> Result<i64> {
    if names.tail() == LogPosition::NONE {
        return Ok(0);
    }
    let block = core.read_block(names.tail().slot(), names.owner())?;
    let records = block.records(names.owner(), names.tail()).unsealed();
    Ok(records
        .flatten()
        .map(|found| found.record.ns())
        .max()
        .unwrap_or(0))
}

/// Records packed into blocks one behind the other, as many as fit.
#[derive(Default)]
struct Packing {
    blocks: usize,
    /// Bytes left in the last block.
    room: u64,
}

impl Packing {
    /// Adds a record. Returns whether it begins another block.
    fn add(&mut self, kept: &Kept) -> bool {
        let bytes = NameRecord::bytes_for(kept.name.len());
        let begins = bytes > self.room;
        if begins {
            self.blocks += 1;
            self.room = NameRecord::LIMIT - NameRecord::FIRST;
        }
        self.room -= bytes;
        begins
    }
}

/// The records of this block that a copy of a run of blocks beginning with `first` needs.
fn to_copy<'f>(front: &'f Front, first: &Front) -> impl Iterator<Item = &'f Kept> {
    let first = first.base_cookie;
    let kept = front.kept.iter();
    kept.filter(move |kept| !kept.went() || kept.record.cookie < first)
}

/// The records that a copy of these blocks needs, divided into blocks.
fn pack(run: &[Front]) -> Vec<Vec<&Kept>> {
    let (mut blocks, mut packing) = (Vec::new(), Packing::default());
    for kept in run.iter().flat_map(|front| to_copy(front, &run[0])) {
        if packing.add(kept) {
            blocks.push(Vec::new());
        }
        if let Some(block) = blocks.last_mut() {
            block.push(kept);
        }
    }
    blocks
}

/// The first run of blocks that becomes shorter if `blocks` new ones can hold its copy. The run is
/// as long as possible.
fn run_that_gains(fronts: &[Front], blocks: usize) -> Option<Range<usize>> {
    (0..fronts.len()).find_map(|start| {
        let run = &fronts[start..];
        let mut packing = Packing::default();
        let packed = run.iter().map(|front| {
            to_copy(front, &run[0]).for_each(|kept| {
                packing.add(kept);
            });
            packing.blocks
        });
        let fitting = packed.take_while(|&packed| packed <= blocks);
        let (last, packed) = fitting.enumerate().last()?;
        (packed <= last).then_some(start..start + last + 1)
    })
}

/// Copies all blocks before the tail's, or as many as there is space for, if that frees some.
/// Returns the blocks that the log no longer contains.
fn shorten<M: Memories>(
    op: &Op<'_, M>,
    names: &Names<'_, '_, M>,
    fronts: &[Front],
) -> Result<Vec<u64>> {
    let core = op.core;
    let mut blocks = Vec::new();
    let needed = pack(fronts).len();
    while blocks.len() < needed
        && let Ok(slot) = op.alloc_any_block()
    {
        blocks.push(slot);
    }
    let run = if blocks.len() == needed {
        Some(0..fronts.len()).filter(|_| needed < fronts.len())
    } else {
        run_that_gains(fronts, blocks.len())
    };
    let run = run.unwrap_or(0..0);
    let packed = pack(&fronts[run.clone()]);
    for spare in blocks.drain(packed.len()..) {
        core.free_slots(spare, SLOTS_PER_BLOCK);
    }
    if !run.is_empty() {
        copy(core, names, (fronts, run.clone()), (&packed, &blocks))?;
    }
    Ok(fronts[run].iter().map(|front| front.slot).collect())
}

/// Puts `blocks`, with the records packed for them, in place of a run.
fn copy<M: Memories>(
    core: &Core<M>,
    names: &Names<'_, '_, M>,
    (fronts, run): (&[Front], Range<usize>),
    (packed, blocks): (&[Vec<&Kept>], &[u64]),
) -> Result<()> {
    let rest = core
        .records_head(fronts[run.end - 1].slot, names.owner())?
        .next;
    let mut base_cookie = fronts[run.start].base_cookie;
    let mut leaves = Vec::new();
    for (i, kept) in packed.iter().enumerate() {
        let next = blocks.get(i + 1).copied().unwrap_or(rest);
        let mut head = LogExtentHead::of_records(blocks[i], names.owner(), base_cookie);
        head.next = next;
        write_block(core, names, (blocks[i], &head), kept, &mut leaves);
        let last = kept.iter().rfind(|kept| !kept.went());
        base_cookie = last.map_or(base_cookie, |kept| kept.record.cookie + 1);
    }
    core.pool.fence(sites::TREE_COPY_DURABLE);
    let link = match run.start.checked_sub(1) {
        Some(before) => core.geometry.slot_at(fronts[before].slot) + LogExtentHead::NEXT,
        None => core.inode_at(names.dir) + Inode::ROOT,
    };
    core.set_word(link, blocks.first().copied().unwrap_or(rest));
    core.pool.flush(sites::TREE_COPY_LINK, link, 8);
    core.pool.fence(sites::TREE_COPY_LINK_DURABLE);
    for (name, leaf) in leaves {
        if let Some((at, _)) = core.radix_find(names.dir, name) {
            core.radix_set(at, leaf);
        }
    }
    let generation = core.cachelet_at(names.dir, field::DEAD);
    core.arena.fetch_add(generation, 1 << 32);
    let went = |front: &Front| front.kept.iter().filter(|kept| kept.went()).count() as u64;
    let before: u64 = fronts[run]
        .iter()
        .map(|front| front.dead + went(front))
        .sum();
    let kept = packed.iter().flatten().filter(|kept| kept.went()).count() as u64;
    core.lower_dead(names.dir, before - kept);
    Ok(())
}

/// Writes a block of records. Past the cache, not fenced.
fn write_block<'k, M: Memories>(
    core: &Core<M>,
    names: &Names<'_, '_, M>,
    (slot, head): (u64, &LogExtentHead),
    kept: &[&'k Kept],
    leaves: &mut Vec<(Name<'k>, Leaf)>,
) {
    let mut bytes = [0; BLOCK_BYTES as usize];
    bytes[..size_of::<LogExtentHead>()].copy_from_slice(head.as_bytes());
    let mut at = NameRecord::FIRST as usize;
    for kept in kept {
        let place = LogPosition::new(slot, at as u64);
        let mut buffer = [0; RECORD_MAX_BYTES];
        let used = kept
            .record
            .encode(&kept.name, place, names.owner(), &mut buffer);
        bytes[at..at + used].copy_from_slice(&buffer[..used]);
        at += used;
        if kept.record.kind() == Some(RecordKind::Came) {
            let hash = kept.record.name_hash;
            let bytes = &kept.name;
            leaves.push((Name { bytes, hash }, Leaf::new(place, hash)));
        }
    }
    // Including the word of zeros behind the records.
    core.pool.write_through(
        sites::TREE_COPY_BLOCK,
        core.geometry.slot_at(slot),
        &bytes[..at + 8],
    );
}

/// Frees everything that a removed directory holds: its log and its tree. Its inode is durably free
/// and nobody has it open.
pub(super) fn dissolve<M: Memories>(core: &Core<M>, dir: Cachelet) -> Result<()> {
    let owner = core.log_owner(core.ino(dir));
    let mut blocks = Vec::new();
    core.for_each_block(core.log_root(owner.slot), owner, &mut |block| {
        blocks.push(block.slot);
        Ok(())
    })?;
    let nodes = core.radix_nodes(core.radix_top(dir));
    core.wait_for_readers();
    for slot in blocks {
        core.free_slots(slot, SLOTS_PER_BLOCK);
    }
    nodes.into_iter().for_each(|node| core.free_node(node));
    Ok(())
}
