//! The directories' logs: every extent, then every entry that they name.
//!
//! All directories are walked together, extent by extent in rounds, and the entries are then read
//! in order of address: accesses are sequential however the directories are mixed on the pool.
//! Errors are kept with their directory, because whether they matter depends on whether anything
//! names the directory.

use std::collections::HashSet;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use vellum_layout::{
    ChunkKind, Entry, EntryHead, FileKind, Geometry, Inode, LifeWord, LogExtentHead, LogExtentKind,
    LogWord, NamespaceKind, SLOTS_PER_BLOCK, TargetWord, name_hash,
};
use zerocopy::FromBytes;

use crate::areas::Areas;
use crate::header::Chunks;
use crate::image::{View, Window};
use crate::inodes::{Found, Nodes};
use crate::report::{Class, Location};

/// An error in a directory.
#[derive(Clone, Debug)]
pub struct Issue {
    /// The directory's node.
    pub directory: u32,
    /// What is wrong.
    pub class: Class,
    pub(crate) place: Location,
    /// The details.
    pub detail: String,
    /// Pool offset of the word that leads to it; without that word the directory is sound.
    pub word_at: u64,
    /// Stores that repair it instead.
    pub instead: Vec<(u64, u64)>,
    /// No crash explains it, even if a crash left the directory itself.
    pub stands: bool,
}

impl Issue {
    /// The location in words.
    pub fn place(&self) -> String {
        self.place.to_string()
    }
}

/// An extent that was found.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// The directory's node.
    pub directory: u32,
    /// Its first metadata slot.
    pub slot: u64,
    /// Metadata slots that it takes.
    pub slots: u64,
}

/// A log word that names an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Word {
    /// Its pool offset.
    pub(crate) at: u64,
    pub(crate) entry: u64,
    pub(crate) directory: u32,
    pub(crate) sequence: u32,
    /// The cookie according to its position; in a compacted extent the lowest possible one.
    pub(crate) cookie: u64,
    pub(crate) exact: bool,
}

/// A sound entry.
#[derive(Clone, Copy, Debug)]
pub struct Name {
    /// Pool offset of the log word that names the entry, or of the first word of its record.
    pub word_at: u64,
    /// The word's value without the name: 0, or the record's first word once the name is gone.
    pub word_without: u64,
    /// Pool offset of the name.
    pub text_at: u64,
    /// Bytes of the name.
    pub text_len: u16,
    /// The entry's first metadata slot, or that of the block with its record.
    pub slot: u64,
    /// Metadata slots that it takes; 0 for a record.
    pub slots: u8,
    /// The recorded kind of its target.
    pub kind: FileKind,
    /// Whether it exists; otherwise it existed.
    pub alive: bool,
    /// The directory's node.
    pub directory: u32,
    /// Its position in the log.
    pub sequence: u32,
    /// The inode that it names.
    pub ino: u64,
    /// The generation of that inode.
    pub generation: u32,
    /// Its cookie.
    pub cookie: u64,
    pub(crate) hash: u64,
    /// When it was created or removed, nanoseconds since 1970.
    pub ns: i64,
}

/// Most issues that are kept; more would add nothing.
pub(crate) const ISSUES_MAX: usize = 20_000;
/// Least cookie of an entry: 1 and 2 are `.` and `..`.
pub(crate) const COOKIE_MIN: u64 = 3;
/// The highest cookie that a directory listing can carry.
pub(crate) const COOKIE_MAX: u64 = (1 << 62) - 1;

/// The contents of the logs.
#[derive(Debug, Default)]
pub struct Logs {
    /// Extents of the logs.
    pub extents: Vec<Extent>,
    /// The sound entries that they name.
    pub names: Vec<Name>,
    /// Errors.
    pub issues: Vec<Issue>,
    /// The areas, where the namespace has them.
    pub areas: Areas,
    pub(crate) words: Vec<Word>,
}

struct Job {
    directory: u32,
    slot: u64,
    /// Pool offset of the word that leads to the extent.
    word_at: u64,
    sequence: u32,
    base: u64,
}

impl Logs {
    /// Reads the logs of all directories in `nodes`.
    pub(crate) fn read(
        view: &View,
        geometry: &Geometry,
        chunks: &Chunks,
        nodes: &Nodes,
        seed: u64,
        mut tick: impl FnMut(u64),
    ) -> Self {
        let mut logs = Self::default();
        match geometry.namespace {
            NamespaceKind::Tree => logs.read_records(view, geometry, chunks, nodes, seed),
            NamespaceKind::Adaptive => {
                logs.read_areas(view, geometry, chunks, nodes, seed);
                tick(logs.names.len() as u64);
                logs.read_extents(view, geometry, chunks, nodes);
                logs.read_derived(view, geometry, chunks, nodes);
            }
            NamespaceKind::Direct => {
                logs.read_extents(view, geometry, chunks, nodes);
                tick(logs.words.len() as u64);
                logs.read_entries(view, geometry, chunks, nodes, seed);
            }
        }
        logs
    }

    pub(crate) fn issue(
        &mut self,
        directory: u32,
        class: Class,
        place: Location,
        word_at: u64,
        detail: impl fmt::Display,
    ) {
        if self.issues.len() < ISSUES_MAX {
            self.issues.push(Issue {
                directory,
                class,
                place,
                detail: detail.to_string(),
                word_at,
                instead: vec![(word_at, 0)],
                stands: false,
            });
        }
    }

    /// Sets the stores that repair the last reported issue.
    pub(crate) fn instead(&mut self, stores: Vec<(u64, u64)>) {
        if let Some(issue) = self.issues.last_mut() {
            issue.instead = stores;
        }
    }

    fn read_extents(&mut self, view: &View, geometry: &Geometry, chunks: &Chunks, nodes: &Nodes) {
        let mut jobs: Vec<Job> = nodes
            .list
            .iter()
            .enumerate()
            .filter(|(_, node)| node.kind == FileKind::Directory && node.root != 0)
            .map(|(directory, node)| Job {
                directory: directory as u32,
                slot: node.root,
                word_at: geometry.slot_at(node.slot) + Inode::ROOT,
                sequence: 0,
                base: COOKIE_MIN,
            })
            .collect();
        let mut visited = HashSet::new();
        let mut window = Window::of_slots(view, geometry);
        let mut buffer = Vec::new();
        while !jobs.is_empty() {
            jobs.sort_unstable_by_key(|job| job.slot);
            jobs = jobs
                .into_iter()
                .filter_map(|job| {
                    let kind = self.find_extent(&job, chunks, nodes)?;
                    let at = geometry.slot_at(job.slot);
                    let bytes = window.get(at, kind.bytes() as usize)?;
                    buffer.clear();
                    buffer.extend_from_slice(bytes);
                    self.read_extent(job, kind, at, &buffer, nodes, &mut visited)
                })
                .collect();
        }
    }

    /// The kind of extent that can lie at the position of `job`, if any.
    fn find_extent(&mut self, job: &Job, chunks: &Chunks, nodes: &Nodes) -> Option<LogExtentKind> {
        let owner = Location::Inode(nodes.list[job.directory as usize].slot);
        match chunks.kind_of(job.slot) {
            Some(ChunkKind::Entries) => Some(LogExtentKind::Small),
            Some(ChunkKind::Blocks) if job.slot.is_multiple_of(SLOTS_PER_BLOCK) => {
                Some(LogExtentKind::Large)
            }
            Some(ChunkKind::Blocks) => {
                let detail = format_args!("slot {} begins no metadata block", job.slot);
                self.issue(job.directory, Class::LogUnsound, owner, job.word_at, detail);
                None
            }
            Some(kind) => {
                let detail = format_args!("slot {} is in a chunk of {kind:?}", job.slot);
                self.issue(job.directory, Class::LogChunk, owner, job.word_at, detail);
                None
            }
            None => {
                let detail = format_args!("slot {} is in no chunk", job.slot);
                self.issue(job.directory, Class::LogUnsound, owner, job.word_at, detail);
                None
            }
        }
    }

    /// Reads one extent; returns where the log continues.
    fn read_extent(
        &mut self,
        job: Job,
        kind: LogExtentKind,
        at: u64,
        bytes: &[u8],
        nodes: &Nodes,
        visited: &mut HashSet<u64>,
    ) -> Option<Job> {
        let Job {
            directory,
            slot,
            word_at,
            ..
        } = job;
        let owner = nodes.list[directory as usize].slot;
        let place = Location::Inode(owner);
        let (head, _) = LogExtentHead::read_from_prefix(bytes).ok()?;
        let generation = nodes.list[directory as usize].identity.generation();
        if !head.is_sound(slot, owner, generation) {
            let other = match nodes.find(head.owner) {
                Found::Node(other) => nodes.list[other as usize].identity.generation(),
                _ => 0,
            };
            if head.owner != owner && head.is_sound(slot, head.owner, other) {
                let detail = format_args!("the extent at slot {slot} is inode {}'s", head.owner);
                self.issue(directory, Class::LogShared, place, word_at, detail);
            } else {
                let detail = format_args!("the head at slot {slot} does not fit its checksum");
                self.issue(directory, Class::LogUnsound, place, word_at, detail);
            }
            return None;
        }
        if head.kind() != kind {
            let detail = format_args!("slot {slot} holds an extent of the other size");
            self.issue(directory, Class::LogChunk, place, word_at, detail);
            return None;
        }
        // A sound head names its owner, so an extent seen before was seen in this very log.
        if !visited.insert(slot) {
            let detail = format_args!("it comes back to the extent at slot {slot}");
            self.issue(directory, Class::LogLoop, place, word_at, detail);
            return None;
        }
        if head.base_cookie < job.base || head.base_cookie > COOKIE_MAX - kind.words() {
            let detail = format_args!(
                "the extent at slot {slot} begins with cookie {} after {}",
                head.base_cookie, job.base
            );
            self.issue(directory, Class::Cookies, place, word_at, detail);
        }
        self.extents.push(Extent {
            directory,
            slot,
            slots: kind.slots(),
        });
        let words = &bytes[kind.words_at() as usize..];
        let sequence = self.read_words(&job, &head, at + kind.words_at(), words, place);
        (head.next != 0).then_some(Job {
            directory,
            slot: head.next,
            word_at: at + LogExtentHead::NEXT,
            sequence,
            base: head.base_cookie,
        })
    }

    fn read_words(
        &mut self,
        job: &Job,
        head: &LogExtentHead,
        words_at: u64,
        bytes: &[u8],
        place: Location,
    ) -> u32 {
        let exact = !head.is_compacted();
        let mut sequence = job.sequence;
        for (i, word) in bytes.as_chunks::<8>().0.iter().enumerate() {
            let word = LogWord(u64::from_le_bytes(*word));
            let at = words_at + 8 * i as u64;
            if word.0 == 0 {
                continue;
            }
            if !word.is_sound() {
                let detail = format_args!("word {i} of the extent at slot {}", job.slot);
                self.issue(job.directory, Class::Reserved, place, at, detail);
                continue;
            }
            let offset = if exact { i as u64 } else { 0 };
            self.words.push(Word {
                at,
                entry: word.entry(),
                directory: job.directory,
                sequence,
                cookie: head.base_cookie.saturating_add(offset),
                exact,
            });
            sequence = sequence.saturating_add(1);
        }
        sequence
    }

    fn read_entries(
        &mut self,
        view: &View,
        geometry: &Geometry,
        chunks: &Chunks,
        nodes: &Nodes,
        seed: u64,
    ) {
        let mut words = std::mem::take(&mut self.words);
        words.sort_unstable_by_key(|word| (word.entry, word.directory, word.sequence));
        self.names.reserve(words.len());
        let mut window = Window::of_slots(view, geometry);
        for word in words {
            match read_entry(&mut window, geometry, chunks, nodes, seed, &word) {
                Ok(name) => {
                    let fits = if word.exact {
                        name.cookie == word.cookie
                    } else {
                        name.cookie >= word.cookie
                    };
                    if !fits || !(COOKIE_MIN..=COOKIE_MAX).contains(&name.cookie) {
                        let detail = format_args!(
                            "has cookie {}, its place gives {}",
                            name.cookie, word.cookie
                        );
                        let place = Location::Slot(word.entry);
                        self.issue(word.directory, Class::Cookies, place, word.at, detail);
                    }
                    self.names.push(name);
                }
                Err((class, detail)) => {
                    let place = Location::Slot(word.entry);
                    self.issue(word.directory, class, place, word.at, detail);
                }
            }
        }
    }
}

fn read_entry(
    window: &mut Window,
    geometry: &Geometry,
    chunks: &Chunks,
    nodes: &Nodes,
    seed: u64,
    word: &Word,
) -> Result<Name, (Class, String)> {
    let node = &nodes.list[word.directory as usize];
    let (directory, generation) = (node.slot, node.identity.generation());
    let unsound = |what: &str| {
        let detail = format!("named by the log of inode {directory}, but {what}");
        (Class::EntryUnsound, detail)
    };
    let nowhere = || unsound("not in a chunk of entries");
    if !chunks.holds(word.entry, 1, ChunkKind::Entries) {
        return Err(nowhere());
    }
    let at = geometry.slot_at(word.entry);
    let bytes = window.get(at, Entry::NAME as usize).ok_or_else(nowhere)?;
    let (head, _) = EntryHead::read_from_prefix(bytes).map_err(|_| nowhere())?;
    let slots = Entry::slots_for(usize::from(head.name_len));
    if !chunks.holds(word.entry, slots, ChunkKind::Entries) {
        return Err(unsound("it reaches out of its chunk"));
    }
    let used = Entry::NAME as usize + usize::from(head.name_len);
    let bytes = window.get(at, used).ok_or_else(nowhere)?;
    let other = match nodes.find(head.parent) {
        Found::Node(other) if head.parent != directory => {
            nodes.list[other as usize].identity.generation()
        }
        _ => generation,
    };
    if !Entry::is_sound(bytes, other) {
        return Err(unsound("it does not fit its checksum"));
    }
    let name = &bytes[Entry::NAME as usize..];
    if head.name_hash != name_hash(seed, name) {
        return Err(unsound("its hash is not that of its name"));
    }
    let target = TargetWord(head.target);
    let kind = target
        .kind()
        .filter(|_| target.0 >> 56 == 0)
        .ok_or_else(|| unsound("it names a file of unknown kind"))?;
    if head.flags != 0 {
        return Err(unsound("it has unknown flags"));
    }
    if head.parent != directory {
        let detail = format!("in the log of inode {directory}, of inode {}", head.parent);
        return Err((Class::EntryParent, detail));
    }
    if name == b"." || name == b".." || name.iter().any(|byte| matches!(byte, 0 | b'/')) {
        return Err((
            Class::EntryName,
            format!("{:?}", name.escape_ascii().to_string()),
        ));
    }
    let life = LifeWord(head.life);
    Ok(Name {
        word_at: word.at,
        word_without: 0,
        text_at: at + Entry::NAME,
        text_len: head.name_len,
        slot: word.entry,
        slots: slots as u8,
        kind,
        alive: life.is_alive(),
        directory: word.directory,
        sequence: word.sequence,
        ino: target.ino(),
        generation: head.generation,
        cookie: head.cookie,
        hash: hash_of(name),
        ns: life.ns(),
    })
}

/// A hash for comparing names in this process only.
pub(crate) fn hash_of(name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

/// Connects every valid entry with its inode: counts links, and finds entries without a target.
pub(crate) fn link(logs: &mut Logs, nodes: &mut Nodes) {
    let names = std::mem::take(&mut logs.names);
    for name in &names {
        let directory = &mut nodes.list[name.directory as usize];
        directory.latest = directory.latest.max(name.ns);
        if !name.alive {
            continue;
        }
        directory.children += 1;
        if let Err((class, detail)) = link_one(name, nodes) {
            let place = Location::Slot(name.slot);
            logs.issue(name.directory, class, place, name.word_at, detail);
            logs.instead(vec![(name.word_at, name.word_without)]);
        }
    }
    logs.names = names;
}

fn link_one(name: &Name, nodes: &mut Nodes) -> Result<(), (Class, String)> {
    let node = match nodes.find(name.ino) {
        Found::Node(node) => node,
        Found::Broken(broken) => {
            nodes.broken[broken as usize].named = true;
            return Ok(());
        }
        Found::Free | Found::Nowhere => {
            let detail = format!("names inode {}, which is not in use", name.ino);
            return Err((Class::EntryToFree, detail));
        }
    };
    let target = &mut nodes.list[node as usize];
    if target.identity.generation() != name.generation {
        let detail = format!(
            "names generation {} of inode {}, which is in generation {}",
            name.generation,
            name.ino,
            target.identity.generation()
        );
        return Err((Class::EntryGeneration, detail));
    }
    if target.kind != name.kind {
        let detail = format!(
            "says {:?}, but inode {} is {:?}",
            name.kind, name.ino, target.kind
        );
        return Err((Class::EntryKind, detail));
    }
    if target.names == 0 {
        target.named_by = name.directory;
    }
    target.names = target.names.saturating_add(1);
    let (orphan, kind) = (target.orphan, target.kind);
    if kind == FileKind::Directory {
        nodes.list[name.directory as usize].subdirectories += 1;
    }
    if orphan {
        return Err((Class::NamedOrphan, format!("names inode {}", name.ino)));
    }
    Ok(())
}
