//! Converts a closed pool from one namespace to another.
//!
//! The structures of the new namespace are written into unused metadata slots. A list of stores,
//! also in unused slots, makes them valid, in inodes, the chunk table and the superblock
//! ([`vellum_layout::PendingBlock`]). The state word decides: before it is written, the pool is the
//! old one, closed cleanly; afterwards the next process does the stores, and repeats them if it is
//! interrupted. Names keep their cookies and their times; remains of removed names are dropped.
//!
//! In a split pool nothing is left to roll back when the conversion is planned, and its stores
//! write no undo records: the same single word decides.
//!
//! In a logged pool the log is emptied first, as for a repair. Everything before the decision, and
//! the state word, is one record; then the log is emptied again, and the stores go home.

mod area;

use std::collections::{BTreeSet, HashMap};

use thiserror::Error;
use vellum_check::survey::{self, Name, Node, RedoLog, Survey};
use vellum_check::{Image, MemoryImage, Options as CheckOptions, Progress, Report, check};
use vellum_layout::{
    AreaPlan, BLOCK_BYTES, ChunkKind, ChunkWord, Entry, FileKind, Inode, JournalHead,
    LogExtentHead, LogOwner, LogPosition, NameRecord, NamespaceKind, PENDING_MAX, PendingBlock,
    PendingStore, PoolPhase, PoolState, RECORD_MAX_BYTES, SLOT_BYTES, SLOTS_PER_BLOCK, StateWord,
    Superblock,
};
use vellum_media::PoolMemory;
use zerocopy::{FromBytes, IntoBytes};

use crate::apply::{ApplyError, Guard, Meter, Written, store, write_stages};
use crate::draft::Overlay;
use crate::extents::log_of;
use crate::plan::{NO_LOG, Stage, copy_of, in_metadata, state_word};
use crate::redo;
use crate::room::Named;

/// Why a pool cannot be converted. Nothing was changed.
#[derive(Debug, Error)]
pub enum ConvertError {
    /// It has no superblock that is usable for writing.
    #[error("{0}")]
    NotAPool(String),
    /// It already has the requested namespace.
    #[error("it has the namespace {} already", .0.name())]
    Same(NamespaceKind),
    /// It was not closed cleanly.
    #[error("it was not closed cleanly; open it once, which recovers it")]
    NotClosed,
    /// An earlier conversion must be finished first.
    #[error("an earlier conversion was not finished")]
    Unfinished,
    /// It is damaged, or would be.
    #[error("{when}: {report}")]
    Unsound {
        /// Before the conversion, or after it.
        when: &'static str,
        /// The report of the checker.
        report: Box<Report>,
    },
    /// The old and the new structures do not fit side by side.
    #[error(
        "there is no space for the names of both namespaces side by side: {free} of {of} \
         metadata slots are free"
    )]
    NoRoom {
        /// Unused metadata slots.
        free: u64,
        /// All metadata slots.
        of: u64,
    },
}

/// Why a decided conversion could not be finished.
#[derive(Debug, Error)]
pub enum FinishError {
    /// The medium, or the operating system, failed.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// The list of remaining stores is unreadable.
    #[error("the stores of the conversion at metadata slot {0} are damaged")]
    Damaged(u64),
}

/// A conversion that is ready to run.
#[derive(Debug)]
pub struct Conversion {
    /// The present namespace.
    pub from: NamespaceKind,
    /// The new namespace.
    pub to: NamespaceKind,
    /// Number of converted names.
    pub names: u64,
    /// Number of their directories.
    pub directories: u64,
    /// The stages before the decision.
    stages: Vec<Stage>,
}

/// Plans the conversion of the pool in `image`, which is only read, to the namespace `to`.
///
/// Needs memory for every written word, some 300 bytes per name.
///
/// # Errors
/// Returns why it is impossible. The checker proves the outcome before anything is written.
pub fn plan_conversion(
    image: &dyn Image,
    to: NamespaceKind,
    progress: Option<Progress<'_>>,
) -> Result<Conversion, ConvertError> {
    let superblock = usable(image)?;
    if survey::versions(image, &superblock).is_some_and(|found| found.is_ahead()) {
        return Err(ConvertError::NotClosed);
    }
    let none = BTreeSet::new();
    let home = Overlay::new(image, &none);
    let logged = log_of_pool(image, &superblock)?;
    let emptied = logged
        .as_ref()
        .map(|log| redo::take_home(&home, log, &superblock));
    convertible(&home, &superblock, to)?;
    let checking = |strict_clean| CheckOptions {
        strict_clean,
        progress,
    };
    let sound = |when, report: Report| match report.is_sound() {
        true => Ok(report),
        false => Err(ConvertError::Unsound {
            when,
            report: Box::new(report),
        }),
    };
    let before = sound("it is damaged", check(image, checking(false)))?;
    let overlay = Overlay::new(&home, &none);
    let survey = Survey::of(&overlay, &superblock);
    let mut making = Making::new(&overlay, &superblock, &survey);
    let directories = making.lay_names(to)?;
    making.lay_header(to);
    let chunks = survey.geometry.chunks().count();
    let slots = making.take_blocks(making.inner_stores().len() + 3 * chunks)?;
    let mut stores = making.give_back_chunks(&slots);
    stores.extend(making.inner_stores());
    let pending = making.lay_stores(&stores, &slots);
    let after = check(&overlay, checking(true));
    let after = sound("the outcome would be unsound, nothing was changed", after)?;
    let (names, new) = (before.summary.entries, after.summary.entries);
    assert_eq!(names, new, "every name is converted");
    let stages = making.stages(pending);
    Ok(Conversion {
        from: superblock.namespace(),
        to,
        names,
        directories,
        stages: match (&logged, emptied) {
            (Some(log), Some(emptied)) => {
                let (outside, epoch) = redo::as_epoch(&home, log, &superblock, stages);
                emptied.into_iter().chain(outside).chain(epoch).collect()
            }
            _ => stages,
        },
    })
}

/// The redo log of a logged pool.
fn log_of_pool(
    image: &dyn Image,
    superblock: &Superblock,
) -> Result<Option<RedoLog>, ConvertError> {
    if !superblock.geometry().is_logged() {
        return Ok(None);
    }
    let log = survey::redo_log(image, superblock);
    let log = log.ok_or_else(|| ConvertError::NotAPool(NO_LOG.into()));
    log.map(Some)
}

/// The superblock of a pool that can be converted.
fn usable(image: &dyn Image) -> Result<Superblock, ConvertError> {
    let superblock = survey::superblock(image).ok_or_else(no_superblock)?;
    superblock
        .check_writable()
        .map_err(|error| ConvertError::NotAPool(error.to_string()))?;
    Ok(superblock)
}

fn no_superblock() -> ConvertError {
    ConvertError::NotAPool("it has no superblock that can be used".into())
}

/// Checks that the pool can be converted now, to `to`.
fn convertible(
    image: &dyn Image,
    superblock: &Superblock,
    to: NamespaceKind,
) -> Result<(), ConvertError> {
    let word = state_word(image, superblock).ok_or_else(no_superblock)?;
    if word.conversion().is_some() {
        return Err(ConvertError::Unfinished);
    }
    if superblock.namespace() == to {
        return Err(ConvertError::Same(to));
    }
    match word.get() {
        Some((PoolPhase::Clean, _)) => Ok(()),
        _ => Err(ConvertError::NotClosed),
    }
}

/// Free space in chunks of one kind, allocated from the front.
#[derive(Default)]
struct Cursor {
    chunks: Vec<u64>,
    slot: u64,
}

/// A conversion that is being planned.
struct Making<'a> {
    overlay: &'a Overlay<'a>,
    superblock: &'a Superblock,
    survey: &'a Survey<'a>,
    room: HashMap<ChunkKind, Cursor>,
    free_chunks: Vec<u64>,
    /// The plan of new areas, if there are any.
    areas: AreaPlan,
}

impl<'a> Making<'a> {
    fn new(overlay: &'a Overlay<'a>, superblock: &'a Superblock, survey: &'a Survey<'a>) -> Self {
        let chunks = |kind| survey.chunks.of(kind).collect::<Vec<u64>>();
        let room = [ChunkKind::Entries, ChunkKind::Blocks].map(|kind| {
            let mut chunks = chunks(kind);
            chunks.reverse();
            (kind, Cursor { chunks, slot: 0 })
        });
        let mut free_chunks: Vec<u64> = survey.free_chunks().collect();
        free_chunks.reverse();
        Self {
            overlay,
            superblock,
            survey,
            room: room.into(),
            free_chunks,
            areas: AreaPlan::default(),
        }
    }

    /// Allocates `count` unused slots of a chunk of `kind`.
    fn take(&mut self, kind: ChunkKind, count: u64) -> Result<u64, ConvertError> {
        let geometry = self.survey.geometry;
        let per_chunk = geometry.slots_per_chunk();
        let step = if kind == ChunkKind::Blocks {
            SLOTS_PER_BLOCK
        } else {
            1
        };
        loop {
            let cursor = self.room.entry(kind).or_default();
            if let Some(&chunk) = cursor.chunks.last() {
                let mut slot = cursor.slot.max(chunk * per_chunk).max(step);
                slot = slot.next_multiple_of(step);
                while slot + count <= (chunk + 1) * per_chunk {
                    let fits = kind != ChunkKind::Areas || self.areas.has_room(slot, count);
                    if fits && (slot..slot + count).all(|slot| !self.survey.is_used(slot)) {
                        cursor.slot = slot + count;
                        return Ok(slot);
                    }
                    slot += step;
                }
                cursor.chunks.pop();
                cursor.slot = 0;
                continue;
            }
            let Some(chunk) = self.free_chunks.pop() else {
                let slots = 0..geometry.meta_slots();
                let free = slots.filter(|&slot| !self.survey.is_used(slot)).count();
                return Err(ConvertError::NoRoom {
                    free: free as u64,
                    of: geometry.meta_slots(),
                });
            };
            cursor.chunks.push(chunk);
            let word = ChunkWord::new(chunk, kind, 0).0;
            self.overlay.set(geometry.chunk_word_at(chunk), word);
            if kind == ChunkKind::Areas {
                self.clear_states(chunk);
            }
        }
    }

    fn put(&self, slot: u64, bytes: &[u8]) {
        let mut whole = vec![0; bytes.len().next_multiple_of(8)];
        whole[..bytes.len()].copy_from_slice(bytes);
        self.overlay
            .set_bytes(self.survey.geometry.slot_at(slot), &whole);
    }

    /// Writes the names of all directories in the new namespace, and the words that lead to them;
    /// returns the number of directories.
    fn lay_names(&mut self, to: NamespaceKind) -> Result<u64, ConvertError> {
        let mut names: Vec<&Name> = self.survey.logs.names.iter().collect();
        names.retain(|name| name.alive);
        names.sort_unstable_by_key(|name| (name.directory, name.cookie));
        let mut directories = 0;
        if to == NamespaceKind::Adaptive {
            return self.lay_area(&names);
        }
        let mut rest = &names[..];
        for (number, node) in self.survey.nodes.list.iter().enumerate() {
            if node.kind != FileKind::Directory {
                continue;
            }
            directories += 1;
            let first = rest.partition_point(|name| (name.directory as usize) < number);
            rest = &rest[first..];
            let own = rest.partition_point(|name| name.directory as usize == number);
            let (root, detail) = match to {
                NamespaceKind::Tree => self.lay_records(node, &rest[..own])?,
                _ => (self.lay_entries(node, &rest[..own])?, 0),
            };
            let at = self.survey.geometry.slot_at(node.slot);
            self.overlay.set(at + Inode::ROOT, root);
            self.overlay.set(at + Inode::DETAIL, detail);
        }
        Ok(directories)
    }

    /// Writes a log of records; returns its first block and its tail.
    fn lay_records(&mut self, dir: &Node, names: &[&Name]) -> Result<(u64, u64), ConvertError> {
        let owner = LogOwner {
            slot: dir.slot,
            generation: dir.identity.generation(),
        };
        let mut blocks: Vec<(u64, [u8; BLOCK_BYTES as usize])> = Vec::new();
        let mut end = NameRecord::LIMIT;
        for name in names {
            let bytes = NameRecord::bytes_for(usize::from(name.text_len));
            if end + bytes > NameRecord::LIMIT {
                let slot = self.take(ChunkKind::Blocks, SLOTS_PER_BLOCK)?;
                let head = LogExtentHead::of_records(slot, owner, name.cookie);
                let mut block = [0; BLOCK_BYTES as usize];
                block[..size_of::<LogExtentHead>()].copy_from_slice(head.as_bytes());
                if let Some((_, last)) = blocks.last_mut() {
                    let next = LogExtentHead::NEXT as usize;
                    last[next..next + 8].copy_from_slice(&slot.to_le_bytes());
                }
                blocks.push((slot, block));
                end = NameRecord::FIRST;
            }
            let Some((slot, block)) = blocks.last_mut() else {
                continue;
            };
            let mut buffer = [0; RECORD_MAX_BYTES];
            let place = LogPosition::new(*slot, end);
            let text = self.survey.text_of(name);
            let named = Named::of(name);
            let record = named.record(&text, self.superblock.hash_seed);
            let used = record.encode(&text, place, owner, &mut buffer);
            block[end as usize..][..used].copy_from_slice(&buffer[..used]);
            end += used as u64;
        }
        let root = blocks.first().map_or(0, |block| block.0);
        let tail = blocks
            .last()
            .map_or(LogPosition::NONE, |block| LogPosition::new(block.0, end));
        for (slot, block) in &blocks {
            self.put(*slot, block);
        }
        Ok((root, tail.0))
    }

    /// Writes entries and a log that names them; returns its first extent.
    fn lay_entries(&mut self, dir: &Node, names: &[&Name]) -> Result<u64, ConvertError> {
        let entries = names
            .iter()
            .map(|name| Ok((name.cookie, self.lay_entry(dir, name)?)))
            .collect::<Result<Vec<_>, ConvertError>>()?;
        self.lay_log(dir, &entries)
    }

    /// Writes a log that names entries, given by cookie and slot; returns its first extent.
    fn lay_log(&mut self, dir: &Node, entries: &[(u64, u64)]) -> Result<u64, ConvertError> {
        let owner = LogOwner {
            slot: dir.slot,
            generation: dir.identity.generation(),
        };
        let log = log_of(owner, entries, |kind, slots| self.take(kind, slots))?;
        for (slot, bytes) in &log.extents {
            self.put(*slot, bytes);
        }
        Ok(log.first)
    }

    fn lay_entry(&mut self, dir: &Node, name: &Name) -> Result<u64, ConvertError> {
        let text = self.survey.text_of(name);
        let slot = self.take(ChunkKind::Entries, Entry::slots_for(text.len()))?;
        let head = Named::of(name).entry(dir.slot, &text, self.superblock.hash_seed);
        let mut buffer = [0; 384];
        let len = Entry::encode(&head, &text, dir.identity.generation(), &mut buffer);
        self.put(slot, &buffer[..len]);
        Ok(slot)
    }

    /// Writes the superblock of the new namespace over every copy, retires journal records, and
    /// voids the saved state of the last close.
    fn lay_header(&self, to: NamespaceKind) {
        let mut superblock = self.superblock.clone();
        let fs = &mut superblock.datasets[0];
        fs.namespace = to as u32;
        fs.area_table = self.areas.table;
        fs.area_bytes = self.areas.bytes;
        fs.size_max = self.areas.size_max;
        superblock.sequence += 1;
        superblock.seal();
        for at in [0, BLOCK_BYTES, superblock.last_copy_at] {
            self.overlay.set_bytes(at, superblock.as_bytes());
        }
        let geometry = self.survey.geometry;
        // In a closed pool they are old ones, which a recovery would replay.
        for slot in 0..geometry.thread_slots {
            let at = geometry.thread_slot_at(slot) + JournalHead::AT;
            self.overlay.set(at, 0);
        }
        let at = geometry.state_at + PoolState::WORD;
        let word = StateWord(self.overlay.word(at));
        let epoch = word.get().map_or(0, |(_, epoch)| epoch);
        self.overlay
            .set(at, StateWord::new(PoolPhase::Dirty, epoch).0);
    }

    /// Whether the slot of a word is unused.
    fn is_fresh(&self, at: u64) -> bool {
        let geometry = &self.survey.geometry;
        let slot = at.saturating_sub(geometry.meta_at) / SLOT_BYTES;
        in_metadata(geometry, at) && !self.survey.is_used(slot)
    }

    /// The stores to used structures, except copies of the superblock and the state word.
    fn inner_stores(&self) -> Vec<PendingStore> {
        let state_at = self.survey.geometry.state_at + PoolState::WORD;
        let words = self.overlay.words();
        let inner = words.iter().filter(|&(&at, _)| {
            at != state_at && copy_of(self.superblock, at).is_none() && !self.is_fresh(at)
        });
        inner
            .map(|(&at, &value)| PendingStore::word(at, value))
            .collect()
    }

    /// The stores to each copy of the superblock.
    fn copies(&self) -> [Vec<PendingStore>; 3] {
        let words = self.overlay.words();
        [0, 1, 2].map(|copy| {
            let words = words.iter();
            let own = words.filter(|(at, _)| copy_of(self.superblock, **at) == Some(copy));
            own.map(|(&at, &value)| PendingStore::word(at, value))
                .collect()
        })
    }

    /// Allocates blocks for this many stores and the three copies of the superblock.
    fn take_blocks(&mut self, stores: usize) -> Result<Vec<u64>, ConvertError> {
        let blocks = stores.div_ceil(PENDING_MAX) + 3;
        let mut slots = Vec::with_capacity(blocks);
        for _ in 0..blocks {
            slots.push(self.take(ChunkKind::Blocks, SLOTS_PER_BLOCK)?);
        }
        Ok(slots)
    }

    /// Frees chunks that are no longer used, except those of the blocks at `kept`; returns the
    /// stores that zero them.
    fn give_back_chunks(&self, kept: &[u64]) -> Vec<PendingStore> {
        let Some(superblock) = survey::superblock(self.overlay) else {
            return Vec::new();
        };
        let geometry = self.survey.geometry;
        let left = Survey::of(self.overlay, &superblock);
        let slots = |chunk| geometry.slots_of_chunk(chunk);
        let both = [ChunkKind::Entries, ChunkKind::Blocks].into_iter();
        let mut chunks: Vec<u64> = both.flat_map(|kind| left.chunks.of(kind)).collect();
        chunks.retain(|&chunk| {
            let is_kept = kept.iter().any(|slot| slots(chunk).contains(slot));
            !is_kept && !slots(chunk).any(|slot| left.is_used(slot))
        });
        if superblock.namespace() != NamespaceKind::Adaptive {
            chunks.extend(self.survey.chunks.of(ChunkKind::Areas));
        }
        // What lies in data space stays metadata: the pool's use will find that it is not needed.
        let (chunks, in_data): (Vec<u64>, Vec<u64>) = chunks
            .into_iter()
            .partition(|&chunk| chunk < geometry.meta_chunks);
        for chunk in in_data {
            let word = ChunkWord::new(chunk, ChunkKind::Blocks, 0).0;
            self.overlay.set(geometry.chunk_word_at(chunk), word);
        }
        let give_back = |chunk| {
            self.overlay.set(geometry.chunk_word_at(chunk), 0);
            PendingStore::zeros(geometry.slot_at(slots(chunk).start), geometry.chunk_bytes)
        };
        chunks.into_iter().map(give_back).collect()
    }

    /// Writes the list of stores into the blocks at `slots`: the inner ones, then each copy of the
    /// superblock. Returns the word that leads to it.
    fn lay_stores(&self, inner: &[PendingStore], slots: &[u64]) -> (u64, u64) {
        let copies = self.copies();
        let parts = inner.chunks(PENDING_MAX);
        let parts = parts.chain(copies.iter().map(Vec::as_slice));
        let parts: Vec<_> = parts.zip(slots).collect();
        let mut next = 0;
        for (stores, &slot) in parts.into_iter().rev() {
            self.put(slot, PendingBlock::new(slot, next, stores).as_bytes());
            next = slot;
        }
        (self.survey.geometry.state_at + PoolState::PENDING, next)
    }

    /// The stages before the decision, and the decision by the state word.
    fn stages(&self, pending: (u64, u64)) -> Vec<Stage> {
        let words = self.overlay.words();
        let mut fresh = Stage::named("names, in unused slots");
        let own = words.iter().filter(|&(&at, _)| self.is_fresh(at));
        fresh.words = own.map(|(&at, &value)| (at, value)).collect();
        fresh.words.push(pending);
        let state_at = self.survey.geometry.state_at + PoolState::WORD;
        let mut decision = Stage::named("the decision");
        let epoch = StateWord(self.overlay.word(state_at)).get();
        let epoch = epoch.map_or(0, |(_, epoch)| epoch);
        decision
            .words
            .push((state_at, StateWord::converting(epoch).0));
        vec![fresh, decision]
    }
}

/// Converts a pool, and reports the number of written words and their total.
///
/// # Errors
/// Fails if the medium fails. Before the decision the pool is unchanged; afterwards
/// [`finish_conversion`] continues.
pub fn convert(
    pool: &impl PoolMemory,
    conversion: &Conversion,
    written: Written<'_>,
) -> Result<(), FinishError> {
    write_stages(pool, &conversion.stages, written)?;
    finish_conversion(pool, written).map(|_| ())
}

/// Finishes the conversion of a pool, if one was decided and not finished; returns whether there
/// was one.
///
/// # Errors
/// Fails if the medium fails or the remaining stores are damaged.
pub fn finish_conversion(
    pool: &impl PoolMemory,
    written: Written<'_>,
) -> Result<bool, FinishError> {
    let image = MemoryImage(pool);
    let Some(superblock) = survey::superblock(&image) else {
        return Ok(false);
    };
    let geometry = superblock.geometry();
    let none = BTreeSet::new();
    let home = Overlay::new(&image, &none);
    let log = geometry
        .is_logged()
        .then(|| survey::redo_log(&image, &superblock));
    let emptied = log
        .flatten()
        .map(|log| redo::take_home(&home, &log, &superblock));
    let state_at = geometry.state_at + PoolState::WORD;
    let Some(epoch) = StateWord(home.word(state_at)).conversion() else {
        return Ok(false);
    };
    let blocks = pending(&home, &superblock)?;
    // The log is applied, and home has no sum: stores to it count as elsewhere.
    write_stages(pool, &emptied.unwrap_or_default(), written)?;
    let all: usize = blocks.iter().map(Vec::len).sum();
    let mut meter = Meter::of(all as u64 + 1, written);
    let guard = Guard::of(pool);
    let settled = || -> Result<(), ApplyError> {
        guard.settle().map_err(ApplyError::Medium)??;
        Ok(())
    };
    for stores in blocks {
        for pending in stores {
            match pending.as_zeros() {
                Some((at, bytes)) => (at..at + bytes)
                    .step_by(8)
                    .for_each(|at| store(pool, (at, 0))),
                None => store(pool, (pending.at, pending.value)),
            }
            meter.add_one();
        }
        settled()?;
    }
    store(pool, (state_at, StateWord::new(PoolPhase::Dirty, epoch).0));
    meter.add_one();
    settled()?;
    Ok(true)
}

/// The remaining stores, block by block.
fn pending(
    overlay: &Overlay<'_>,
    superblock: &Superblock,
) -> Result<Vec<Vec<PendingStore>>, FinishError> {
    let geometry = superblock.geometry();
    let mut slot = overlay.word(geometry.state_at + PoolState::PENDING);
    let (mut blocks, mut seen) = (Vec::new(), BTreeSet::new());
    while slot != 0 {
        let damaged = FinishError::Damaged(slot);
        if !geometry.has_slot(slot + SLOTS_PER_BLOCK - 1) || !seen.insert(slot) {
            return Err(damaged);
        }
        let bytes: [u8; BLOCK_BYTES as usize] = overlay.bytes(geometry.slot_at(slot));
        let block = PendingBlock::read_from_bytes(&bytes).ok();
        let stores = block.as_ref().and_then(|block| block.stores(slot));
        let fits = |pending: &PendingStore| {
            let (at, bytes) = pending.as_zeros().unwrap_or((pending.at, 8));
            let end = at.checked_add(bytes);
            let is_inside = at % 8 == 0
                && bytes % 8 == 0
                && (at < geometry.table_at || geometry.is_of_metadata(at))
                && end.is_some_and(|end| end <= geometry.slots_end());
            is_inside || copy_of(superblock, at).is_some() && bytes == 8
        };
        let (Some(block), Some(stores)) = (&block, stores) else {
            return Err(damaged);
        };
        if !stores.iter().all(fits) {
            return Err(damaged);
        }
        blocks.push(stores.to_vec());
        slot = block.next;
    }
    Ok(blocks)
}
