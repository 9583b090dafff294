//! The namespace *adaptive*: the area table, and the entries that the state-maps record.
//!
//! This module reads the primary structures: which areas and which entries exist, and which of two
//! entries with one name is valid. [`crate::derived`] checks the structures that lead to them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use vellum_layout::{
    AREA_LIMIT, AREA_TABLE_LINES, AreaLine, AreaPhase, AreaTableHead, BLOCK_BYTES, ChunkKind,
    FileKind, Geometry, LifeWord, PathEntryHead, PathHash, PathSeal, PoolPhase, PoolState,
    ROOT_AREA, ROOT_SLOT, SLOT_BYTES, SLOTS_PER_BLOCK, StateMapWord, StateWord, TargetWord,
    is_path, path_below, path_hash,
};
use zerocopy::FromBytes;

use crate::header::Chunks;
use crate::image::{View, Window, for_each_word};
use crate::inodes::{Found, Nodes};
use crate::journal::generation_of;
use crate::logs::{COOKIE_MAX, COOKIE_MIN, ISSUES_MAX, Logs, Name, hash_of};
use crate::report::{Class, Location, Severity, Sink};

/// An area with a sound line that is in use.
#[derive(Clone, Copy, Debug)]
pub struct Area {
    /// Its number.
    pub number: u32,
    /// Its line.
    pub line: AreaLine,
    /// Its phase.
    pub phase: AreaPhase,
}

/// The fields of an entry with a path that other entries lack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathOf {
    pub(crate) area: u32,
    pub(crate) path_len: u16,
    pub(crate) name_at: u16,
    pub(crate) hash: PathHash,
}

/// An error that no directory is to blame for.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) class: Class,
    severity: Severity,
    pub(crate) place: Location,
    pub(crate) detail: String,
}

/// The contents of the area table and of the extents of entries.
#[derive(Debug, Default)]
pub struct Areas {
    /// First slots of the blocks of the area table, in order.
    pub blocks: Vec<u64>,
    /// The areas, by number.
    pub list: Vec<Area>,
    /// Slots that hold no name, and how many: heads and maps of extents, invalid entries, blocks of
    /// hash tables.
    pub(crate) held: Vec<(u64, u64)>,
    /// The paths of entries, by slot.
    pub(crate) paths: HashMap<u64, PathOf>,
    /// The area of each directory that is a root, by node.
    pub(crate) roots: HashMap<u32, u32>,
    pub(crate) faults: Vec<Fault>,
    /// Errors in what a clean close saved, reported only if everything else is sound.
    pub(crate) derived: Vec<(Class, Location, String)>,
    /// Directories (nodes) whose recorded location is wrong.
    pub misplaced: BTreeSet<u32>,
    /// Directories (nodes) whose log does not lead to their names.
    pub misled: BTreeSet<u32>,
    /// Invalid entries, by slot, each with the valid entry of the same name.
    pub twins: HashMap<u64, u64>,
    /// Numbers of unsound lines, and whether an entry with a state names them.
    unsound: BTreeMap<u32, bool>,
}

/// An entry with a state, and its twin number among entries of one name.
struct Entry {
    name: Name,
    path: PathOf,
}

/// The area of the names in a directory, and the slot of the entry with the directory's path; none
/// for an area's root.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Home {
    area: u32,
    entry: Option<u64>,
}

/// The epoch of the close, if the pool was closed cleanly.
pub(crate) fn closed_epoch(view: &View, geometry: &Geometry) -> Option<u32> {
    let word = StateWord(view.word(geometry.state_at + PoolState::WORD));
    word.get()
        .and_then(|(phase, epoch)| (phase == PoolPhase::Clean).then_some(epoch))
}

impl Logs {
    /// Reads areas and entries, and derives the names of all directories from them.
    pub(crate) fn read_areas(
        &mut self,
        view: &View,
        geometry: &Geometry,
        chunks: &Chunks,
        nodes: &Nodes,
        seed: u64,
    ) {
        let mut areas = Areas::default();
        areas.read_table(view, geometry, chunks);
        areas.find_roots(nodes);
        let mut reader = Reader {
            logs: self,
            areas: &mut areas,
            view,
            geometry,
            chunks,
            nodes,
            seed,
            window: Window::of_slots(view, geometry),
            entries: Vec::new(),
            without: BTreeMap::new(),
        };
        reader.read_extents_of_areas();
        reader.choose();
        self.areas = areas;
    }
}

impl Areas {
    pub(crate) fn fault(
        &mut self,
        class: Class,
        severity: Severity,
        place: Location,
        detail: impl std::fmt::Display,
    ) {
        if self.faults.len() < ISSUES_MAX {
            self.faults.push(Fault {
                class,
                severity,
                place,
                detail: detail.to_string(),
            });
        }
    }

    fn read_table(&mut self, view: &View, geometry: &Geometry, chunks: &Chunks) {
        let mut slot = geometry.areas.table;
        while slot != 0 {
            let number = self.blocks.len() as u32;
            let place = Location::Slot(slot);
            let mut bytes = [0; BLOCK_BYTES as usize];
            let is_placed = chunks.holds(slot, SLOTS_PER_BLOCK, ChunkKind::Blocks);
            if is_placed {
                view.read(geometry.slot_at(slot), &mut bytes);
            }
            let (lines, _) = bytes.as_chunks::<64>();
            let head = AreaTableHead::read_from_bytes(&lines[0]).unwrap_or_default();
            let is_loop = self.blocks.contains(&slot);
            let is_beyond = u64::from(number) * AREA_TABLE_LINES >= u64::from(AREA_LIMIT);
            if !is_placed || !head.is_sound(slot, number) || is_loop || is_beyond {
                let detail = format_args!("is not block {number} of the area table");
                self.fault(Class::AreaUnsound, Severity::Damage, place, detail);
                return;
            }
            self.blocks.push(slot);
            for (i, line) in lines.iter().enumerate().skip(1) {
                let number = number * AREA_TABLE_LINES as u32 + i as u32;
                let line = AreaLine::read_from_bytes(line).unwrap_or_default();
                match line.phase(number) {
                    Some(AreaPhase::Free) => {}
                    Some(phase) => self.list.push(Area {
                        number,
                        line,
                        phase,
                    }),
                    None => {
                        self.unsound.insert(number, false);
                    }
                }
            }
            slot = head.next;
        }
    }

    /// Connects areas in use with their root directories.
    fn find_roots(&mut self, nodes: &Nodes) {
        for area in self.list.clone() {
            let place = Location::Area(area.number);
            if area.phase != AreaPhase::Live {
                let detail = format_args!("is {:?}", area.phase);
                self.fault(Class::AreaUnfinished, Severity::Residue, place, detail);
                continue;
            }
            let root = match nodes.find(area.line.root) {
                Found::Node(root) => Some(root),
                _ => None,
            };
            let root = root.filter(|&root| {
                let node = &nodes.list[root as usize];
                node.kind == FileKind::Directory
                    && node.identity.generation() == area.line.root_generation
            });
            let Some(root) = root else {
                let detail = format_args!("inode {} is not the directory", area.line.root);
                self.fault(Class::AreaNoRoot, Severity::Residue, place, detail);
                continue;
            };
            if let Some(first) = self.roots.get(&root) {
                let detail = format!("its root, inode {}, is area {first}'s", area.line.root);
                self.fault(Class::AreaTwice, Severity::Damage, place, detail);
                continue;
            }
            self.roots.insert(root, area.number);
        }
        let first = nodes.root().and_then(|root| self.roots.get(&root));
        if first != Some(&ROOT_AREA) && !self.unsound.contains_key(&ROOT_AREA) {
            let place = Location::Area(ROOT_AREA);
            let detail = "is not that of the root directory";
            self.fault(Class::AreaNoRoot, Severity::Damage, place, detail);
        }
    }

    /// The area with this number, if its line is sound and in use.
    pub(crate) fn find(&self, number: u32) -> Option<&Area> {
        let index = self.list.binary_search_by_key(&number, |area| area.number);
        index.ok().map(|index| &self.list[index])
    }

    /// Reports errors of areas; those of what a close saved only if `sink` has found nothing else.
    pub(crate) fn judge(&self, nodes: &Nodes, sink: &mut Sink) {
        for (&number, &is_named) in &self.unsound {
            if is_named || number == ROOT_AREA {
                let detail = "its line does not fit its checksum";
                sink.damage(Class::AreaUnsound, Location::Area(number), detail);
            }
        }
        for fault in &self.faults {
            match fault.severity {
                Severity::Damage => sink.damage(fault.class, fault.place, &fault.detail),
                Severity::Residue => sink.residue(fault.class, fault.place, &fault.detail),
            }
        }
        for (&root, &number) in &self.roots {
            let node = &nodes.list[root as usize];
            if node.names == 0 && node.slot != ROOT_SLOT {
                let detail = format_args!("inode {} has no name", node.slot);
                sink.residue(Class::AreaNoRoot, Location::Area(number), detail);
            }
        }
        if sink.is_sound_inside() {
            for (class, place, detail) in &self.derived {
                sink.damage(*class, *place, detail);
            }
        }
    }
}

struct Reader<'r, 'v> {
    logs: &'r mut Logs,
    areas: &'r mut Areas,
    view: &'r View<'v>,
    geometry: &'r Geometry,
    chunks: &'r Chunks,
    nodes: &'r Nodes,
    seed: u64,
    window: Window<'r, 'v>,
    entries: Vec<Entry>,
    /// Words of state-maps without the removed states, by pool offset.
    without: BTreeMap<u64, StateMapWord>,
}

impl Reader<'_, '_> {
    fn read_extents_of_areas(&mut self) {
        let plan = self.geometry.areas;
        let per_chunk = self.chunks.slots_per_chunk();
        let chunks: Vec<u64> = self.chunks.of(ChunkKind::Areas).collect();
        for chunk in chunks {
            let first = chunk * per_chunk;
            for extent in (first..first + per_chunk).step_by(plan.slots() as usize) {
                self.areas.held.push((extent, plan.first()));
                let states_at = self.geometry.meta_at + plan.states_at(extent);
                let mut words = Vec::new();
                for_each_word(self.view, states_at, plan.words(), |_, word| {
                    words.push(word);
                });
                for (group, word) in (0..).zip(words) {
                    let group = extent + group * SLOTS_PER_BLOCK;
                    for slot in StateMapWord(word).entries() {
                        self.read_entry(group + slot);
                    }
                }
            }
        }
        let without = std::mem::take(&mut self.without);
        for issue in &mut self.logs.issues {
            if let Some(word) = without.get(&issue.word_at) {
                issue.instead = vec![(issue.word_at, word.0)];
            }
        }
        self.without = without;
    }

    /// Pool offset of the state of an entry.
    fn state_at(&self, slot: u64) -> u64 {
        self.geometry.meta_at + self.geometry.areas.states_at(slot)
    }

    /// Marks the state of `slot` for removal.
    fn drop_state(&mut self, slot: u64) {
        let at = self.state_at(slot);
        let word = self.view.word(at);
        let word = self.without.entry(at).or_insert(StateMapWord(word));
        *word = word.with(slot, vellum_layout::EntryState::None);
    }

    fn read_entry(&mut self, slot: u64) {
        let reason = match self.entry_at(slot) {
            Ok(entry) => {
                self.entries.push(entry);
                return;
            }
            Err(reason) => reason,
        };
        self.drop_state(slot);
        let (directory, class, detail) = reason;
        let place = Location::Slot(slot);
        let is_open = closed_epoch(self.view, self.geometry).is_none();
        if is_open && self.is_of_a_removed_directory(slot) {
            return;
        }
        match directory {
            Some(directory) => {
                let at = self.state_at(slot);
                self.logs.issue(directory, class, place, at, detail);
                // A living entry was not removed with its directory.
                let life = self.geometry.slot_at(slot) + PathEntryHead::LIFE;
                if let Some(issue) = self.logs.issues.last_mut() {
                    issue.stands = LifeWord(self.view.word(life)).is_alive();
                }
            }
            None => self.areas.fault(class, Severity::Damage, place, detail),
        }
    }

    /// Whether the entry at `slot` is dead and names an inode that is free now: its state was about
    /// to be removed, which recovery does.
    fn is_of_a_removed_directory(&self, slot: u64) -> bool {
        let at = self.geometry.slot_at(slot);
        let parent = self.view.word(at + PathEntryHead::PARENT);
        let is_inode = self.chunks.kind_of(parent) == Some(ChunkKind::Inodes);
        let is_dead = !LifeWord(self.view.word(at + PathEntryHead::LIFE)).is_alive();
        let target = TargetWord(self.view.word(at + PathEntryHead::TARGET));
        let is_entry = self.geometry.areas.has_room(slot, 1) && target.kind().is_some();
        is_entry && is_dead && is_inode && matches!(self.nodes.find(parent), Found::Free)
    }

    /// The sound entry at `slot`; otherwise the directory to blame, if there is one, and the error.
    fn entry_at(&mut self, slot: u64) -> Result<Entry, (Option<u32>, Class, String)> {
        let none = |what: &str| (None, Class::StateNoEntry, what.to_owned());
        if !self.geometry.areas.has_room(slot, 1) {
            return Err(none("no entry begins here"));
        }
        let at = self.geometry.slot_at(slot);
        let room = (SLOTS_PER_BLOCK - slot % SLOTS_PER_BLOCK) * SLOT_BYTES;
        let room = room.min(vellum_layout::PATH_ENTRY_MAX_BYTES as u64) as usize;
        let bytes = self.window.get(at, room);
        let bytes = bytes.ok_or_else(|| none("no entry begins here"))?;
        let Some((head, path)) = PathEntryHead::decode_unsealed(bytes) else {
            return Err(none("there is no entry"));
        };
        let directory = match self.nodes.find(head.parent) {
            Found::Node(node) if self.nodes.list[node as usize].kind == FileKind::Directory => node,
            _ => {
                let detail = format!(
                    "the entry is of inode {}, which is not a directory",
                    head.parent
                );
                return Err(none(&detail));
            }
        };
        let Some(area) = self.areas.find(head.area) else {
            if let Some(is_named) = self.areas.unsound.get_mut(&head.area) {
                *is_named = true;
            }
            // Dead names of a removed directory may outlive its area.
            let detail = format!("the entry is of area {}, which is not in use", head.area);
            return Err((Some(directory), Class::StateNoEntry, detail));
        };
        let unsound = |what: &str| (Some(directory), Class::EntryUnsound, what.to_owned());
        let seal = PathSeal {
            area: area.line.generation,
            slot,
            directory: self.nodes.list[directory as usize].identity.generation(),
        };
        if PathEntryHead::decode(bytes, seal).is_none() {
            return Err(unsound("it does not fit its checksum"));
        }
        let target = TargetWord(head.target);
        let kind = target.kind().filter(|_| !target.has_reserved());
        let kind = kind.ok_or_else(|| unsound("it names a file of unknown kind"))?;
        if !is_path(path) {
            let text = path.escape_ascii().to_string();
            return Err((Some(directory), Class::EntryName, format!("{text:?}")));
        }
        if !(COOKIE_MIN..=COOKIE_MAX).contains(&head.cookie) {
            let detail = format!("has cookie {}", head.cookie);
            return Err((Some(directory), Class::Cookies, detail));
        }
        let name = head.name(path);
        let life = LifeWord(head.life);
        Ok(Entry {
            name: Name {
                word_at: at + PathEntryHead::LIFE,
                word_without: 0,
                text_at: at + PathEntryHead::PATH + u64::from(head.name_at),
                text_len: name.len() as u16,
                slot,
                slots: PathEntryHead::slots_for(path.len()) as u8,
                kind,
                alive: life.is_alive(),
                directory,
                sequence: 0,
                ino: target.ino(),
                generation: head.generation,
                cookie: head.cookie,
                hash: hash_of(name),
                ns: life.ns(),
            },
            path: PathOf {
                area: head.area,
                path_len: head.path_len,
                name_at: head.name_at,
                hash: path_hash(self.seed, path),
            },
        })
    }

    /// Decides which entries are names: one of each group of twins.
    fn choose(&mut self) {
        let mut entries = std::mem::take(&mut self.entries);
        let key = |entry: &Entry| (entry.name.directory, entry.name.cookie);
        entries.sort_unstable_by_key(|entry| (key(entry), entry.name.slot));
        self.areas.paths = entries
            .iter()
            .map(|entry| (entry.name.slot, entry.path))
            .collect();
        let homes = Homes::of(&entries, &self.areas.roots, self.nodes, self);
        let groups: Vec<&[Entry]> = entries.chunk_by(|a, b| key(a) == key(b)).collect();
        for (sequence, group) in groups.into_iter().enumerate() {
            let chosen = if let [alone] = group {
                if alone.name.alive && homes.fits(self, alone) == Some(false) {
                    let place = Location::Slot(alone.name.slot);
                    let detail = "its path does not continue that of its directory";
                    let (directory, at) = (alone.name.directory, alone.name.word_at);
                    self.logs
                        .issue(directory, Class::PathWrong, place, at, detail);
                }
                alone
            } else {
                self.choose_twin(group, &homes)
            };
            let mut name = chosen.name;
            name.sequence = sequence as u32;
            self.logs.names.push(name);
        }
    }

    /// The valid one of several entries of one name: a dead one, otherwise one whose path fits.
    fn choose_twin<'e>(&mut self, group: &'e [Entry], homes: &Homes<'e>) -> &'e Entry {
        let dead = group.iter().find(|entry| !entry.name.alive);
        let mut fitting = Vec::new();
        if dead.is_none() {
            let fits = |entry: &&Entry| homes.fits(self, entry) == Some(true);
            fitting.extend(group.iter().filter(fits));
        }
        let chosen = dead.or(fitting.first().copied()).unwrap_or(&group[0]);
        for entry in group
            .iter()
            .filter(|entry| entry.name.slot != chosen.name.slot)
        {
            let place = Location::Slot(entry.name.slot);
            let detail = format!(
                "the name with cookie {} of inode {} is at slot {}, too",
                entry.name.cookie,
                self.nodes.list[entry.name.directory as usize].slot,
                chosen.name.slot
            );
            self.areas
                .fault(Class::Twins, Severity::Damage, place, detail);
            self.areas.twins.insert(entry.name.slot, chosen.name.slot);
            self.areas
                .held
                .push((entry.name.slot, u64::from(entry.name.slots)));
        }
        chosen
    }

    /// The path of the entry at `slot` up to its name.
    fn directory_path(&self, slot: u64, path: PathOf) -> Vec<u8> {
        self.text(slot, usize::from(path.name_at).saturating_sub(1))
    }

    /// The first `len` bytes of the path of the entry at `slot`.
    fn text(&self, slot: u64, len: usize) -> Vec<u8> {
        let mut text = vec![0; len];
        let at = self.geometry.slot_at(slot) + PathEntryHead::PATH;
        self.view.read(at, &mut text);
        text
    }
}

/// The homes of directories.
struct Homes<'e> {
    /// The living entries that name each directory, except those with a dead twin.
    own: HashMap<u32, Vec<&'e Entry>>,
    /// Known homes; `None` while a directory is being resolved, or has none.
    known: HashMap<u32, Option<Home>>,
}

impl<'e> Homes<'e> {
    fn of(
        entries: &'e [Entry],
        roots: &HashMap<u32, u32>,
        nodes: &Nodes,
        reader: &Reader<'_, '_>,
    ) -> Self {
        let mut own: HashMap<u32, Vec<&Entry>> = HashMap::new();
        let key = |entry: &Entry| (entry.name.directory, entry.name.cookie);
        for group in entries.chunk_by(|a, b| key(a) == key(b)) {
            let is_alive = group.iter().all(|entry| entry.name.alive);
            for entry in group
                .iter()
                .filter(|entry| is_alive && entry.name.kind == FileKind::Directory)
            {
                if let Some(node) = crate::tree::target(nodes, &entry.name) {
                    own.entry(node).or_default().push(entry);
                }
            }
        }
        let area = |(&root, &area): (&u32, &u32)| (root, Some(Home { area, entry: None }));
        let known = roots.iter().map(area).collect();
        let mut homes = Self { own, known };
        let all: Vec<u32> = homes.own.keys().copied().collect();
        for directory in all {
            homes.ask(reader, directory);
        }
        homes
    }

    /// Finds the home of a directory. If two entries name it, the home of its parent directory
    /// decides.
    fn ask(&mut self, reader: &Reader<'_, '_>, directory: u32) {
        let mut asked = vec![directory];
        let mut waiting = std::collections::HashSet::new();
        while let Some(&at) = asked.last() {
            if self.known.contains_key(&at) {
                asked.pop();
                continue;
            }
            let own = self.own.get(&at).cloned().unwrap_or_default();
            if own.len() > 1 && waiting.insert(at) {
                let above = own.iter().map(|entry| entry.name.directory);
                let unknown = |up: &u32| !self.known.contains_key(up) && !waiting.contains(up);
                asked.extend(above.filter(unknown));
                continue;
            }
            let chosen = match &own[..] {
                [] | [_] => own.first().copied(),
                _ => own
                    .iter()
                    .copied()
                    .find(|entry| self.fits(reader, entry) == Some(true))
                    .or(own.first().copied()),
            };
            let home = chosen.map(|entry| Home {
                area: entry.path.area,
                entry: Some(entry.name.slot),
            });
            self.known.insert(at, home);
            asked.pop();
        }
    }

    /// Whether a name lies in its directory's home and its path continues that of its directory;
    /// `None` if the directory has no home, because nothing sound names it.
    fn fits(&self, reader: &Reader<'_, '_>, entry: &Entry) -> Option<bool> {
        let home = (*self.known.get(&entry.name.directory)?)?;
        if home.area != entry.path.area {
            return Some(false);
        }
        let path = home.entry.map_or(Vec::new(), |slot| {
            let len = reader.areas.paths.get(&slot).map_or(0, |of| of.path_len);
            path_below(&reader.text(slot, usize::from(len))).to_vec()
        });
        Some(path == reader.directory_path(entry.name.slot, entry.path))
    }
}

/// The checksum of the entry with a path at pool offset `at`, if it is sound.
pub(crate) fn checksum_at(view: &View, geometry: &Geometry, at: u64) -> Option<u32> {
    let inside = at.checked_sub(geometry.meta_at)?;
    let slot = inside / SLOT_BYTES;
    let is_placed = inside.is_multiple_of(SLOT_BYTES)
        && slot < geometry.meta_slots()
        && geometry.areas.has_room(slot, 1);
    is_placed.then_some(())?;
    let room = (SLOTS_PER_BLOCK - slot % SLOTS_PER_BLOCK) * SLOT_BYTES;
    let mut bytes = vec![0; room.min(vellum_layout::PATH_ENTRY_MAX_BYTES as u64) as usize];
    view.read(at, &mut bytes);
    let (head, _) = PathEntryHead::decode_unsealed(&bytes)?;
    let seal = PathSeal {
        area: generation_of_area(view, geometry, head.area)?,
        slot,
        directory: generation_of(view, geometry, head.parent),
    };
    PathEntryHead::decode(&bytes, seal).map(|(head, _)| head.checksum)
}

/// The generation of area `number`, if the area table has a sound line for it.
fn generation_of_area(view: &View, geometry: &Geometry, number: u32) -> Option<u32> {
    let mut slot = geometry.areas.table;
    for block in 0..number / AREA_TABLE_LINES as u32 {
        let head = head_of_table(view, geometry, slot, block)?;
        slot = head.next;
    }
    head_of_table(view, geometry, slot, number / AREA_TABLE_LINES as u32)?;
    let line = u64::from(number) % AREA_TABLE_LINES;
    let bytes: [u8; 64] = view.bytes(geometry.slot_at(slot) + line * 64);
    let line = AreaLine::read_from_bytes(&bytes).ok()?;
    let phase = line.phase(number)?;
    (phase != AreaPhase::Free).then_some(line.generation)
}

fn head_of_table(
    view: &View,
    geometry: &Geometry,
    slot: u64,
    number: u32,
) -> Option<AreaTableHead> {
    let is_placed = slot != 0 && slot + SLOTS_PER_BLOCK <= geometry.meta_slots();
    is_placed.then_some(())?;
    let bytes: [u8; 64] = view.bytes(geometry.slot_at(slot));
    let head = AreaTableHead::read_from_bytes(&bytes).ok()?;
    head.is_sound(slot, number).then_some(head)
}
