//! Pools with areas.

use std::collections::BTreeMap;

use vellum_layout::{
    AreaCounts, AreaLife, AreaLine, AreaPhase, AreaTableHead, ChunkKind, ChunkWord, DirLocation,
    EntryState, FileKind, IdentityWord, LifeWord, LogExtentKind, MoveListHead, MovedEntry,
    NamespaceKind, PATH_ENTRY_MAX_BYTES, PathEntryHead, PathSeal, ROOT_AREA, ROOT_SLOT,
    SLOTS_PER_BLOCK, StateMapWord, TableHead, TableRoot, TableWord, TargetWord, path_hash,
    path_tag,
};
use zerocopy::{FromBytes, IntoBytes};

use super::{SEED, Sample, TestImage, generation_of, sample_in};

/// Generation of an area; that of the root is the one that mkfs writes.
fn area_generation(number: u32) -> u32 {
    match number {
        ROOT_AREA => 1,
        _ => 5,
    }
}

/// The areas of a test's pool.
#[derive(Default)]
pub(crate) struct Areas {
    /// Home and path of each directory.
    homes: BTreeMap<u64, (u32, Vec<u8>)>,
    /// The directory that is each area's root.
    roots: BTreeMap<u32, u64>,
    /// Slots of the entries.
    entries: Vec<u64>,
    /// Level of the hash tables.
    pub(crate) level: u32,
}

impl TestImage {
    pub(super) fn has_areas(&self) -> bool {
        self.geometry.namespace == NamespaceKind::Adaptive
    }

    /// Slots of a chunk in front of those that can be allocated.
    pub(super) fn head_slots(&self, kind: ChunkKind) -> u64 {
        assert!(
            !self.has_areas() || u64::from(self.geometry.areas.bytes) == self.geometry.chunk_bytes
        );
        match kind {
            ChunkKind::Areas => self.geometry.areas.first(),
            _ => 0,
        }
    }

    pub(super) fn begin_areas(&mut self) {
        let table = self.take(ChunkKind::Blocks, SLOTS_PER_BLOCK);
        assert_eq!(table, self.geometry.areas.table);
        let head = AreaTableHead::new(table, 0);
        self.set_bytes(self.geometry.slot_at(table), head.as_bytes());
        self.new_area(ROOT_SLOT);
    }

    /// Creates an area with the root `root`, which has no names yet; returns its number.
    pub(crate) fn new_area(&mut self, root: u64) -> u32 {
        let number = self.areas.roots.len() as u32 + ROOT_AREA;
        let line = self.line_of(number, root, AreaPhase::Live);
        self.set_line(number, &line);
        self.areas.roots.insert(number, root);
        self.areas.homes.insert(root, (number, Vec::new()));
        self.set_place(root, 0, number);
        number
    }

    /// Sets the slot of a directory's own entry, and the area whose root it is.
    pub(crate) fn set_place(&mut self, directory: u64, entry: u64, area: u32) {
        self.edit_inode(directory, |inode| {
            inode.detail = DirLocation::new(entry, area).0;
        });
    }

    /// The line of such an area.
    pub(crate) fn line_of(&self, number: u32, root: u64, phase: AreaPhase) -> AreaLine {
        let area = AreaLife {
            number,
            generation: area_generation(number),
        };
        AreaLine::new(area, phase, root, generation_of(root))
    }

    /// Pool offset of the line of an area in the first block of the table.
    pub(crate) fn line_at(&self, number: u32) -> u64 {
        self.geometry.slot_at(self.geometry.areas.table) + u64::from(number) * 64
    }

    pub(crate) fn set_line(&mut self, number: u32, line: &AreaLine) {
        self.set_bytes(self.line_at(number), line.as_bytes());
    }

    pub(crate) fn get_line(&self, number: u32) -> AreaLine {
        let at = self.line_at(number) as usize;
        AreaLine::read_from_bytes(&self.bytes[at..at + 64]).unwrap()
    }

    /// Pool offset of the word of the state-map for a slot.
    pub(crate) fn state_at(&self, slot: u64) -> u64 {
        self.geometry.meta_at + self.geometry.areas.states_at(slot)
    }

    pub(crate) fn set_state(&mut self, slot: u64, state: EntryState) {
        let at = self.state_at(slot);
        let word = StateMapWord(self.word(at)).with(slot, state);
        self.set_word(at, word.0);
    }

    /// Writes an entry with a state, in its directory's home, that no log names.
    pub(super) fn path_entry(&mut self, directory: u64, name: &[u8], ino: u64, cookie: u64) -> u64 {
        let (area, mut path) = self.areas.homes[&directory].clone();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        let identity = IdentityWord(self.get_inode(ino).identity);
        let kind = identity.kind().unwrap();
        self.time += 1;
        let head = PathEntryHead {
            life: LifeWord::alive(self.time).0,
            target: TargetWord::new(ino, kind).0,
            cookie,
            parent: directory,
            generation: identity.generation(),
            area,
            ..PathEntryHead::default()
        };
        let slot = self.put_path(&head, &path);
        self.areas.entries.push(slot);
        if kind == FileKind::Directory {
            let mut roots = self.areas.roots.iter();
            let own = roots.find(|(_, root)| **root == ino);
            let own = own.map_or(0, |(number, _)| *number);
            self.set_place(ino, slot, own);
            if own == 0 {
                self.areas.homes.insert(ino, (area, path));
            }
        }
        slot
    }

    /// Writes an entry with this path and a state into new slots, with a correct hash and checksum.
    pub(crate) fn put_path(&mut self, head: &PathEntryHead, path: &[u8]) -> u64 {
        let slot = self.take(ChunkKind::Areas, PathEntryHead::slots_for(path.len()));
        self.set_path(slot, head, path);
        self.set_state(slot, EntryState::Cold);
        slot
    }

    /// Writes an entry at `slot` with a correct checksum.
    pub(crate) fn set_path(&mut self, slot: u64, head: &PathEntryHead, path: &[u8]) {
        let seal = PathSeal {
            area: area_generation(head.area),
            slot,
            directory: generation_of(head.parent),
        };
        let mut buffer = [0; PATH_ENTRY_MAX_BYTES];
        let len = head.encode(path, seal, &mut buffer);
        self.set_bytes(self.geometry.slot_at(slot), &buffer[..len]);
    }

    /// Reads an entry with a path.
    pub(crate) fn get_path(&self, slot: u64) -> (PathEntryHead, Vec<u8>) {
        let at = self.geometry.slot_at(slot) as usize;
        let (head, path) = PathEntryHead::decode_unsealed(&self.bytes[at..]).unwrap();
        (head, path.to_vec())
    }

    /// Saves what a close saves: floors, counts, tables; dead entries lose their states.
    pub(super) fn close_areas(&mut self) {
        let mut names: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for slot in self.areas.entries.clone() {
            let (head, _) = self.get_path(slot);
            if LifeWord(head.life).is_alive() {
                names.entry(head.area).or_default().push(slot);
            } else {
                self.set_state(slot, EntryState::None);
                self.edit_inode(head.parent, |inode| {
                    inode.size = inode.size.max(head.cookie + 1);
                });
            }
        }
        for (number, root) in self.areas.roots.clone() {
            let names = names.remove(&number).unwrap_or_default();
            self.close_area(number, root, &names);
        }
    }

    fn close_area(&mut self, number: u32, root: u64, names: &[u64]) {
        let is_restricting = |slot: &&u64| {
            let inode = self.get_inode(TargetWord(self.get_path(**slot).0.target).ino());
            let identity = IdentityWord(inode.identity);
            let roots = &self.areas.roots;
            identity.kind() == Some(FileKind::Directory)
                && identity.mode() & 0o111 != 0o111
                && !roots
                    .values()
                    .any(|root| self.own_entry(*root) == Some(**slot))
        };
        let counts = AreaCounts {
            names: names.len() as u32,
            restricting: names.iter().filter(is_restricting).count() as u32,
        };
        let table = self.save_table(number, names);
        let line = self.line_of(number, root, AreaPhase::Live);
        self.set_line(number, &line.saving(number, 1, table, counts));
    }

    /// The entry of a directory.
    pub(crate) fn own_entry(&self, dir: u64) -> Option<u64> {
        let names = |slot: &&u64| TargetWord(self.get_path(**slot).0.target).ino() == dir;
        self.areas.entries.iter().find(names).copied()
    }

    fn save_table(&mut self, number: u32, names: &[u64]) -> TableRoot {
        let level = self.areas.level;
        let lines = TableRoot::lines(level) as usize;
        let (mut heads, mut words) = (vec![TableHead::default(); lines], vec![Vec::new(); lines]);
        for &slot in names {
            let hash = path_hash(SEED, &self.get_path(slot).1);
            let home = TableRoot::home(hash, level) as usize;
            let mut line = home;
            if words[home].len() == 7 {
                heads[home] = heads[home].with_displaced(path_tag(hash)).unwrap();
                line = TableRoot::second(hash, level) as usize;
            }
            words[line].push(TableWord::new(slot, path_tag(hash)).0);
            assert!(words[line].len() <= 7, "the table is full");
        }
        let blocks: Vec<u64> = (0..1 << level)
            .map(|_| self.take(ChunkKind::Blocks, SLOTS_PER_BLOCK))
            .collect();
        let area = self.get_line(number).life(number);
        for (line, (head, words)) in heads.into_iter().zip(&words).enumerate() {
            let mut all = [0; 7];
            all[..words.len()].copy_from_slice(words);
            let head = head.sealed(&all, area, level, line as u64);
            let at = self.geometry.slot_at(blocks[line / 64]) + line as u64 % 64 * 64;
            self.set_word(at, head.0);
            self.set_bytes(at + 8, all.as_bytes());
        }
        let top = match &blocks[..] {
            [only] => *only,
            _ => {
                let top = self.take(ChunkKind::Blocks, SLOTS_PER_BLOCK);
                self.set_bytes(self.geometry.slot_at(top), blocks.as_bytes());
                top
            }
        };
        TableRoot::new(top, level)
    }

    /// Changes the lines of an area's table of level 0 and corrects their checks.
    pub(crate) fn change_table(&mut self, number: u32, change: impl FnOnce(&mut [[u64; 8]])) {
        let (slot, _) = TableRoot(self.get_line(number).table).get().unwrap();
        let at = self.geometry.slot_at(slot);
        let mut lines: Vec<[u64; 8]> = (0..64)
            .map(|line| std::array::from_fn(|i| self.word(at + line * 64 + i as u64 * 8)))
            .collect();
        change(&mut lines);
        let area = self.get_line(number).life(number);
        for (line, words) in (0..).zip(lines) {
            let body = std::array::from_fn(|i| words[i + 1]);
            let head = TableHead(words[0]).sealed(&body, area, 0, line);
            self.set_word(at + line * 64, head.0);
            self.set_bytes(at + line * 64 + 8, body.as_bytes());
        }
    }

    /// Sets the level of the tables of pools that are closed from now on.
    pub(crate) fn set_table_level(&mut self, level: u32) {
        self.areas.level = level;
    }
}

/// A pool with areas, not closed.
pub(crate) struct AreaSample {
    /// The pool; the contents of [`Sample`] are in area 1.
    pub(crate) sample: Sample,
    /// A directory in the root: the root of area 2, if there is one.
    pub(crate) rooted: u64,
    /// A directory in it that denies search permission to somebody.
    pub(crate) closed_to_some: u64,
    /// The entry of a file in that directory.
    pub(crate) inner: u64,
}

impl AreaSample {
    /// Leaves the list of an unfinished move, in which `inner` gets another slot; returns the slots
    /// of the list and of the new entry.
    pub(crate) fn move_inner(&mut self) -> (u64, u64) {
        let image = &mut self.sample.image;
        let (head, path) = image.get_path(self.inner);
        let copy = image.put_path(&head, &path);
        image.set_state(copy, EntryState::None);
        let entry = MovedEntry {
            word_at: image.at(image.get_inode(self.closed_to_some).root)
                + LogExtentKind::Small.words_at(),
            from: self.inner as u32,
            to: copy as u32,
        };
        // In a separate chunk, so that the slot is unused whether the pool was closed or not.
        let list = image.geometry.region_slots() - SLOTS_PER_BLOCK;
        let chunk = list / image.geometry.slots_per_chunk();
        let word = ChunkWord::new(chunk, ChunkKind::Blocks, 0);
        image.set_word(image.geometry.chunk_table_at + 8 * chunk, word.0);
        image.set_bytes(image.at(list), &MoveListHead::encode(list, 0, &[entry]));
        let at = image.line_at(0) + AreaTableHead::MOVING;
        image.set_word(at, list);
        (list, copy)
    }
}

/// A pool with every kind of structure in two areas, not closed.
pub(crate) fn area_sample() -> AreaSample {
    sample_with(2)
}

/// The same names in a single area.
pub(crate) fn one_area_sample() -> AreaSample {
    sample_with(1)
}

fn sample_with(areas: u32) -> AreaSample {
    let mut sample = sample_in(TestImage::with_areas());
    let image = &mut sample.image;
    let rooted = image.inode(FileKind::Directory, 0o700);
    if areas == 2 {
        assert_eq!(image.new_area(rooted), 2);
    }
    image.link(ROOT_SLOT, b"rooted", rooted);
    let closed_to_some = image.inode(FileKind::Directory, 0o750);
    image.link(rooted, b"some", closed_to_some);
    let file = image.inode(FileKind::File, 0o600);
    let inner = image.link(closed_to_some, b"inner", file);
    AreaSample {
        sample,
        rooted,
        closed_to_some,
        inner,
    }
}

/// A closed [`area_sample`].
pub(crate) fn closed_area_sample() -> AreaSample {
    let mut sample = area_sample();
    sample.sample.image.close();
    sample
}
