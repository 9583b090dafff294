//! Superblock, state block, chunk table: needed before everything else.

use std::ops::Range;

use vellum_layout::{
    BLOCK_BYTES, ChunkKind, ChunkWord, Geometry, PoolPhase, PoolState, StateWord, Superblock,
    SuperblockError, TablePlan, last_copy_before_datasets,
};
use zerocopy::IntoBytes;

use crate::image::{View, for_each_word};
use crate::report::{Class, Location, Sink};

/// Copies of the superblock from an unfinished rewrite.
#[derive(Default)]
pub(crate) struct Unfinished {
    /// Copies older than the current one: name and sequence.
    stale: Vec<(&'static str, u64)>,
    /// Copies left by an interrupted change of the label, or of the table of datasets: name.
    cut: Vec<&'static str>,
}

impl Unfinished {
    /// The copies are rewritten one after the other, so a crash leaves older ones. The table
    /// changes while the pool is closed.
    pub(crate) fn judge(&self, superblock: &Superblock, is_strict: bool, sink: &mut Sink) {
        for &(name, sequence) in &self.stale {
            let counts = superblock.sequence;
            let detail = format_args!("has sequence {sequence} but another has {counts}");
            sink.residue(Class::SuperblockCopy, Location::Superblock(name), detail);
        }
        for &name in &self.cut {
            let place = Location::Superblock(name);
            let detail = "was left by an interrupted change of the superblock";
            if is_strict {
                sink.damage(Class::SuperblockCopy, place, detail);
            } else {
                sink.left(Class::SuperblockCopy, place, detail);
            }
        }
    }
}

/// The current superblock, if the image has one, and the copies from an unfinished rewrite.
pub(crate) fn superblock(view: &View, sink: &mut Sink) -> Option<(Superblock, Unfinished)> {
    let last = last_copy_at(view);
    let mut copies = vec![("first copy", 0), ("second copy", BLOCK_BYTES)];
    if last > BLOCK_BYTES {
        copies.push(("last copy", last));
    }
    let decoded: Vec<_> = copies
        .iter()
        .map(|&(name, at)| (name, at, read_copy(view, at)))
        .collect();
    let chosen = Superblock::choose(decoded.iter().map(|(_, _, copy)| copy.clone()));
    let best = match chosen.and_then(|best| best.check_readable().map(|()| best)) {
        Ok(best) => best,
        Err(reason) => {
            sink.incomplete = true;
            sink.damage(Class::NotAPool, Location::Superblock("every copy"), reason);
            return None;
        }
    };
    let geometry = best.geometry();
    let data_end = match geometry.external {
        Some(_) => geometry.data_at + geometry.data_bytes(),
        None => best.pool_bytes,
    };
    let truncated = best.pool_bytes > view.own_len() || data_end > view.len();
    if !truncated && let Some(cut) = left_by_cut(view, &best) {
        let unfinished = Unfinished {
            cut,
            ..Unfinished::default()
        };
        return Some((best, unfinished));
    }
    let mut stale = Vec::new();
    for (name, at, copy) in decoded {
        // The last copy lies where the pool ends, which need not be where the image ends.
        if at > BLOCK_BYTES && at != best.last_copy_at {
            continue;
        }
        stale.extend(judge_copy(name, copy, &best, sink));
    }
    if best.last_copy_at != last && !truncated {
        let copy = read_copy(view, best.last_copy_at);
        stale.extend(judge_copy("last copy", copy, &best, sink));
    }
    if truncated {
        sink.incomplete = true;
        let error = SuperblockError::Truncated {
            expected: data_end,
            actual: view.len(),
        };
        sink.damage(
            Class::Geometry,
            Location::Superblock("counting copy"),
            error,
        );
        return None;
    }
    let unfinished = Unfinished {
        stale,
        ..Unfinished::default()
    };
    Some((best, unfinished))
}

/// The copies that differ, if an interrupted change of the table explains them.
fn left_by_cut(view: &View, best: &Superblock) -> Option<Vec<&'static str>> {
    let block = |at| view.bytes::<{ BLOCK_BYTES as usize }>(at);
    let copies = [0, BLOCK_BYTES, best.last_copy_at].map(block);
    let found = copies.each_ref().map(|copy| &copy[..]);
    let named = ["first copy", "second copy", "last copy"]
        .into_iter()
        .zip(found);
    let differing = named.filter(|(_, copy)| *copy != best.as_bytes());
    best.is_left_by_cut(found)
        .then(|| differing.map(|(name, _)| name).collect())
}

/// The current copy, even if the pool is incomplete.
pub(crate) fn counting(view: &View) -> Result<Superblock, SuperblockError> {
    let copies = [0, BLOCK_BYTES, last_copy_at(view)];
    let found = Superblock::choose(copies.map(|at| read_copy(view, at)))?;
    found.check_readable().map(|()| found)
}

/// Where the last copy of the superblock is searched. Behind a pool there may be blocks of files or
/// other datasets.
fn last_copy_at(view: &View) -> u64 {
    let own_last = (view.own_len() / BLOCK_BYTES).saturating_sub(1) * BLOCK_BYTES;
    match Superblock::choose([0, BLOCK_BYTES].map(|at| read_copy(view, at))) {
        Ok(copy) => copy.last_copy_at.min(own_last),
        Err(_) if read_copy(view, own_last).is_ok() => own_last,
        Err(_) => {
            let found = last_copy_before_datasets(view.own_len(), |at| Some(view.bytes(at)));
            found.map_or(own_last, |copy| copy.last_copy_at)
        }
    }
}

fn read_copy(view: &View, at: u64) -> Result<Superblock, SuperblockError> {
    if at
        .checked_add(BLOCK_BYTES)
        .is_none_or(|end| end > view.len())
    {
        return Err(SuperblockError::NotVellum);
    }
    let copy = Superblock::unseal(&view.bytes::<{ BLOCK_BYTES as usize }>(at))?;
    // The copy of a dataset behind the pool does not count.
    match at > BLOCK_BYTES && copy.last_copy_at != at {
        true => Err(SuperblockError::NotVellum),
        false => Ok(copy),
    }
}

fn judge_copy(
    name: &'static str,
    copy: Result<Superblock, SuperblockError>,
    best: &Superblock,
    sink: &mut Sink,
) -> Option<(&'static str, u64)> {
    let place = Location::Superblock(name);
    match copy {
        Err(SuperblockError::Damaged) => {
            sink.damage(Class::SuperblockCopy, place, "its checksum does not fit");
        }
        Err(error) => sink.damage(Class::SuperblockCopy, place, error),
        Ok(copy) if copy.uuid != best.uuid => {
            sink.damage(Class::SuperblockCopy, place, "is of another pool");
        }
        Ok(copy) if copy.sequence != best.sequence => {
            return Some((name, copy.sequence));
        }
        Ok(copy) if copy.as_bytes() != best.as_bytes() => {
            sink.damage(Class::SuperblockCopy, place, "differs at the same sequence");
        }
        Ok(_) => {}
    }
    None
}

/// Phase and epoch by the state word.
pub(crate) fn state(view: &View, geometry: &Geometry, sink: &mut Sink) -> Option<(PoolPhase, u32)> {
    let word = StateWord(view.word(geometry.state_at + PoolState::WORD));
    let state = word.get();
    if is_converting(view, geometry) {
        let detail = "a conversion was not finished: `vellum convert` finishes it";
        sink.damage(Class::StateWord, Location::State, detail);
    } else if word.repair().is_some() {
        let detail = "a repair was not finished; the pool counts as not closed";
        sink.damage(Class::StateWord, Location::State, detail);
    } else if state.is_none() {
        let detail = format_args!(
            "{:#x} is not a valid state; the pool counts as not closed",
            word.0
        );
        sink.damage(Class::StateWord, Location::State, detail);
    }
    state
}

/// Whether a conversion was decided and not finished.
pub(crate) fn is_converting(view: &View, geometry: &Geometry) -> bool {
    let word = StateWord(view.word(geometry.state_at + PoolState::WORD));
    word.conversion().is_some()
}

/// The kind of every chunk.
pub struct Chunks {
    kinds: Vec<Option<ChunkKind>>,
    slots_per_chunk: u64,
}

impl Chunks {
    /// Reads the chunk table.
    pub(crate) fn read(view: &View, geometry: &Geometry, sink: &mut Sink) -> Self {
        let mut kinds = Vec::with_capacity(geometry.chunks_end() as usize);
        for_each_word(
            view,
            geometry.chunk_table_at,
            geometry.chunks_end(),
            |index, word| {
                if !geometry.has_chunk(index) {
                    return kinds.push(None);
                }
                let decoded = match geometry.decode_chunk(index, ChunkWord(word)) {
                    Some((kind, _)) if kind.is_of(geometry.namespace) => Some(kind),
                    Some(_) => {
                        let namespace = geometry.namespace.name();
                        let detail = format_args!("holds areas, which {namespace} does not have");
                        sink.damage(Class::ChunkWord, Location::Chunk(index), detail);
                        None
                    }
                    None => {
                        let detail = format_args!("{word:#018x} is not sound for this chunk");
                        sink.damage(Class::ChunkWord, Location::Chunk(index), detail);
                        None
                    }
                };
                kinds.push(decoded);
            },
        );
        for missing in TablePlan::of(geometry, |at| view.word(at)).missing() {
            let detail = format_args!(
                "no chunk, or more than one, has part {} of the words of its blocks",
                missing.part
            );
            sink.damage(Class::ChunkWord, Location::Segment(missing.segment), detail);
        }
        Self {
            kinds,
            slots_per_chunk: geometry.slots_per_chunk(),
        }
    }

    /// The chunks in data space whose blocks are metadata.
    pub(crate) fn in_data(&self, geometry: &Geometry) -> impl Iterator<Item = u64> {
        let kind = |chunk: u64| self.kinds.get(chunk as usize).copied().flatten();
        let chunks = geometry.chunks_of_data();
        chunks.filter(move |&chunk| !matches!(kind(chunk), None | Some(ChunkKind::Free)))
    }

    /// The data blocks that are metadata, ascending.
    pub(crate) fn blocks_in_data(&self, geometry: &Geometry) -> Vec<Range<u64>> {
        let chunks = self.in_data(geometry);
        chunks
            .map(|chunk| geometry.blocks_of_chunk(chunk))
            .collect()
    }

    /// The kind of the chunk with `slot`; `None` if the slot does not exist or its chunk's word is
    /// unsound.
    pub fn kind_of(&self, slot: u64) -> Option<ChunkKind> {
        let index = usize::try_from(slot / self.slots_per_chunk).ok()?;
        self.kinds.get(index).copied().flatten()
    }

    /// Whether `slot` and the `count - 1` after it lie in one chunk that holds `kind`.
    pub fn holds(&self, slot: u64, count: u64, kind: ChunkKind) -> bool {
        self.kind_of(slot) == Some(kind)
            && slot % self.slots_per_chunk + count <= self.slots_per_chunk
    }

    /// Chunks that hold `kind`.
    pub fn of(&self, kind: ChunkKind) -> impl Iterator<Item = u64> {
        self.kinds
            .iter()
            .enumerate()
            .filter(move |(_, found)| **found == Some(kind))
            .map(|(index, _)| index as u64)
    }

    /// How many chunks hold `kind`.
    pub fn count(&self, kind: ChunkKind) -> u64 {
        self.of(kind).count() as u64
    }

    /// Metadata slots in a chunk.
    pub fn slots_per_chunk(&self) -> u64 {
        self.slots_per_chunk
    }
}
