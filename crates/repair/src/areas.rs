//! Names in areas (the namespace *adaptive*): the area table, states, paths, and everything that
//! leads to names.
//!
//! Entries and their states define the names; logs and locations are recreated from them. All names
//! move to the area of the root: other area roots only affect how fast directories are renamed.

use std::collections::{BTreeMap, HashMap, HashSet};

use vellum_check::Class;
use vellum_check::survey::{self, Found, Name, Node, Survey};
use vellum_layout::{
    AREA_TABLE_LINES, AreaLife, AreaLine, AreaPhase, AreaTableHead, ChunkKind, DirLocation,
    EntryState, FileKind, Geometry, IdentityWord, Inode, LifeWord, LogOwner, NamespaceKind,
    PATH_ENTRY_MAX_BYTES, PathEntryHead, PathSeal, ROOT_AREA, ROOT_SLOT, SLOT_BYTES,
    SLOTS_PER_BLOCK, StateMapWord, path_below,
};
use zerocopy::{FromBytes, IntoBytes};

use crate::draft::Draft;
use crate::extents::{Log, log_of};
use crate::room::{Directory, Named, Tail, Target};

/// Generation of the root's area if none is recorded.
pub(crate) const AREA_GENERATION: u32 = 1;

/// The path of `name` in a directory whose names continue the path `above`.
pub(crate) fn join(above: &[u8], name: &[u8]) -> Vec<u8> {
    match above {
        [] => name.to_vec(),
        above => [above, b"/", name].concat(),
    }
}

/// Pool offset of the word that leads to the list of a move.
pub(crate) fn moving_at(geometry: &Geometry) -> u64 {
    geometry.slot_at(geometry.areas.table) + AreaTableHead::MOVING
}

impl Draft<'_> {
    pub(crate) fn has_areas(&self) -> bool {
        self.geometry.namespace == NamespaceKind::Adaptive
    }

    /// Pool offset of the word with the state of `slot`.
    fn state_at(&self, slot: u64) -> u64 {
        self.geometry.meta_at + self.geometry.areas.states_at(slot)
    }

    fn state(&self, slot: u64) -> EntryState {
        StateMapWord(self.word(self.state_at(slot))).get(slot)
    }

    pub(crate) fn set_state(&self, slot: u64, state: EntryState) {
        let at = self.state_at(slot);
        let word = StateMapWord(self.word(at)).with(slot, state);
        self.set(at, word.0);
    }

    /// Removes a name from its directory; its inode keeps other names.
    pub(crate) fn drop_name(&self, name: &Name) {
        if self.has_areas() {
            self.set_state(name.slot, EntryState::None);
        } else {
            self.set(name.word_at, name.word_without);
        }
    }

    /// As [`Self::drop_name`], and marks the entry as dead so that it is not found again.
    fn bury(&self, name: &Name) {
        let at = self.geometry.slot_at(name.slot) + PathEntryHead::LIFE;
        self.set(at, LifeWord::dead(name.ns).0);
        self.drop_name(name);
    }

    /// The sound blocks of the area table, in their order.
    fn table_blocks(&self) -> impl Iterator<Item = u64> {
        let first = Some((self.geometry.areas.table, 0));
        let blocks = std::iter::successors(first, |&(slot, number)| {
            let next = self.table_head(slot).next;
            let number = number + 1;
            let is_placed = next != 0 && next + SLOTS_PER_BLOCK <= self.geometry.meta_slots();
            let is_sound = is_placed && self.table_head(next).is_sound(next, number);
            is_sound.then_some((next, number))
        });
        blocks.map(|(slot, _)| slot)
    }

    fn table_head(&self, slot: u64) -> AreaTableHead {
        let bytes: [u8; 64] = self.overlay.bytes(self.geometry.slot_at(slot));
        AreaTableHead::read_from_bytes(&bytes).unwrap_or_default()
    }

    /// Pool offset of an area's line, if the table is long enough.
    fn area_line_at(&self, number: u32) -> Option<u64> {
        let number = u64::from(number);
        let (block, line) = (number / AREA_TABLE_LINES, number % AREA_TABLE_LINES);
        let slot = (line != 0).then(|| self.table_blocks().nth(block as usize))??;
        Some(self.geometry.slot_at(slot) + line * 64)
    }

    fn area_line(&self, number: u32) -> AreaLine {
        let at = self.area_line_at(number);
        let bytes: Option<[u8; 64]> = at.map(|at| self.overlay.bytes(at));
        bytes.map_or_else(AreaLine::default, |bytes| {
            AreaLine::read_from_bytes(&bytes).unwrap_or_default()
        })
    }

    fn set_area_line(&self, number: u32, line: &AreaLine) {
        if let Some(at) = self.area_line_at(number) {
            self.overlay.set_bytes(at, line.as_bytes());
        }
    }

    fn generation_of(&self, ino: u64) -> Option<u32> {
        let is_slot = ino != 0 && ino < self.geometry.meta_slots();
        is_slot.then(|| IdentityWord(self.inode(ino).identity).generation())
    }

    /// The entry at `slot` and its path, if it is sound in this life of its area.
    fn path_entry_of(&self, slot: u64, area: u32) -> Option<(PathEntryHead, Vec<u8>)> {
        self.geometry.areas.has_room(slot, 1).then_some(())?;
        let bytes: [u8; PATH_ENTRY_MAX_BYTES] = self.overlay.bytes(self.geometry.slot_at(slot));
        let (head, path) = PathEntryHead::decode_unsealed(&bytes)?;
        let seal = PathSeal {
            area,
            slot,
            directory: self.generation_of(head.parent)?,
        };
        let slots = PathEntryHead::slots_for(path.len());
        self.geometry.areas.has_room(slot, slots).then_some(())?;
        let (head, path) = PathEntryHead::decode(&bytes, seal)?;
        Some((head, path.to_vec()))
    }

    /// The entry at `slot` and its path, if it is sound in any area with a line.
    pub(crate) fn path_entry(&self, slot: u64) -> Option<(PathEntryHead, Vec<u8>)> {
        let at = self.geometry.slot_at(slot) + PathEntryHead::PATH_WORD;
        let number = (self.word(at) >> 32) as u32;
        self.area_line_at(number)?;
        self.path_entry_of(slot, self.area_line(number).generation)
    }

    /// Writes a valid entry with this path in the root's area.
    fn put_path_entry(
        &mut self,
        survey: &Survey,
        dir: Directory,
        path: &[u8],
        named: Named,
    ) -> Option<u64> {
        let slots = PathEntryHead::slots_for(path.len());
        let slot = self.take_slots(survey, ChunkKind::Areas, slots)?;
        let seal = PathSeal {
            area: self.area_line(ROOT_AREA).generation,
            slot,
            directory: dir.generation,
        };
        let head = named.path_entry(dir.ino);
        let mut buffer = [0; PATH_ENTRY_MAX_BYTES];
        let len = head.encode(path, seal, &mut buffer);
        self.put_slots(slot, slots, &buffer[..len]);
        self.set_state(slot, EntryState::Cold);
        Some(slot)
    }

    /// Adds a name to a directory; `None` if there is no space. Its log is created later.
    pub(crate) fn append_path(
        &mut self,
        survey: &Survey,
        dir: Directory,
        name: &[u8],
        target: Target,
    ) -> Option<()> {
        let above = match self.paths.get(&dir.ino) {
            Some(path) => path.clone(),
            None => path_of(survey, dir.ino)?,
        };
        let path = join(path_below(&above), name);
        let cookie = self.next_cookie(survey, dir);
        let named = Named {
            target,
            cookie,
            ns: self.now_ns,
        };
        let slot = self.put_path_entry(survey, dir, &path, named)?;
        if target.kind == FileKind::Directory {
            self.set(
                self.field(target.ino, Inode::DETAIL),
                DirLocation::new(slot, 0).0,
            );
            self.paths.insert(target.ino, path);
        }
        self.tails.insert(dir.ino, Tail::of_records(cookie + 1));
        Some(())
    }

    /// Sets the state of an entry without one, unless another entry has its cookie.
    pub(crate) fn restate(&mut self, survey: &Survey, slot: u64) -> Option<()> {
        let (head, _) = self.path_entry(slot)?;
        let key = (head.parent, head.cookie);
        if self.cookies.is_empty() {
            let names = survey.logs.names.iter();
            let slot_of = |name: &Name| survey.nodes.list[name.directory as usize].slot;
            self.cookies = names.map(|name| (slot_of(name), name.cookie)).collect();
        }
        let is_cookie = (3..=i64::MAX as u64).contains(&head.cookie);
        let is_new = is_cookie && self.cookies.insert(key);
        is_new.then(|| self.set_state(slot, EntryState::Cold))
    }
}

/// The path of the directory with inode `ino`, by the names that lead to it.
fn path_of(survey: &Survey, ino: u64) -> Option<Vec<u8>> {
    let nodes = &survey.nodes.list;
    let Found::Node(mut at) = survey.nodes.find(ino) else {
        return None;
    };
    let mut names: Vec<Vec<u8>> = Vec::new();
    while nodes[at as usize].slot != ROOT_SLOT {
        let mut all = survey.logs.names.iter();
        let own = all.find(|name| survey.target(name) == Some(at))?;
        names.push(survey.text_of(own));
        at = own.directory;
        (names.len() <= nodes.len()).then_some(())?;
    }
    let below = |path: Vec<u8>, name: Vec<u8>| join(path_below(&path), &name);
    Some(names.into_iter().rev().fold(Vec::new(), below))
}

/// The slots of the extents of areas.
fn extents(draft: &Draft, survey: &Survey) -> Vec<u64> {
    let per_chunk = draft.geometry.slots_per_chunk();
    let step = draft.geometry.areas.slots() as usize;
    let chunks = survey.chunks.of(ChunkKind::Areas);
    chunks
        .flat_map(|chunk| (chunk * per_chunk..(chunk + 1) * per_chunk).step_by(step))
        .collect()
}

/// The slots that have a state, ascending.
fn stated(draft: &Draft, survey: &Survey) -> Vec<u64> {
    let slots = draft.geometry.areas.slots();
    let extents = extents(draft, survey).into_iter();
    let groups = extents.flat_map(|at| (at..at + slots).step_by(SLOTS_PER_BLOCK as usize));
    let of_group = |group: u64| {
        let word = StateMapWord(draft.word(draft.state_at(group)));
        word.entries().map(move |slot| group + slot)
    };
    groups.flat_map(of_group).collect()
}

/// Does the remaining stores of a committed move if `finish` is set, and removes its list.
pub(crate) fn moves(draft: &mut Draft, finish: bool) {
    if !draft.has_areas() {
        return;
    }
    let at = moving_at(&draft.geometry);
    let list = draft.word(at);
    if list == 0 {
        return;
    }
    let stores = survey::moves(draft.overlay, &draft.geometry);
    draft.hidden |= stores.is_empty();
    let (class, what) = match &stores[..] {
        [] => (Class::MoveUnsound, "the list is removed: it is not a list"),
        _ if finish => (Class::MoveUnfinished, "finished from its list"),
        _ => (
            Class::MoveUnfinished,
            "the list is removed: it is an old one",
        ),
    };
    if draft.mend(class, format_args!("slot {list}"), what) {
        let stores = stores.into_iter().filter(|_| finish);
        stores.for_each(|(at, value)| draft.set(at, value));
        draft.set(at, 0);
    }
}

/// Repairs the area table: the root's area is in use and belongs to the root, and lines that
/// entries confirm are sound.
pub(crate) fn table(draft: &mut Draft, survey: &Survey) {
    if !draft.has_areas() {
        return;
    }
    let table = draft.geometry.areas.table;
    let at = draft.geometry.slot_at(table);
    let bytes: [u8; 64] = draft.overlay.bytes(at);
    let head = AreaTableHead::read_from_bytes(&bytes).unwrap_or_default();
    if !head.is_sound(table, 0) {
        let what = "recreated as the beginning of the area table, according to the superblock";
        if draft.mend(Class::AreaUnsound, format_args!("slot {table}"), what) {
            draft
                .overlay
                .set_bytes(at, AreaTableHead::new(table, 0).as_bytes());
        }
    }
    let blocks: Vec<u64> = draft.table_blocks().collect();
    let last = blocks.last().copied().unwrap_or(table);
    if draft.table_head(last).next != 0 {
        let what = "cut off behind its last sound block";
        if draft.mend(Class::AreaUnsound, format_args!("slot {last}"), what) {
            draft.set(draft.geometry.slot_at(last) + AreaTableHead::NEXT, 0);
        }
    }
    root_area(draft, survey);
    let mut named: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for slot in stated(draft, survey) {
        let word = draft.word(draft.geometry.slot_at(slot) + PathEntryHead::PATH_WORD);
        named.entry((word >> 32) as u32).or_default().push(slot);
    }
    for number in ROOT_AREA + 1..(blocks.len() as u64 * AREA_TABLE_LINES) as u32 {
        let line = draft.area_line(number);
        let is_unsound = line
            .phase(number)
            .is_none_or(|phase| phase == AreaPhase::Free);
        let mut own = named.get(&number).into_iter().flatten();
        if is_unsound && own.any(|&slot| draft.path_entry_of(slot, line.generation).is_some()) {
            draft.hidden = true;
            let what = "in use: entries of it are sound";
            if draft.mend(Class::AreaUnsound, format_args!("area {number}"), what) {
                let live = AreaLine::new(
                    line.life(number),
                    AreaPhase::Live,
                    line.root.max(1),
                    line.root_generation,
                );
                draft.set_area_line(number, &live);
            }
        }
    }
}

/// Repairs the line of the root's area.
fn root_area(draft: &mut Draft, survey: &Survey) {
    let Some(root_generation) = draft.generation_of(ROOT_SLOT) else {
        return;
    };
    let line = draft.area_line(ROOT_AREA);
    let is_right = line.phase(ROOT_AREA) == Some(AreaPhase::Live)
        && (line.root, line.root_generation) == (ROOT_SLOT, root_generation);
    if is_right {
        return;
    }
    draft.hidden = true;
    // The generation with which most entries were sealed.
    let slots = stated(draft, survey);
    let fits = |generation: &u32| {
        let fit = |slot: &&u64| {
            let entry = draft.path_entry_of(**slot, *generation);
            entry.is_some_and(|(head, _)| head.area == ROOT_AREA)
        };
        slots.iter().filter(fit).count()
    };
    let generation = [AREA_GENERATION, line.generation]
        .into_iter()
        .max_by_key(fits);
    let life = AreaLife {
        number: ROOT_AREA,
        generation: generation.unwrap_or(AREA_GENERATION),
    };
    let what = "set to the root, with the generation of its entries";
    if draft.mend(Class::AreaUnsound, format_args!("area {ROOT_AREA}"), what) {
        let new = AreaLine::new(life, AreaPhase::Live, ROOT_SLOT, root_generation);
        draft.set_area_line(ROOT_AREA, &new);
    }
}

/// Removes states without a sound entry, and those of entries that another entry of the same name
/// outweighs.
pub(crate) fn states(draft: &mut Draft, survey: &Survey) {
    if !draft.has_areas() {
        return;
    }
    let logs = &survey.logs;
    let names: HashSet<u64> = logs.names.iter().map(|name| name.slot).collect();
    for slot in stated(draft, survey) {
        if names.contains(&slot) {
            continue;
        }
        let place = format!("slot {slot}");
        draft.hidden = true;
        let is_mended = match logs.areas.twins.get(&slot) {
            Some(&other) => {
                let what = format_args!("removed: the same name is at slot {other}");
                draft.mend(Class::Twins, place, what)
            }
            None => draft.mend(
                Class::StateNoEntry,
                place,
                "removed: nothing sound is there",
            ),
        };
        if is_mended {
            draft.set_state(slot, EntryState::None);
        }
    }
}

/// Gives each name whose path is not its directory's, or that lies in another area, a new entry.
pub(crate) fn paths(draft: &mut Draft, survey: &Survey) {
    if !draft.has_areas() || !draft.wants(Class::PathWrong) {
        return;
    }
    let mut names: HashMap<u32, Vec<&Name>> = HashMap::new();
    for name in survey.logs.names.iter().filter(|name| name.alive) {
        names.entry(name.directory).or_default().push(name);
    }
    let mut ready: Vec<(u32, Vec<u8>)> = Vec::new();
    ready.extend(survey.nodes.root().map(|root| (root, Vec::new())));
    let mut seen: HashSet<u32> = ready.iter().map(|(root, _)| *root).collect();
    while let Some((directory, path)) = ready.pop() {
        for name in names.remove(&directory).unwrap_or_default() {
            let path = join(path_below(&path), &survey.text_of(name));
            mend_path(draft, survey, name, &path);
            if let Some(target) = survey
                .target(name)
                .filter(|_| name.kind == FileKind::Directory)
                && seen.insert(target)
            {
                ready.push((target, path));
            }
        }
    }
}

fn mend_path(draft: &mut Draft, survey: &Survey, name: &Name, path: &[u8]) {
    let Some((head, there)) = draft.path_entry(name.slot) else {
        return;
    };
    if there == path && head.area == ROOT_AREA {
        return;
    }
    let dir = Directory::of(&survey.nodes.list[name.directory as usize]);
    if draft
        .put_path_entry(survey, dir, path, Named::of(name))
        .is_none()
    {
        return;
    }
    draft.bury(name);
    let what = format_args!("written again as {:?}", path.escape_ascii().to_string());
    // Declining was handled above.
    let _ = draft.mend(Class::PathWrong, format_args!("slot {}", name.slot), what);
}

/// Sets the locations of directories' own entries.
pub(crate) fn places(draft: &mut Draft, survey: &Survey) {
    let root = survey.nodes.root();
    for &directory in &survey.logs.areas.misplaced {
        let node = &survey.nodes.list[directory as usize];
        let mut names = survey.logs.names.iter();
        let own = names.find(|name| survey.target(name) == Some(directory));
        let place = match own {
            _ if root == Some(directory) => DirLocation::new(0, ROOT_AREA),
            Some(own) => DirLocation::new(own.slot, 0),
            None => continue,
        };
        let what = format_args!("set to slot {}", place.entry());
        if draft.mend(Class::PlaceWrong, format_args!("inode {}", node.slot), what) {
            draft.set(draft.field(node.slot, Inode::DETAIL), place.0);
        }
    }
}

/// Gives directories whose logs do not lead to their names new logs.
pub(crate) fn logs(draft: &mut Draft, survey: &Survey) {
    if !draft.wants(Class::LogWord) {
        return;
    }
    for &directory in &survey.logs.areas.misled {
        let node = &survey.nodes.list[directory as usize];
        let Some(first) = lay_log(draft, survey, directory, node) else {
            continue;
        };
        draft.set(draft.field(node.slot, Inode::ROOT), first);
        let what = "its log is recreated from its names";
        // Declining was handled above.
        let _ = draft.mend(Class::LogWord, format_args!("inode {}", node.slot), what);
    }
}

/// Writes a log of all entries of a directory; returns its first extent.
fn lay_log(draft: &mut Draft, survey: &Survey, directory: u32, node: &Node) -> Option<u64> {
    let own = survey
        .logs
        .names
        .iter()
        .filter(|name| name.directory == directory);
    let stated = own.filter(|name| draft.state(name.slot) != EntryState::None);
    let mut entries: Vec<(u64, u64)> = stated.map(|name| (name.cookie, name.slot)).collect();
    entries.sort_unstable();
    let owner = LogOwner {
        slot: node.slot,
        generation: node.identity.generation(),
    };
    let take = |kind, slots| draft.take_slots(survey, kind, slots).ok_or(());
    let Log { first, extents } = log_of(owner, &entries, take).ok()?;
    for (slot, bytes) in extents {
        let slots = bytes.len() as u64 / SLOT_BYTES;
        draft.put_slots(slot, slots, &bytes);
    }
    Some(first)
}

/// Frees the lines of other areas than the root's, which no longer contain names.
pub(crate) fn lines(draft: &mut Draft, survey: &Survey) {
    if !draft.has_areas() {
        return;
    }
    let area_of = |name: &Name| draft.path_entry(name.slot).map(|(head, _)| head.area);
    let (alive, dead): (Vec<&Name>, Vec<&Name>) =
        survey.logs.names.iter().partition(|name| name.alive);
    let mut kept: HashSet<u32> = alive.into_iter().filter_map(area_of).collect();
    kept.insert(ROOT_AREA);
    let dead = dead.into_iter().map(|name| (area_of(name), name));
    let dead: Vec<(Option<u32>, &Name)> = dead.collect();
    let areas = survey.logs.areas.list.iter();
    for area in areas.filter(|area| !kept.contains(&area.number)) {
        let class = match area.phase {
            AreaPhase::Live => Class::AreaNoRoot,
            _ => Class::AreaUnfinished,
        };
        let what = "freed: all names are in the root's area now";
        let Some(line_at) = draft.area_line_at(area.number) else {
            continue;
        };
        if draft.mend(class, format_args!("area {}", area.number), what) {
            draft.set(line_at, 0);
            let own = dead.iter().filter(|(of, _)| *of == Some(area.number));
            own.for_each(|(_, name)| draft.drop_name(name));
        }
    }
}
