//! Structures that lead to the entries of the namespace *adaptive*: words of the directories' logs,
//! and the locations in directories' inodes. Also the hash tables and counts of areas that a clean
//! close saves; they are meaningless in a pool that was not closed.

use std::collections::{HashMap, HashSet};

use vellum_layout::{
    AreaCounts, AreaLife, AreaPhase, BLOCK_BYTES, ChunkKind, DirLocation, EntryState, FileKind,
    Geometry, LifeWord, PATH_ENTRY_MAX_BYTES, PathEntryHead, PathHash, PathSeal, ROOT_SLOT,
    SLOT_BYTES, SLOTS_PER_BLOCK, StateMapWord, TABLE_BLOCK_LINES, TABLE_LINE_WORDS, TableHead,
    TableRoot, TableWord, TargetWord, path_tag,
};

use crate::areas::{Area, closed_epoch};
use crate::header::Chunks;
use crate::image::View;
use crate::inodes::{Node, Nodes};
use crate::logs::{ISSUES_MAX, Logs, Name, Word, hash_of};
use crate::report::{Class, Location, Severity};

/// Search permission for everybody.
const SEARCH_ALL: u16 = 0o111;

struct Reader<'r, 'v> {
    logs: &'r mut Logs,
    view: &'r View<'v>,
    geometry: &'r Geometry,
    chunks: &'r Chunks,
    nodes: &'r Nodes,
    is_closed: bool,
    /// The slot of each directory's own entry, by node. Other entries are left by a crash.
    own: HashMap<u32, u64>,
}

impl Logs {
    /// Reads the structures that lead to the known names, and, if the pool was closed, what the
    /// close saved.
    pub(crate) fn read_derived(
        &mut self,
        view: &View,
        geometry: &Geometry,
        chunks: &Chunks,
        nodes: &Nodes,
    ) {
        let words = std::mem::take(&mut self.words);
        let epoch = closed_epoch(view, geometry);
        let mut own: HashMap<u32, u64> = nodes.root().map(|root| (root, 0)).into_iter().collect();
        for name in self.names.iter().filter(|name| name.alive) {
            if let Some(node) = crate::tree::target(nodes, name) {
                own.entry(node).or_insert(name.slot);
            }
        }
        let mut reader = Reader {
            logs: self,
            view,
            geometry,
            chunks,
            nodes,
            is_closed: epoch.is_some(),
            own,
        };
        reader.read_words(&words);
        reader.judge_places();
        let Some(epoch) = epoch else {
            return;
        };
        let mut names: HashMap<u32, Vec<Name>> = HashMap::new();
        for name in reader.logs.names.iter().filter(|name| name.alive) {
            if let Some(path) = reader.logs.areas.paths.get(&name.slot) {
                names.entry(path.area).or_default().push(*name);
            }
        }
        let areas = reader.logs.areas.list.clone();
        for area in areas.iter().filter(|area| area.phase == AreaPhase::Live) {
            let names = names.remove(&area.number).unwrap_or_default();
            reader.judge_area(area, epoch, &names);
        }
    }
}

impl Reader<'_, '_> {
    fn say(&mut self, class: Class, place: Location, detail: impl std::fmt::Display) {
        let derived = &mut self.logs.areas.derived;
        if derived.len() < ISSUES_MAX {
            derived.push((class, place, detail.to_string()));
        }
    }

    fn say_of(&mut self, class: Class, directory: u32, detail: impl std::fmt::Display) {
        let place = Location::Inode(self.nodes.list[directory as usize].slot);
        let areas = &mut self.logs.areas;
        match class {
            Class::PlaceWrong => areas.misplaced.insert(directory),
            _ => areas.misled.insert(directory),
        };
        areas.fault(class, Severity::Damage, place, detail);
    }

    /// Checks that every living name has its word in its directory's log, that every other word
    /// names a dead entry or, in a pool that was not closed, no entry yet, and that cookies ascend.
    fn read_words(&mut self, words: &[Word]) {
        let by_slot = |(index, name): (usize, &Name)| (name.slot, index);
        let by_slot: HashMap<u64, usize> =
            self.logs.names.iter().enumerate().map(by_slot).collect();
        let mut last: HashMap<u32, u64> = HashMap::new();
        let mut seen = HashSet::new();
        for word in words {
            let index = by_slot.get(&word.entry);
            let is_left = !self.own.contains_key(&word.directory);
            if is_left || index.is_none() && self.is_nothing_yet(word.entry) {
                continue;
            }
            let name = match index {
                Some(&index) => Some(self.logs.names[index]),
                None => self.dead_entry(word),
            };
            let name = name.filter(|name| {
                let last = last.entry(word.directory).or_default();
                let before = std::mem::replace(last, name.cookie);
                let is_placed =
                    name.cookie == word.cookie || !word.exact && name.cookie > word.cookie;
                name.directory == word.directory && is_placed && before < name.cookie
            });
            match name {
                Some(name) => {
                    if seen.insert(name.slot) && !by_slot.contains_key(&name.slot) {
                        self.logs.names.push(name);
                    }
                }
                None => {
                    let detail = format_args!("a word of its log leads to slot {}", word.entry);
                    self.say_of(Class::LogWord, word.directory, detail);
                }
            }
        }
        let names = &mut self.logs.names;
        let is_missing = |name: &&Name| {
            let is_due = name.alive || self.is_closed;
            is_due && self.own.contains_key(&name.directory) && !seen.contains(&name.slot)
        };
        let missing: Vec<Name> = names.iter().filter(is_missing).copied().collect();
        names.sort_unstable_by_key(|name| (name.directory, name.cookie, name.slot));
        (0..)
            .zip(names)
            .for_each(|(sequence, name)| name.sequence = sequence);
        for name in missing {
            let detail = format_args!("no word of its log leads to slot {}", name.slot);
            self.say_of(Class::LogWord, name.directory, detail);
        }
    }

    /// Whether no entry begins at `slot` yet: a crash came between an entry's word and its state.
    fn is_nothing_yet(&self, slot: u64) -> bool {
        let has_states = || self.chunks.kind_of(slot) == Some(ChunkKind::Areas);
        !self.is_closed && has_states() && {
            let at = self.geometry.meta_at + self.geometry.areas.states_at(slot);
            StateMapWord(self.view.word(at)).get(slot) == EntryState::None
        }
    }

    /// The dead entry without a state that a word leads to.
    fn dead_entry(&self, word: &Word) -> Option<Name> {
        let slot = word.entry;
        let is_placed = self.chunks.kind_of(slot) == Some(ChunkKind::Areas)
            && self.geometry.areas.has_room(slot, 1);
        is_placed.then_some(())?;
        let room = (SLOTS_PER_BLOCK - slot % SLOTS_PER_BLOCK) * SLOT_BYTES;
        let mut bytes = vec![0; room.min(PATH_ENTRY_MAX_BYTES as u64) as usize];
        let at = self.geometry.slot_at(slot);
        self.view.read(at, &mut bytes);
        let (head, path) = PathEntryHead::decode_unsealed(&bytes)?;
        let node = &self.nodes.list[word.directory as usize];
        let seal = PathSeal {
            area: self.logs.areas.find(head.area)?.line.generation,
            slot,
            directory: node.identity.generation(),
        };
        PathEntryHead::decode(&bytes, seal)?;
        let life = LifeWord(head.life);
        let is_gone = !life.is_alive() && head.parent == node.slot && head.cookie < node.size;
        let name = head.name(path);
        is_gone.then_some(())?;
        Some(Name {
            word_at: word.at,
            word_without: 0,
            text_at: at + PathEntryHead::PATH + u64::from(head.name_at),
            text_len: name.len() as u16,
            slot,
            slots: PathEntryHead::slots_for(path.len()) as u8,
            kind: TargetWord(head.target).kind()?,
            alive: false,
            directory: word.directory,
            sequence: word.sequence,
            ino: TargetWord(head.target).ino(),
            generation: head.generation,
            cookie: head.cookie,
            hash: hash_of(name),
            ns: life.ns(),
        })
    }

    /// Checks the recorded locations in the inodes of directories.
    fn judge_places(&mut self) {
        for (number, node) in (0..).zip(&self.nodes.list) {
            let (FileKind::Directory, Some(&entry)) = (node.kind, self.own.get(&number)) else {
                continue;
            };
            let area = self.logs.areas.roots.get(&number).copied().unwrap_or(0);
            if node.detail != DirLocation::new(entry, area).0 {
                let detail =
                    format_args!("is entry {entry} and area {area}, not {:#x}", node.detail);
                self.say_of(Class::PlaceWrong, number, detail);
            }
        }
    }

    /// Checks what the close in `epoch` saved of an area with these names.
    fn judge_area(&mut self, area: &Area, epoch: u32, names: &[Name]) {
        let place = Location::Area(area.number);
        let is_restricting = |name: &&Name| {
            let node = crate::tree::target(self.nodes, name);
            node.is_some_and(|node| {
                let Node { kind, identity, .. } = &self.nodes.list[node as usize];
                *kind == FileKind::Directory
                    && !self.logs.areas.roots.contains_key(&node)
                    && identity.mode() & SEARCH_ALL != SEARCH_ALL
            })
        };
        let found = AreaCounts {
            names: names.len() as u32,
            restricting: names.iter().filter(is_restricting).count() as u32,
        };
        // A check that does not fit is of an earlier close, and its values are ignored.
        let Some((table, counts)) = area.line.saved(area.number, epoch) else {
            return;
        };
        if counts != found {
            let detail = format_args!("{counts:?} were saved, {found:?} are");
            self.say(Class::AreaCounts, place, detail);
        }
        if table != TableRoot::NONE {
            self.judge_table(area, table, names);
        }
    }

    /// Checks that every name of the area has exactly one word in one of its two lines, that there
    /// are no other words, and that the heads count them.
    fn judge_table(&mut self, area: &Area, root: TableRoot, names: &[Name]) {
        let place = Location::Area(area.number);
        let Some((level, blocks)) = self.blocks_of(root) else {
            let detail = format_args!("{:#x} leads to no table", root.0);
            return self.say(Class::AreaTable, place, detail);
        };
        let paths = &self.logs.areas.paths;
        let hash = |name: &Name| Some((name.slot, paths.get(&name.slot)?.hash));
        let mut table = Table {
            area: area.line.life(area.number),
            level,
            wanted: names.iter().filter_map(hash).collect(),
            heads: HashMap::new(),
            displaced: Vec::new(),
            wrong: Vec::new(),
        };
        for (number, &block) in (0..).zip(&blocks) {
            for line in 0..TABLE_BLOCK_LINES {
                let at = self.geometry.slot_at(block) + line * 64;
                table.take_line(number * TABLE_BLOCK_LINES + line, self.view.bytes(at));
            }
        }
        let held = blocks.iter().map(|&slot| (slot, SLOTS_PER_BLOCK));
        self.logs.areas.held.extend(held);
        for detail in table.finish() {
            self.say(Class::AreaTable, place, detail);
        }
    }

    /// The level of a table and its blocks in order; adds blocks of numbers to the held slots.
    fn blocks_of(&mut self, root: TableRoot) -> Option<(u32, Vec<u64>)> {
        let (slot, level) = root.get()?;
        let mut blocks = vec![slot];
        let mut seen: HashSet<u64> = HashSet::new();
        for below in (0..TableRoot::depth(level)).rev() {
            let count = (1u64 << level) >> (9 * below);
            let mut next = Vec::new();
            for &block in &blocks {
                self.is_block(block, &mut seen).then_some(())?;
                let mut bytes = [0; BLOCK_BYTES as usize];
                self.view.read(self.geometry.slot_at(block), &mut bytes);
                let (numbers, _) = bytes.as_chunks::<8>();
                let left = (count as usize - next.len()).min(numbers.len());
                next.extend(
                    numbers[..left]
                        .iter()
                        .map(|number| u64::from_le_bytes(*number)),
                );
            }
            self.logs
                .areas
                .held
                .extend(blocks.iter().map(|&slot| (slot, SLOTS_PER_BLOCK)));
            blocks = next;
        }
        let are_blocks = blocks.iter().all(|&block| self.is_block(block, &mut seen));
        are_blocks.then_some((level, blocks))
    }

    /// Whether `slot` begins a metadata block that was not seen before.
    fn is_block(&self, slot: u64, seen: &mut HashSet<u64>) -> bool {
        slot != ROOT_SLOT
            && slot.is_multiple_of(SLOTS_PER_BLOCK)
            && self.chunks.holds(slot, SLOTS_PER_BLOCK, ChunkKind::Blocks)
            && seen.insert(slot)
    }
}

/// A hash table being read.
struct Table {
    area: AreaLife,
    level: u32,
    /// The names without a word so far, by slot.
    wanted: HashMap<u64, PathHash>,
    /// The heads that count words in second lines.
    heads: HashMap<u64, TableHead>,
    /// Home line and tag of the words in second lines.
    displaced: Vec<(u64, u32)>,
    wrong: Vec<String>,
}

impl Table {
    fn say(&mut self, detail: String) {
        if self.wrong.len() < ISSUES_MAX {
            self.wrong.push(detail);
        }
    }

    fn take_line(&mut self, line: u64, bytes: [u8; 64]) {
        let (all, _) = bytes.as_chunks::<8>();
        let head = TableHead(u64::from_le_bytes(all[0]));
        let words: [u64; TABLE_LINE_WORDS] =
            std::array::from_fn(|i| u64::from_le_bytes(all[i + 1]));
        if !head.is_sealed(&words, self.area, self.level, line) {
            self.say(format!("line {line} of its table does not fit its check"));
        }
        if head.displaced() != 0 {
            self.heads.insert(line, head);
        }
        for word in words.map(TableWord).into_iter().filter(|word| word.0 != 0) {
            let fits = |hash: &PathHash| word.is_used() && word.tag() == path_tag(*hash);
            match self.wanted.remove(&word.slot()).filter(fits) {
                Some(hash) if TableRoot::home(hash, self.level) == line => {}
                Some(hash) if TableRoot::second(hash, self.level) == line => {
                    let home = TableRoot::home(hash, self.level);
                    self.displaced.push((home, word.tag()));
                }
                _ => self.say(format!("line {line} of its table has word {:#x}", word.0)),
            }
        }
    }

    /// The remaining errors of the table, once all of its lines were read.
    fn finish(mut self) -> Vec<String> {
        for slot in std::mem::take(&mut self.wanted).into_keys() {
            self.say(format!("no word of its table leads to slot {slot}"));
        }
        let mut displaced = std::mem::take(&mut self.displaced);
        displaced.sort_unstable();
        for home in displaced.chunk_by(|a, b| a.0 == b.0) {
            let head = self.heads.remove(&home[0].0).unwrap_or_default();
            let knows = home.iter().all(|&(_, tag)| head.may_have(tag));
            if head.displaced() != home.len() as u64 || !knows {
                let count = home.len();
                self.say(format!(
                    "line {} of its table does not count {count}",
                    home[0].0
                ));
            }
        }
        for line in std::mem::take(&mut self.heads).into_keys() {
            self.say(format!(
                "line {line} of its table counts words that are not there"
            ));
        }
        self.wrong
    }
}
