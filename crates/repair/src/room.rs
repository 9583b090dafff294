//! Space for new structures of a repair: unused metadata slots, and the ends of logs.

use std::collections::{HashMap, HashSet};

use vellum_check::Image;
use vellum_check::survey::{Name, Node, Survey};
use vellum_layout::{
    ChunkKind, ChunkWord, Entry, EntryHead, FileKind, IdentityWord, Inode, InodeState, LifeWord,
    LinksWord, LogExtentHead, LogExtentKind, LogWord, NameRecord, NamespaceKind, PathEntryHead,
    ROOT_AREA, ROOT_SLOT, RecordKind, SLOT_BYTES, SLOTS_PER_BLOCK, TargetWord, name_hash,
};
use zerocopy::{FromBytes, IntoBytes};

use crate::draft::Draft;

/// Lowest cookie of an entry.
const COOKIE_MIN: u64 = 3;
/// The highest cookie that a listing can carry.
pub(crate) const COOKIE_MAX: u64 = (1 << 62) - 1;
/// The directory for files without a name.
pub(crate) const LOST_AND_FOUND: &str = "lost+found";

/// The end of a directory's log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tail {
    /// The last extent; 0: none.
    extent: u64,
    kind: LogExtentKind,
    /// Its first word behind all words with entries.
    next: u64,
    /// Cookie of its first word.
    base: u64,
    /// Lowest cookie above those of all entries.
    pub(crate) above: u64,
}

/// Allocations of a round.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// Chunks that got a kind.
    chunks: Vec<(u64, ChunkKind)>,
    /// Where the search for slots of a kind continues, by the care that it takes.
    cursors: HashMap<(ChunkKind, bool), u64>,
    /// The directory lost+found, and the names in it.
    lost: Option<(Directory, HashSet<Vec<u8>>)>,
}

/// A directory that entries can be added to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Directory {
    pub(crate) ino: u64,
    pub(crate) generation: u32,
}

/// The target of a new entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) ino: u64,
    pub(crate) generation: u32,
    pub(crate) kind: FileKind,
}

impl Directory {
    pub(crate) fn of(node: &Node) -> Self {
        Self {
            ino: node.slot,
            generation: node.identity.generation(),
        }
    }
}

impl Target {
    /// The target of `name`.
    pub(crate) fn of(name: &Name) -> Self {
        Self {
            ino: name.ino,
            generation: name.generation,
            kind: name.kind,
        }
    }
}

/// The fields of a name, without its text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Named {
    pub(crate) target: Target,
    pub(crate) cookie: u64,
    /// When it was created.
    pub(crate) ns: i64,
}

impl Named {
    /// The fields of `name`.
    pub(crate) fn of(name: &Name) -> Self {
        Self {
            target: Target::of(name),
            cookie: name.cookie,
            ns: name.ns,
        }
    }

    /// As an entry of the directory at slot `parent`.
    pub(crate) fn entry(&self, parent: u64, text: &[u8], hash_seed: u64) -> EntryHead {
        EntryHead {
            life: LifeWord::alive(self.ns).0,
            target: TargetWord::new(self.target.ino, self.target.kind).0,
            cookie: self.cookie,
            parent,
            generation: self.target.generation,
            checksum: 0,
            name_hash: name_hash(hash_seed, text),
            name_len: text.len() as u16,
            flags: 0,
        }
    }

    /// As an entry with a path in the root's area, of the directory at slot `parent`.
    pub(crate) fn path_entry(&self, parent: u64) -> PathEntryHead {
        PathEntryHead {
            life: LifeWord::alive(self.ns).0,
            target: TargetWord::new(self.target.ino, self.target.kind).0,
            cookie: self.cookie,
            parent,
            generation: self.target.generation,
            area: ROOT_AREA,
            ..PathEntryHead::default()
        }
    }

    /// As a record.
    pub(crate) fn record(&self, text: &[u8], hash_seed: u64) -> NameRecord {
        NameRecord {
            kind: RecordKind::Came as u8,
            reserved: 0,
            name_len: 0,
            checksum: 0,
            target: TargetWord::new(self.target.ino, self.target.kind).0,
            time: self.ns,
            cookie: self.cookie,
            generation: self.target.generation,
            name_hash: name_hash(hash_seed, text),
        }
    }
}

impl Tail {
    /// The end of a log of records; the inode has its other fields.
    pub(crate) fn of_records(above: u64) -> Self {
        Self {
            extent: 0,
            kind: LogExtentKind::Large,
            next: 0,
            base: COOKIE_MIN,
            above: above.max(COOKIE_MIN),
        }
    }
}

impl Draft<'_> {
    /// Allocates `count` metadata slots in a chunk of `kind`: zeroed ones if possible, because
    /// seemingly unused slots may hold what another step searches for.
    pub(crate) fn take_slots(
        &mut self,
        survey: &Survey,
        kind: ChunkKind,
        count: u64,
    ) -> Option<u64> {
        let slot = self
            .find_slots(survey, kind, count, true)
            .or_else(|| {
                self.take_chunk(survey, kind)?;
                self.find_slots(survey, kind, count, true)
            })
            .or_else(|| self.find_slots(survey, kind, count, false));
        self.lacked_room |= slot.is_none();
        let slot = slot?;
        for slot in slot..slot + count {
            self.reserved.add(slot);
        }
        Some(slot)
    }

    fn find_slots(
        &mut self,
        survey: &Survey,
        kind: ChunkKind,
        count: u64,
        blank: bool,
    ) -> Option<u64> {
        let per_chunk = self.geometry.slots_per_chunk();
        let step = if kind == ChunkKind::Blocks {
            SLOTS_PER_BLOCK
        } else {
            1
        };
        let from = *self.taken.cursors.get(&(kind, blank)).unwrap_or(&1);
        let taken = self.taken.chunks.iter();
        let mut chunks: Vec<u64> = taken.filter(|new| new.1 == kind).map(|new| new.0).collect();
        chunks.extend(survey.chunks.of(kind));
        chunks.sort_unstable();
        for chunk in chunks {
            let end = (chunk + 1) * per_chunk;
            let mut slot = (chunk * per_chunk).max(from).next_multiple_of(step);
            while slot + count <= end {
                let fits = kind != ChunkKind::Areas || self.geometry.areas.has_room(slot, count);
                let free = fits && (slot..slot + count).all(|slot| !self.reserved.has(slot));
                if free && (!blank || self.is_blank(slot, count)) {
                    // Entries differ in size: the search continues only behind single slots.
                    if count == step {
                        self.taken.cursors.insert((kind, blank), slot + count);
                    }
                    return Some(slot);
                }
                slot += step;
            }
        }
        None
    }

    fn is_blank(&self, slot: u64, count: u64) -> bool {
        let mut bytes = vec![0; (count * SLOT_BYTES) as usize];
        let read = self
            .overlay
            .read(self.geometry.slot_at(slot), &mut bytes)
            .is_ok();
        read && bytes.iter().all(|&byte| byte == 0)
    }

    /// Assigns a kind to a free chunk.
    fn take_chunk(&mut self, survey: &Survey, kind: ChunkKind) -> Option<()> {
        let taken = &self.taken.chunks;
        let free = |chunk: &u64| taken.iter().all(|new| new.0 != *chunk);
        let chunk = survey.free_chunks().find(free)?;
        let at = self
            .geometry
            .slot_at(chunk * self.geometry.slots_per_chunk());
        for at in (at..at + self.geometry.chunk_bytes).step_by(8) {
            self.set(at, 0);
        }
        self.taken.chunks.push((chunk, kind));
        self.taken.cursors.retain(|&(of, _), _| of != kind);
        let word = ChunkWord::new(chunk, kind, 0).0;
        self.set(self.geometry.chunk_word_at(chunk), word);
        Some(())
    }

    /// Writes bytes over whole slots and zeros the rest.
    pub(crate) fn put_slots(&self, slot: u64, count: u64, bytes: &[u8]) {
        let mut whole = vec![0; (count * SLOT_BYTES) as usize];
        whole[..bytes.len()].copy_from_slice(bytes);
        self.overlay.set_bytes(self.geometry.slot_at(slot), &whole);
    }

    fn tail(&mut self, dir: Directory) -> Option<Tail> {
        if let Some(tail) = self.tails.get(&dir.ino) {
            return Some(*tail);
        }
        let mut tail = Tail {
            extent: 0,
            kind: LogExtentKind::Small,
            next: 0,
            base: COOKIE_MIN,
            above: COOKIE_MIN,
        };
        let mut slot = self.word(self.field(dir.ino, Inode::ROOT));
        for _ in 0..=self.geometry.meta_slots() {
            if slot == 0 {
                return Some(tail);
            }
            slot = self.walk_extent(slot, dir, &mut tail)?;
        }
        None
    }

    /// Adds one extent to the tail; returns the next extent's slot.
    fn walk_extent(&self, slot: u64, dir: Directory, tail: &mut Tail) -> Option<u64> {
        let at = self.geometry.slot_at(slot);
        let bytes: [u8; size_of::<LogExtentHead>()] = self.overlay.bytes(at);
        let head = LogExtentHead::read_from_bytes(&bytes).ok()?;
        if slot >= self.geometry.meta_slots() || !head.is_sound(slot, dir.ino, dir.generation) {
            return None;
        }
        let kind = head.kind();
        *tail = Tail {
            extent: slot,
            kind,
            next: 0,
            base: head.base_cookie,
            above: tail.above.max(head.base_cookie),
        };
        for index in 0..kind.words() {
            let word = LogWord(self.word(at + kind.words_at() + 8 * index));
            if word.0 == 0 {
                continue;
            }
            let cookie = self.word(self.geometry.slot_at(word.entry()) + Entry::COOKIE);
            tail.next = index + 1;
            tail.above = tail.above.max(cookie.saturating_add(1));
        }
        if head.is_compacted() {
            tail.next = kind.words();
        }
        Some(head.next)
    }

    /// Adds an extent behind `tail`.
    fn grow(&mut self, survey: &Survey, dir: Directory, tail: Tail) -> Option<Tail> {
        let (kind, chunk, link) = if tail.extent == 0 {
            let link = self.field(dir.ino, Inode::ROOT);
            (LogExtentKind::Small, ChunkKind::Entries, link)
        } else {
            let link = self.geometry.slot_at(tail.extent) + LogExtentHead::NEXT;
            (LogExtentKind::Large, ChunkKind::Blocks, link)
        };
        let above = tail.above.max(tail.base + tail.next);
        if above > COOKIE_MAX - kind.words() {
            return None;
        }
        let slot = self.take_slots(survey, chunk, kind.slots())?;
        let head = LogExtentHead::new(slot, dir.ino, dir.generation, above, kind, false);
        self.put_slots(slot, kind.slots(), head.as_bytes());
        self.set(link, slot);
        Some(Tail {
            extent: slot,
            kind,
            next: 0,
            base: above,
            above,
        })
    }

    /// Adds a name to a directory whose log is sound; `None` if there is no space for it.
    pub(crate) fn append(
        &mut self,
        survey: &Survey,
        dir: Directory,
        name: &[u8],
        target: Target,
    ) -> Option<()> {
        match self.geometry.namespace {
            NamespaceKind::Direct => self.append_entry(survey, dir, name, target),
            NamespaceKind::Tree => self.append_record(survey, dir, name, target),
            NamespaceKind::Adaptive => self.append_path(survey, dir, name, target),
        }
    }

    fn append_entry(
        &mut self,
        survey: &Survey,
        dir: Directory,
        name: &[u8],
        target: Target,
    ) -> Option<()> {
        let mut tail = self.tail(dir)?;
        // Behind entries with higher cookies, as damage may leave them, an extent's words are
        // useless.
        let full = tail.next == tail.kind.words() || tail.base + tail.next < tail.above;
        if tail.extent == 0 || full {
            tail = self.grow(survey, dir, tail)?;
        }
        let cookie = tail.base + tail.next;
        let slots = Entry::slots_for(name.len());
        let slot = self.take_slots(survey, ChunkKind::Entries, slots)?;
        let named = Named {
            target,
            cookie,
            ns: self.now_ns,
        };
        let head = named.entry(dir.ino, name, self.superblock.hash_seed);
        let mut buffer = [0; 384];
        let len = Entry::encode(&head, name, dir.generation, &mut buffer);
        self.put_slots(slot, slots, &buffer[..len]);
        let at = self.geometry.slot_at(tail.extent) + tail.kind.words_at() + 8 * tail.next;
        self.set(at, LogWord::new(slot).0);
        tail.next += 1;
        tail.above = cookie + 1;
        self.tails.insert(dir.ino, tail);
        Some(())
    }

    /// Writes a new inode; returns a target for its name.
    pub(crate) fn make_inode(
        &mut self,
        survey: &Survey,
        kind: FileKind,
        mode: u16,
        fill: impl FnOnce(u64, &mut Inode),
    ) -> Option<Target> {
        let ino = self.take_slots(survey, ChunkKind::Inodes, 1)?;
        let generation = IdentityWord(self.inode(ino).identity)
            .generation()
            .wrapping_add(1);
        let mut inode = Inode {
            identity: IdentityWord::new(InodeState::Live, kind, mode, generation).0,
            links: LinksWord::new(if kind == FileKind::Directory { 2 } else { 1 }, 0).0,
            btime: self.now_ns,
            mtime: self.now_ns,
            ctime: self.now_ns,
            atime: self.now_ns,
            ..Inode::default()
        };
        fill(ino, &mut inode);
        self.put_inode(ino, inode);
        Some(Target {
            ino,
            generation,
            kind,
        })
    }

    /// Puts a file into lost+found, under `name` or, if that exists, a name that begins with it.
    /// Returns the name; `None` if there is no space.
    pub(crate) fn adopt(&mut self, survey: &Survey, name: &str, target: Target) -> Option<String> {
        if self.full {
            return None;
        }
        let adopted = self.try_adopt(survey, name, target);
        self.full = adopted.is_none();
        adopted
    }

    fn try_adopt(&mut self, survey: &Survey, name: &str, target: Target) -> Option<String> {
        let (dir, mut names) = match self.taken.lost.take() {
            Some(found) => found,
            None => self.find_lost(survey)?,
        };
        let mut free = name.to_owned();
        for number in 1u64.. {
            if !names.contains(free.as_bytes()) {
                break;
            }
            free = format!("{name}.{number}");
        }
        self.append(survey, dir, free.as_bytes(), target)?;
        names.insert(free.clone().into_bytes());
        self.taken.lost = Some((dir, names));
        Some(free)
    }

    /// Finds or creates the directory lost+found.
    fn find_lost(&mut self, survey: &Survey) -> Option<(Directory, HashSet<Vec<u8>>)> {
        let root_node = survey.nodes.root()?;
        let root = Directory::of(&survey.nodes.list[root_node as usize]);
        let in_root = survey.logs.names.iter();
        let in_root = in_root.filter(|name| name.alive && name.directory == root_node);
        let mut taken = HashSet::new();
        for name in in_root {
            let text = survey.text_of(name);
            let target = survey
                .target(name)
                .map(|number| &survey.nodes.list[number as usize]);
            if let Some(node) = target
                && text == LOST_AND_FOUND.as_bytes()
                && node.kind == FileKind::Directory
            {
                let dir = Directory::of(node);
                return Some((dir, NamesIn::of(survey).read(survey.target(name)?)));
            }
            if text.starts_with(LOST_AND_FOUND.as_bytes()) {
                taken.insert(text);
            }
        }
        let mut name = LOST_AND_FOUND.to_owned();
        for number in 1u64.. {
            if !taken.contains(name.as_bytes()) {
                break;
            }
            name = format!("{LOST_AND_FOUND}.{number}");
        }
        let made = self.make_inode(survey, FileKind::Directory, 0o700, |_, inode| {
            inode.parent = ROOT_SLOT;
        })?;
        if self.append(survey, root, name.as_bytes(), made).is_none() {
            self.free_inode(made.ino);
            return None;
        }
        let dir = Directory {
            ino: made.ino,
            generation: made.generation,
        };
        Some((dir, HashSet::new()))
    }
}

/// The valid names of each directory, by node.
pub(crate) struct NamesIn<'s, 'a> {
    survey: &'s Survey<'a>,
    by_directory: HashMap<u32, Vec<&'s Name>>,
}

impl<'s, 'a> NamesIn<'s, 'a> {
    pub(crate) fn of(survey: &'s Survey<'a>) -> Self {
        let mut by_directory: HashMap<u32, Vec<&Name>> = HashMap::new();
        for name in survey.logs.names.iter().filter(|name| name.alive) {
            by_directory.entry(name.directory).or_default().push(name);
        }
        Self {
            survey,
            by_directory,
        }
    }

    pub(crate) fn read(&self, directory: u32) -> HashSet<Vec<u8>> {
        let names = self.by_directory.get(&directory).into_iter().flatten();
        names.map(|name| self.survey.text_of(name)).collect()
    }
}
