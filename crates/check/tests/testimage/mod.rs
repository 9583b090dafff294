//! Pools laid out by hand from the structures of `layout`, for the checker's tests.
#![allow(dead_code, reason = "each test uses a part")]

pub(crate) mod areas;
pub(crate) mod found;
pub(crate) mod trees;
pub(crate) mod xattrs;

use std::collections::BTreeMap;

use vellum_layout::{
    ANCHORS_BYTES, Anchor, AnchorPoint, BLOCK_BYTES, ChainLink, ChunkKind, ChunkWord,
    CommittedWord, Entry, EntryHead, Expected, ExternalRequest, FileKind, Geometry,
    GeometryRequest, IdentityWord, Inode, InodeState, JournalHead, JournalPair, KeyedPlan,
    KeyedWord, LifeWord, LinksWord, LogExtentHead, LogExtentKind, LogWord, MapRoot, MapState,
    MapWord, MappingKind, NamespaceKind, PoolPhase, PoolState, SLOT_BYTES, SavedStateHead,
    StateWord, Superblock, TargetWord, checksum, checksum_words, line_sum, name_hash, seal_record,
    text_check, text_home,
};
use zerocopy::{FromBytes, IntoBytes};

use xattrs::{LABELS, large};

/// Seed of the pools' hashes.
pub(crate) const SEED: u64 = 0x5EED;
/// Generation of every inode.
pub(crate) const GENERATION: u32 = 3;

/// The root never had another life.
fn generation_of(ino: u64) -> u32 {
    match ino {
        vellum_layout::ROOT_SLOT => 1,
        _ => GENERATION,
    }
}
/// A time later than every time in a pool.
pub(crate) const NOW: i64 = 1_700_000_000_000_000_000;

#[derive(Default)]
struct Log {
    at: u64,
    kind: Option<LogExtentKind>,
    used: u64,
    base: u64,
}

/// A pool that a test builds.
pub(crate) struct TestImage {
    /// Its bytes.
    pub(crate) bytes: Vec<u8>,
    /// Its superblock.
    pub(crate) superblock: Superblock,
    /// The layout.
    pub(crate) geometry: Geometry,
    logs: BTreeMap<u64, Log>,
    used: Vec<bool>,
    next_chunk: u64,
    free: BTreeMap<u8, Vec<(u64, u64)>>,
    next_block: u64,
    time: i64,
    inodes: u64,
    data_blocks: u64,
    areas: areas::Areas,
    /// The blocks that trees lead to.
    tree_blocks: BTreeMap<u64, MapWord>,
}

impl TestImage {
    /// An empty pool of 1 MiB, not closed.
    pub(crate) fn empty() -> Self {
        Self::of_size(1 << 20, None)
    }

    /// An empty pool, not closed.
    pub(crate) fn of_size(pool_bytes: u64, metadata_bytes: Option<u64>) -> Self {
        Self::planned(&GeometryRequest {
            pool_bytes,
            metadata_bytes,
            ..GeometryRequest::default()
        })
    }

    /// An empty pool of 1 MiB with a file mapping, not closed.
    pub(crate) fn with_mapping(mapping: MappingKind) -> Self {
        Self::planned(&GeometryRequest {
            pool_bytes: 1 << 20,
            mapping,
            ..GeometryRequest::default()
        })
    }

    /// An empty pool of 1 MiB with areas, not closed.
    pub(crate) fn with_areas() -> Self {
        Self::planned(&GeometryRequest {
            pool_bytes: 1 << 20,
            namespace: NamespaceKind::Adaptive,
            ..GeometryRequest::default()
        })
    }

    /// An empty pool with a redo log, which contains nothing before [`begin_log`](Self::begin_log);
    /// not closed.
    pub(crate) fn logged() -> Self {
        Self::planned(&GeometryRequest {
            pool_bytes: 2 << 20,
            metadata_bytes: Some(1 << 18),
            is_logged: true,
            ..GeometryRequest::default()
        })
    }

    /// An empty split pool whose undo log has no records yet; not closed.
    pub(crate) fn split() -> Self {
        let mut new = Self::planned(&GeometryRequest {
            metadata_bytes: Some(1 << 18),
            external: Some(ExternalRequest {
                id: [7; 16],
                at: BLOCK_BYTES,
                data_bytes: 1 << 20,
                has_replica: false,
            }),
            mapping: MappingKind::Extent,
            ..GeometryRequest::default()
        });
        let geometry = new.geometry;
        let end = geometry.data_at + geometry.segment_blocks * BLOCK_BYTES;
        new.bytes.resize(end as usize, 0);
        new.set_word(geometry.undo_at, CommittedWord::new(0).0);
        new
    }

    /// Makes the present contents home, under a log without records.
    pub(crate) fn begin_log(&mut self) {
        let home = self.geometry.state_at..self.geometry.log_at;
        let lines = home.step_by(64).map(|at| {
            let line = &self.bytes[at as usize..][..64];
            line_sum(SEED, at, line)
        });
        let sum = lines.fold(0, u64::wrapping_add);
        let anchor = Anchor::new(self.superblock.uuid, 77, AnchorPoint::first(sum));
        self.set_bytes(self.geometry.log_at, anchor.as_bytes());
    }

    /// Writes one record of the lines and journaled blocks that changed since the pool was `home`,
    /// and restores `home` beneath it.
    pub(crate) fn end_epoch(&mut self, home: Vec<u8>) {
        let changed = |range: std::ops::Range<u64>, bytes: usize| {
            let places = range.step_by(bytes).map(|at| at as usize);
            let is_new = |at: &usize| self.bytes[*at..*at + bytes] != home[*at..*at + bytes];
            places.filter(is_new).collect::<Vec<usize>>()
        };
        let geometry = self.geometry;
        let lines = changed(geometry.state_at..geometry.log_at, 64);
        let lines: Vec<(u64, [u8; 64])> = lines
            .into_iter()
            .map(|at| (at as u64, self.bytes[at..at + 64].try_into().unwrap()))
            .collect();
        let data_end = geometry.data_at + geometry.segment_blocks * BLOCK_BYTES;
        let blocks = changed(geometry.data_at..data_end, BLOCK_BYTES as usize);
        let number = |at: usize| (at as u64 - geometry.data_at) / BLOCK_BYTES;
        let journaled: Vec<(u64, &[u8])> = blocks
            .into_iter()
            .map(|at| (number(at), &self.bytes[at..at + BLOCK_BYTES as usize]))
            .collect();
        let expected = Expected {
            salt: 77,
            epoch: 1,
            previous: None,
        };
        let (record, _) = seal_record(expected, (0, expected.epoch), &lines, &journaled);
        self.bytes = home;
        self.set_bytes(geometry.log_at + ANCHORS_BYTES, &record);
    }

    /// Makes the chunk with data block `block` one of metadata blocks.
    pub(crate) fn take_for_metadata(&mut self, block: u64) {
        let geometry = self.geometry;
        let mut chunks = geometry.chunks_of_data();
        let has_it = |chunk: &u64| geometry.blocks_of_chunk(*chunk).contains(&block);
        let chunk = chunks.find(has_it).expect("data space may be metadata");
        let word = ChunkWord::new(chunk, ChunkKind::Blocks, 0);
        self.set_word(geometry.chunk_word_at(chunk), word.0);
    }

    fn planned(request: &GeometryRequest) -> Self {
        let geometry = Geometry::plan(request).unwrap();
        let superblock = Superblock::new(&geometry, [9; 16], SEED, NOW, "test", request.namespace);
        let mut new = Self {
            bytes: vec![0; geometry.pool_bytes as usize],
            superblock,
            geometry,
            logs: BTreeMap::new(),
            used: vec![false; geometry.region_slots() as usize],
            next_chunk: 0,
            free: BTreeMap::new(),
            next_block: 0,
            time: NOW - 1_000_000_000,
            inodes: 0,
            data_blocks: 0,
            areas: areas::Areas::default(),
            tree_blocks: BTreeMap::new(),
        };
        new.write_superblocks();
        new.set_word(geometry.state_at, StateWord::new(PoolPhase::Dirty, 1).0);
        let root = geometry.mapping.table_root().unwrap_or(0);
        new.set_word(geometry.table_at, root);
        let reserved = new.take(ChunkKind::Inodes, 1);
        new.used[reserved as usize] = false;
        let root = new.inode(FileKind::Directory, 0o755);
        assert_eq!(root, vellum_layout::ROOT_SLOT);
        new.edit_inode(root, |inode| {
            inode.parent = root;
            inode.links = LinksWord::new(2, 0).0;
        });
        if request.namespace == NamespaceKind::Adaptive {
            new.begin_areas();
        }
        new
    }

    /// Writes every copy of the superblock.
    pub(crate) fn write_superblocks(&mut self) {
        let copy = self.superblock.clone();
        for at in [0, BLOCK_BYTES, self.geometry.last_copy_at] {
            self.set_bytes(at, copy.as_bytes());
        }
    }

    /// Stores bytes.
    pub(crate) fn set_bytes(&mut self, at: u64, data: &[u8]) {
        self.bytes[at as usize..at as usize + data.len()].copy_from_slice(data);
    }

    /// Stores a word.
    pub(crate) fn set_word(&mut self, at: u64, word: u64) {
        self.set_bytes(at, &word.to_le_bytes());
    }

    /// Loads a word.
    pub(crate) fn word(&self, at: u64) -> u64 {
        u64::read_from_bytes(&self.bytes[at as usize..at as usize + 8]).unwrap()
    }

    /// Allocates metadata slots.
    pub(crate) fn take(&mut self, kind: ChunkKind, slots: u64) -> u64 {
        let per_chunk = self.geometry.slots_per_chunk();
        let head = self.head_slots(kind);
        let runs = self.free.entry(kind as u8).or_default();
        let mut found = runs.iter().position(|run| run.1 >= slots);
        if found.is_none() {
            let chunk = self.next_chunk;
            assert!(chunk < self.geometry.meta_chunks, "the test pool is full");
            self.next_chunk += 1;
            let first = chunk * per_chunk;
            runs.push((first + head, per_chunk - head));
            self.used[first as usize..(first + head) as usize].fill(true);
            found = Some(runs.len() - 1);
            let at = self.geometry.chunk_table_at + chunk * 8;
            self.set_word(at, ChunkWord::new(chunk, kind, 0).0);
        }
        let runs = self.free.get_mut(&(kind as u8)).unwrap();
        let run = &mut runs[found.unwrap()];
        let slot = run.0;
        *run = (run.0 + slots, run.1 - slots);
        self.used[slot as usize..(slot + slots) as usize].fill(true);
        slot
    }

    /// A new live inode without a name.
    pub(crate) fn inode(&mut self, kind: FileKind, mode: u16) -> u64 {
        let slot = self.take(ChunkKind::Inodes, 1);
        let links = if kind == FileKind::Directory { 2 } else { 0 };
        let inode = Inode {
            identity: IdentityWord::new(InodeState::Live, kind, mode, generation_of(slot)).0,
            links: LinksWord::new(links, 0).0,
            btime: self.time,
            ctime: NOW,
            mtime: NOW,
            atime: NOW,
            ..Inode::default()
        };
        self.put_inode(slot, inode);
        self.inodes += 1;
        slot
    }

    /// Writes an inode with a correct checksum.
    pub(crate) fn put_inode(&mut self, slot: u64, mut inode: Inode) {
        inode.checksum = inode.expected_checksum(slot);
        self.set_bytes(self.geometry.slot_at(slot), inode.as_bytes());
    }

    /// Reads an inode.
    pub(crate) fn get_inode(&self, slot: u64) -> Inode {
        let at = self.geometry.slot_at(slot) as usize;
        Inode::read_from_bytes(&self.bytes[at..at + 128]).unwrap()
    }

    /// Changes an inode and corrects its checksum.
    pub(crate) fn edit_inode(&mut self, slot: u64, edit: impl FnOnce(&mut Inode)) {
        let mut inode = self.get_inode(slot);
        edit(&mut inode);
        self.put_inode(slot, inode);
    }

    /// Pool offset of the next log word in `directory`, and the cookie of its entry.
    pub(crate) fn next_word(&mut self, directory: u64) -> (u64, u64) {
        let mut log = self.logs.remove(&directory).unwrap_or_default();
        if log.kind.is_none_or(|kind| log.used == kind.words()) {
            let (kind, chunk) = match log.kind {
                None => (LogExtentKind::Small, ChunkKind::Entries),
                Some(_) => (LogExtentKind::Large, ChunkKind::Blocks),
            };
            let at = self.take(chunk, kind.slots());
            let base = log.kind.map_or(3, |kind| log.base + kind.words());
            let head =
                LogExtentHead::new(at, directory, generation_of(directory), base, kind, false);
            self.set_bytes(self.geometry.slot_at(at), head.as_bytes());
            if log.kind.is_some() {
                let before = self.geometry.slot_at(log.at);
                self.set_word(before + LogExtentHead::NEXT, at);
            } else {
                self.edit_inode(directory, |inode| inode.root = at);
            }
            log = Log {
                at,
                kind: Some(kind),
                used: 0,
                base,
            };
        }
        let place = self.geometry.slot_at(log.at) + log.kind.unwrap().words_at() + log.used * 8;
        let cookie = log.base + log.used;
        log.used += 1;
        self.logs.insert(directory, log);
        (place, cookie)
    }

    /// Writes an entry that no log names; returns its slot and checksum.
    pub(crate) fn unlogged(
        &mut self,
        directory: u64,
        name: &[u8],
        ino: u64,
        cookie: u64,
    ) -> (u64, u32) {
        let identity = IdentityWord(self.get_inode(ino).identity);
        self.time += 1;
        let head = EntryHead {
            life: LifeWord::alive(self.time).0,
            target: TargetWord::new(ino, identity.kind().unwrap()).0,
            cookie,
            parent: directory,
            generation: identity.generation(),
            checksum: 0,
            name_hash: name_hash(SEED, name),
            name_len: name.len() as u16,
            flags: 0,
        };
        let slot = self.take(ChunkKind::Entries, Entry::slots_for(name.len()));
        self.put_entry(slot, &head, name);
        (slot, self.get_entry(slot).0.checksum)
    }

    /// Writes an entry at `slot` with a correct checksum.
    pub(crate) fn put_entry(&mut self, slot: u64, head: &EntryHead, name: &[u8]) {
        let mut buffer = [0; 384];
        let len = Entry::encode(head, name, generation_of(head.parent), &mut buffer);
        self.set_bytes(self.geometry.slot_at(slot), &buffer[..len]);
    }

    /// Reads an entry.
    pub(crate) fn get_entry(&self, slot: u64) -> (EntryHead, Vec<u8>) {
        let at = self.geometry.slot_at(slot) as usize;
        let (head, rest) = EntryHead::read_from_prefix(&self.bytes[at..]).unwrap();
        (head, rest[..usize::from(head.name_len)].to_vec())
    }

    /// Changes an entry's head and corrects its checksum.
    pub(crate) fn edit_entry(&mut self, slot: u64, edit: impl FnOnce(&mut EntryHead)) {
        let (mut head, name) = self.get_entry(slot);
        edit(&mut head);
        self.put_entry(slot, &head, &name);
    }

    /// Names `ino` in `directory`; returns the entry's slot. Counts no link.
    pub(crate) fn name(&mut self, directory: u64, name: &[u8], ino: u64) -> u64 {
        let (word, cookie) = self.next_word(directory);
        if self.has_areas() {
            let slot = self.path_entry(directory, name, ino, cookie);
            self.set_word(word, LogWord::new(slot).0);
            return slot;
        }
        let (slot, _) = self.unlogged(directory, name, ino, cookie);
        self.set_word(word, LogWord::new(slot).0);
        slot
    }

    /// Names `ino` in `directory` and counts the link; returns the entry's slot.
    pub(crate) fn link(&mut self, directory: u64, name: &[u8], ino: u64) -> u64 {
        let is_directory =
            IdentityWord(self.get_inode(ino).identity).kind() == Some(FileKind::Directory);
        if is_directory {
            self.edit_inode(directory, |inode| inode.links += 1);
            self.edit_inode(ino, |inode| inode.parent = directory);
        } else {
            self.edit_inode(ino, |inode| inode.links += 1);
        }
        self.name(directory, name, ino)
    }

    /// Marks an entry as dead.
    pub(crate) fn kill(&mut self, entry: u64) {
        self.time += 1;
        let at = self.geometry.slot_at(entry) + Entry::LIFE;
        self.set_word(at, LifeWord::dead(self.time).0);
    }

    /// A directory.
    pub(crate) fn directory(&mut self, parent: u64, name: &[u8]) -> u64 {
        let ino = self.inode(FileKind::Directory, 0o755);
        self.link(parent, name, ino);
        ino
    }

    /// A file of `blocks` mapped blocks.
    pub(crate) fn file(&mut self, parent: u64, name: &[u8], blocks: u32) -> u64 {
        let ino = self.inode(FileKind::File, 0o644);
        self.edit_inode(ino, |inode| {
            inode.size = u64::from(blocks) * BLOCK_BYTES - u64::from(blocks > 0) * 7;
            if blocks > 0 {
                inode.root = MapRoot::new(0, ino as u32).0;
            }
        });
        for logical in 0..blocks {
            self.map(MapState::Mapped, ino as u32, logical);
        }
        self.link(parent, name, ino);
        ino
    }

    /// Allocates a data block; returns its number.
    pub(crate) fn map(&mut self, state: MapState, id: u32, logical: u32) -> u64 {
        let block = self.next_block;
        self.next_block += 1;
        let word = MapWord::new(state, id, logical);
        if self.plan().is_some() {
            let place = KeyedWord::new(word.0, block as u32, 0, 0);
            self.enter(word, place, 0);
        } else {
            self.set_map(block, word);
        }
        if state != MapState::Limbo {
            self.data_blocks += 1;
        }
        block
    }

    /// The plan of a table of keys.
    pub(crate) fn plan(&self) -> Option<KeyedPlan> {
        let geometry = &self.geometry;
        let word = |at| self.word(geometry.table_at + at);
        KeyedPlan::read(geometry.mapping, geometry.segment_blocks, SEED, word)
    }

    /// The used entries of a table of keys, with their offsets.
    pub(crate) fn entries(&self) -> Vec<(u64, MapWord, KeyedWord)> {
        let plan = self.plan().unwrap();
        let lines = plan.parts().into_iter().flatten();
        let offsets = lines.flat_map(|line| (line * 64..line * 64 + 64).step_by(16));
        let entry = |at: u64| (at, MapWord(self.word(at)), KeyedWord(self.word(at + 8)));
        let entries = offsets.map(|offset| entry(self.geometry.table_at + offset));
        entries.filter(|(_, word, _)| word.0 != 0).collect()
    }

    /// The entry of a block, with its offset.
    pub(crate) fn entry_of(&self, id: u32, logical: u32) -> (u64, MapWord, KeyedWord) {
        let key = MapWord::key(id, logical);
        let entries = self.entries().into_iter();
        let mut found = entries.filter(|(_, word, _)| word.0 & MapWord::KEY_MASK == key);
        found.next().unwrap()
    }

    /// Puts an entry into a free position of one of its lines; returns its offset.
    pub(crate) fn enter(&mut self, word: MapWord, place: KeyedWord, home: usize) -> u64 {
        let line = self.plan().unwrap().homes(SEED, word.0).nth(home).unwrap();
        self.enter_line(word, place, line)
    }

    /// Puts an entry into a free position of a line; returns its offset.
    pub(crate) fn enter_line(&mut self, word: MapWord, place: KeyedWord, line: u64) -> u64 {
        let line_at = self.geometry.table_at + line * 64;
        let mut places = (line_at..line_at + 64).step_by(16);
        let at = places.find(|&at| self.word(at) == 0).unwrap();
        self.set_word(at, word.0);
        self.set_word(at + 8, place.0);
        at
    }

    /// Stores a table entry.
    pub(crate) fn set_map(&mut self, block: u64, word: MapWord) {
        self.set_word(self.geometry.table_at + block * 8, word.0);
    }

    /// A symlink.
    pub(crate) fn symlink(&mut self, parent: u64, name: &[u8], text: &[u8]) -> u64 {
        let ino = self.inode(FileKind::Symlink, 0o777);
        let (home, slots) = text_home(text.len());
        let at = self.take(home, slots);
        self.set_bytes(self.geometry.slot_at(at), text);
        self.edit_inode(ino, |inode| {
            inode.root = at;
            inode.size = text.len() as u64;
            inode.detail = text_check(ino, IdentityWord(inode.identity).generation(), text);
        });
        self.link(parent, name, ino);
        ino
    }

    /// Writes a record into a thread slot's journal.
    pub(crate) fn journal(&mut self, thread_slot: u32, pairs: &[JournalPair]) {
        let at = self.geometry.thread_slot_at(thread_slot);
        let head = JournalHead::new(5, pairs.len());
        self.set_word(at + JournalHead::AT, head.0);
        let check = head.seal(u64::from(thread_slot), pairs);
        self.set_word(at + JournalHead::CHECK, check);
        for (pair, to) in pairs.iter().zip((at + JournalHead::PAIRS..).step_by(16)) {
            self.set_word(to, pair.at);
            self.set_word(to + 8, pair.value);
        }
    }

    /// Saves the allocator state of the mapping table, as the close of epoch 1.
    fn save_state(&mut self) {
        let (plan, homes) = (self.geometry.saved_state(), self.geometry.homes(SEED));
        let mut free = vec![0u64; plan.free_words() as usize];
        let mut counts = vec![0u8; plan.count_words() as usize * 8];
        let mut chains: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        let mut used = 0;
        let elsewhere: BTreeMap<u64, MapWord> = if self.plan().is_some() {
            let entries = self.entries().into_iter();
            entries
                .map(|(_, word, place)| (place.block().into(), word))
                .collect()
        } else {
            self.tree_blocks.clone()
        };
        for block in 0..plan.blocks {
            let word = match self.geometry.mapping {
                MappingKind::HashFs => MapWord(self.word(self.geometry.table_at + block * 8)),
                _ => elsewhere.get(&block).copied().unwrap_or(MapWord::FREE),
            };
            match word.state() {
                MapState::Free => free[block as usize / 64] |= 1 << (block % 64),
                MapState::Limbo => {}
                _ if !self.geometry.mapping.has_home_lines() => used += 1,
                _ => {
                    used += 1;
                    let (id, logical) = (word.id(), word.logical());
                    let home = homes.line(id, logical);
                    if block / 8 != home {
                        counts[home as usize] += 1;
                        let on = chains.entry(homes.chain(id, logical)).or_default();
                        on.push(block as u32);
                    }
                }
            }
        }
        let mut map = vec![0u64; plan.map_words() as usize];
        let mut links = Vec::new();
        for (chain, blocks) in &chains {
            map[*chain as usize / 64] |= 1 << (chain % 64);
            let last = blocks.len() - 1;
            links.extend((0..=last).map(|i| ChainLink::new(blocks[i], i == last).0));
        }
        let displaced = links.len() as u64;
        links.resize(links.len().next_multiple_of(2), 0);
        let parts = [free.as_bytes(), &counts, map.as_bytes(), links.as_bytes()];
        let body = parts.concat();
        assert_eq!(body.len() as u64, plan.body_words(displaced) * 8);
        self.set_bytes(plan.free_at(), &body);
        let head = SavedStateHead::new(1, used, displaced, checksum(&body));
        self.set_bytes(plan.at, head.as_bytes());
    }

    /// Changes the head of the saved allocator state and makes it fit its body.
    pub(crate) fn seal_saved_state(&mut self, change: impl FnOnce(&mut SavedStateHead)) {
        let plan = self.geometry.saved_state();
        let at = plan.at as usize;
        let mut head = SavedStateHead::read_from_bytes(&self.bytes[at..at + 64]).unwrap();
        change(&mut head);
        let from = plan.free_at() as usize;
        let body = &self.bytes[from..from + plan.body_words(head.displaced) as usize * 8];
        let head = SavedStateHead::new(1, head.used, head.displaced, checksum(body));
        self.set_bytes(plan.at, head.as_bytes());
    }

    /// Saves what a close saves, and marks the pool as closed.
    pub(crate) fn close(&mut self) {
        if self.has_areas() {
            self.close_areas();
        }
        let mut map = vec![0u8; (self.geometry.region_slots().div_ceil(64) * 8) as usize];
        for (slot, used) in self.used.iter().enumerate() {
            map[slot / 8] |= u8::from(*used) << (slot % 8);
        }
        self.set_bytes(self.geometry.live_map_at, &map);
        self.save_state();
        let saved = [1, u64::from(checksum(&map)), self.inodes, self.data_blocks];
        let at = self.geometry.state_at;
        self.set_word(at + PoolState::LIVE_MAP_CHECK, saved[1]);
        self.set_word(at + PoolState::INODES, saved[2]);
        self.set_word(at + PoolState::BLOCKS, saved[3]);
        self.set_word(at + PoolState::SAVED_CHECK, checksum_words(&saved).into());
        self.set_word(at, StateWord::new(PoolPhase::Clean, 1).0);
    }

    /// Makes the counter of inodes (0) or of blocks (1) wrong.
    pub(crate) fn miscount(&mut self, which: usize, delta: i64) {
        let counter = [&mut self.inodes, &mut self.data_blocks]
            .into_iter()
            .nth(which)
            .unwrap();
        *counter = counter.wrapping_add_signed(delta);
    }

    /// Marks an unused slot in the live map.
    pub(crate) fn leak(&mut self, slot: usize) {
        self.used[slot] = true;
    }

    /// Removes a slot from the live map.
    pub(crate) fn forget(&mut self, slot: u64) {
        self.used[slot as usize] = false;
    }

    /// Marks the pool as not closed.
    pub(crate) fn reopen(&mut self) {
        let at = self.geometry.state_at;
        self.set_word(at, StateWord::new(PoolPhase::Dirty, 2).0);
    }

    /// Pool offset of metadata slot `slot`.
    pub(crate) fn at(&self, slot: u64) -> u64 {
        self.geometry.slot_at(slot)
    }

    /// Bytes of the metadata region.
    pub(crate) fn metadata(&self) -> std::ops::Range<u64> {
        let bytes = self.geometry.region_slots() * SLOT_BYTES;
        self.geometry.meta_at..self.geometry.meta_at + bytes
    }
}

/// A pool for tests, with the structures that they change.
pub(crate) struct Sample {
    /// The pool.
    pub(crate) image: TestImage,
    /// A directory in the root, with two log extents.
    pub(crate) dir: u64,
    /// Its entry.
    pub(crate) dir_entry: u64,
    /// An empty directory in `dir`.
    pub(crate) sub: u64,
    /// A file in the root with three blocks and two names.
    pub(crate) file: u64,
    /// Its first entry.
    pub(crate) file_entry: u64,
    /// A file in `dir` with one block.
    pub(crate) other: u64,
    /// A symlink in the root with a short text.
    pub(crate) short: u64,
    /// A symlink in the root with a long text.
    pub(crate) long: u64,
    /// A dead entry of the root.
    pub(crate) dead: u64,
    /// Entries of `dir`, in order of cookie.
    pub(crate) entries: Vec<u64>,
    /// The slot of the attributes of `file`, which has [`LABELS`].
    pub(crate) labels: u64,
    /// The slots of the attributes of `dir`, which has [`large`] ones.
    pub(crate) large: Vec<u64>,
}

/// A pool with every kind of structure, not closed.
pub(crate) fn sample() -> Sample {
    sample_in(TestImage::empty())
}

/// As [`sample`], with a mapping that keeps a table of keys.
pub(crate) fn keyed_sample(mapping: MappingKind) -> Sample {
    sample_in(TestImage::with_mapping(mapping))
}

fn sample_in(mut image: TestImage) -> Sample {
    let dir = image.inode(FileKind::Directory, 0o755);
    let dir_entry = image.link(1, b"dir", dir);
    let file = image.inode(FileKind::File, 0o600);
    image.edit_inode(file, |inode| {
        inode.root = MapRoot::new(0, file as u32).0 | MapRoot::BEYOND;
        inode.size = 3 * BLOCK_BYTES - 100;
    });
    for logical in 0..3 {
        image.map(MapState::Mapped, file as u32, logical);
    }
    image.map(MapState::Unwritten, file as u32, 7);
    let file_entry = image.link(1, b"file", file);
    image.link(dir, b"hard link", file);
    let short = image.symlink(1, b"short", b"dir/file 3");
    let long = image.symlink(1, b"long", &[b'y'; 3000]);
    let dead = image.name(1, b"gone", file);
    image.kill(dead);
    let sub = image.directory(dir, b"sub");
    let fifo = image.inode(FileKind::Fifo, 0o600);
    image.link(dir, &[b'n'; 255], fifo);
    let other = image.file(dir, b"other", 1);
    let mut entries = Vec::new();
    for i in 0..20 {
        let ino = image.inode(FileKind::File, 0o644);
        entries.push(image.link(dir, format!("file {i}").as_bytes(), ino));
    }
    let labels = image.set_xattrs(file, &LABELS)[0];
    let large = image.set_xattrs(dir, &large());
    Sample {
        image,
        labels,
        large,
        dir,
        dir_entry,
        sub,
        file,
        file_entry,
        other,
        short,
        long,
        dead,
        entries,
    }
}

/// A closed [`sample`].
pub(crate) fn closed() -> Sample {
    let mut sample = sample();
    sample.image.close();
    sample
}
