//! Single structures in words, for people. The output shows the bytes on the pool: journals are not
//! applied, and unsound structures are shown with their errors.

use std::collections::HashSet;
use std::fmt::Write;

use thiserror::Error;
use vellum_layout::{
    BLOCK_BYTES, ChunkKind, Entry, EntryHead, FileKind, Geometry, IdentityWord, Inode, InodeState,
    LifeWord, LinksWord, LogExtentHead, LogExtentKind, LogOwner, LogPosition, LogWord, MapRoot,
    MapState, NamespaceKind, OwnerWord, PoolPhase, PoolState, Records, SLOT_BYTES, StateWord,
    Superblock, TargetWord, read_xattrs,
};
use zerocopy::FromBytes;

use crate::header::{self, Chunks};
use crate::image::{Image, View, Window};
use crate::inodes::{Node, Nodes};
use crate::journal::{self, Record};
use crate::report::{Class, Sink, Summary};
use crate::slots::read_text;
use crate::trees::word_of;
use crate::xattrs::{flags_text, names_of, read_set};

/// Why something cannot be shown.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum InspectError {
    /// The image has no usable superblock.
    #[error("{0}")]
    NotAPool(String),
    /// The number is out of range.
    #[error("there is no {what} {number}: the pool has {count}")]
    NoSuch {
        /// The kind of structure.
        what: &'static str,
        /// The requested number.
        number: u64,
        /// How many there are.
        count: u64,
    },
    /// The inode is not a directory.
    #[error("inode {0} is not a directory in use")]
    NoDirectory(u64),
}

struct Pool<'a> {
    view: View<'a>,
    superblock: Superblock,
    geometry: Geometry,
    chunks: Chunks,
}

impl<'a> Pool<'a> {
    fn open(image: &'a dyn Image) -> Result<Self, InspectError> {
        let view = View::new(image);
        let mut sink = Sink::default();
        let Some((superblock, _)) = header::superblock(&view, &mut sink) else {
            let report = sink.finish(Summary::default(), crate::Phase::Unknown);
            let mut reasons = report.of(Class::NotAPool).chain(report.of(Class::Geometry));
            let reason = reasons.next().map(|found| found.detail.clone());
            return Err(InspectError::NotAPool(reason.unwrap_or_default()));
        };
        let geometry = superblock.geometry();
        let chunks = Chunks::read(&view, &geometry, &mut sink);
        Ok(Self {
            view,
            superblock,
            geometry,
            chunks,
        })
    }

    fn has(what: &'static str, number: u64, count: u64) -> Result<(), InspectError> {
        if number < count {
            Ok(())
        } else {
            Err(InspectError::NoSuch {
                what,
                number,
                count,
            })
        }
    }

    fn inode(&self, number: u64) -> Result<Inode, InspectError> {
        Self::has("inode", number, self.geometry.meta_slots())?;
        let at = self.geometry.slot_at(number);
        let bytes = self.view.bytes::<{ SLOT_BYTES as usize }>(at);
        Ok(Inode::read_from_bytes(&bytes).unwrap_or_default())
    }

    fn window(&self) -> Window<'_, 'a> {
        Window::of_slots(&self.view, &self.geometry)
    }
}

/// Lines of `name: value`.
struct Lines(String);

impl Lines {
    fn add(&mut self, name: &str, value: impl std::fmt::Display) -> &mut Self {
        let _ = writeln!(self.0, "{name:<24}{value}");
        self
    }
}

/// The superblock, the state block and the kinds of chunks.
///
/// # Errors
/// Fails if the image has no usable superblock.
pub fn superblock(image: &(impl Image + ?Sized)) -> Result<String, InspectError> {
    let pool = Pool::open(&image)?;
    let (sb, g) = (&pool.superblock, &pool.geometry);
    let mut out = Lines(String::new());
    out.add("uuid", sb.uuid_text())
        .add("label", format_args!("{:?}", sb.label_text()))
        .add("version", sb.version)
        .add("compatible", format_args!("{:#x}", sb.compatible))
        .add(
            "read-only-compatible",
            format_args!("{:#x}", sb.read_only_compatible),
        )
        .add("incompatible", format_args!("{:#x}", sb.incompatible))
        .add("sequence", sb.sequence)
        .add("created_ns", sb.created)
        .add("hash_seed", format_args!("{:#018x}", sb.hash_seed))
        .add("pool_bytes", g.pool_bytes)
        .add("chunk_bytes", g.chunk_bytes)
        .add("state_at", g.state_at)
        .add(
            "thread_slots",
            format_args!("{} at {}", g.thread_slots, g.slots_at),
        )
        .add("chunk_table_at", g.chunk_table_at)
        .add("live_map_at", g.live_map_at)
        .add(
            "metadata",
            format_args!("{} chunks at {}", g.meta_chunks, g.meta_at),
        );
    for kind in [
        ChunkKind::Inodes,
        ChunkKind::Entries,
        ChunkKind::Blocks,
        ChunkKind::Areas,
        ChunkKind::Free,
    ] {
        if !kind.is_of(g.namespace) {
            continue;
        }
        let name = format!("  {kind:?}").to_lowercase();
        out.add(&name, format_args!("{} chunks", pool.chunks.count(kind)));
    }
    out.add(
        "segment 0",
        format_args!(
            "{} blocks, table at {}, saved allocator state at {}, data at {}",
            g.segment_blocks, g.table_at, g.saved_state_at, g.data_at
        ),
    )
    .add("last copy at", g.last_copy_at);
    let word = |offset| pool.view.word(g.state_at + offset);
    match StateWord(word(PoolState::WORD)).get() {
        Some((PoolPhase::Clean, epoch)) => {
            out.add("state", format_args!("closed cleanly, epoch {epoch}"))
                .add("inodes saved", word(PoolState::INODES))
                .add("data blocks saved", word(PoolState::BLOCKS));
        }
        Some((PoolPhase::Dirty, epoch)) => {
            out.add(
                "state",
                format_args!("open, or not closed cleanly; epoch {epoch}"),
            );
        }
        None => {
            let state = word(PoolState::WORD);
            out.add("state", format_args!("unsound: {state:#x}"));
        }
    }
    out.add("last opener's process", word(PoolState::PID))
        .add("opened_ns", word(PoolState::OPENED));
    Ok(out.0)
}

/// Inode `number`.
///
/// # Errors
/// Fails if the pool is unusable or has no such slot.
pub fn inode(image: &(impl Image + ?Sized), number: u64) -> Result<String, InspectError> {
    let pool = Pool::open(&image)?;
    let inode = pool.inode(number)?;
    let identity = IdentityWord(inode.identity);
    let owner = OwnerWord(inode.owner);
    let links = LinksWord(inode.links);
    let mut out = Lines(String::new());
    out.add(
        "chunk",
        match pool.chunks.kind_of(number) {
            Some(kind) => format!("{kind:?}").to_lowercase(),
            None => "unsound".to_owned(),
        },
    )
    .add(
        "state",
        match identity.state() {
            Some(InodeState::Free) => "free".to_owned(),
            Some(InodeState::Live) => "live".to_owned(),
            Some(InodeState::Orphan) => "orphan".to_owned(),
            None => format!("unknown: {}", identity.0 as u8),
        },
    )
    .add(
        "kind",
        identity
            .kind()
            .map_or_else(|| "none".to_owned(), |kind| format!("{kind:?}")),
    )
    .add("mode", format_args!("{:04o}", identity.mode()))
    .add("generation", identity.generation())
    .add("owner", format_args!("{}:{}", owner.uid(), owner.gid()))
    .add("links", links.links())
    .add("flags", user_flags_text(identity))
    .add("project", inode.project)
    .add("reserved flags", format_args!("{:#x}", links.flags()))
    .add("size", inode.size)
    .add("btime_ns", inode.btime)
    .add("mtime_ns", inode.mtime)
    .add("ctime_ns", inode.ctime)
    .add("atime_ns", inode.atime)
    .add("parent or device", inode.parent);
    let expected = inode.expected_checksum(number);
    let fits = if inode.checksum == expected {
        "fits".to_owned()
    } else {
        format!("does not fit, needs {expected:#010x}")
    };
    out.add("checksum", format_args!("{:#010x}, {fits}", inode.checksum));
    match (identity.kind(), MapRoot(inode.root).get()) {
        (Some(FileKind::Directory), _) => {
            out.add("first log extent", format_args!("slot {}", inode.root));
        }
        (Some(FileKind::Symlink), _) => {
            out.add("text", format_args!("slot {}", inode.root));
            let text = Node::new(number, &inode, &pool.geometry)
                .map_err(|_| "unknown, because the inode is unsound")
                .and_then(|link| {
                    read_text(&mut pool.window(), &pool.geometry, &pool.chunks, &link)
                });
            match text {
                Ok(text) => out.add("target", text.escape_ascii()),
                Err(why) => out.add("target", why),
            };
        }
        (_, Some((segment, id))) => {
            out.add("mapping", format_args!("segment {segment}, id {id}"));
        }
        (_, None) if inode.root == 0 => {
            out.add("mapping", "none");
        }
        (_, None) => {
            out.add("mapping", format_args!("unsound: {:#x}", inode.root));
        }
    }
    xattrs(&pool, number, &inode, &mut out);
    Ok(out.0)
}

fn user_flags_text(identity: IdentityWord) -> String {
    names_of(
        identity.flags(),
        &[
            (IdentityWord::IMMUTABLE, "immutable"),
            (IdentityWord::APPEND_ONLY, "append only"),
            (IdentityWord::NO_DUMP, "no dump"),
            (IdentityWord::NO_ATIME, "no atime"),
            (IdentityWord::PROJECT_INHERIT, "project inherit"),
        ],
    )
}

/// The extended attributes of an inode: the flags, the pieces, each name with the length of its
/// value. Nothing if there are none.
fn xattrs(pool: &Pool, number: u64, inode: &Inode, out: &mut Lines) {
    let flags = inode.identity & IdentityWord::XATTR_FLAGS;
    if inode.xattr_root == 0 && flags == 0 {
        return;
    }
    out.add("attribute flags", flags_text(flags));
    let Ok(node) = Node::new(number, inode, &pool.geometry) else {
        let why = "unknown, because the inode is unsound";
        out.add("attributes", why);
        return;
    };
    let set = read_set(&mut pool.window(), &pool.geometry, &pool.chunks, &node);
    for (slot, slots) in set.pieces {
        let last = slot + slots - 1;
        out.add("attributes", format_args!("slots {slot} to {last}"));
    }
    if let Some((slot, why)) = set.fault {
        out.add("attributes", format_args!("what lies at slot {slot} {why}"));
    }
    for xattr in read_xattrs(&set.bytes).unwrap_or_default() {
        let (prefix, name) = (xattr.space.prefix(), xattr.name.escape_ascii());
        let bytes = xattr.value.len();
        out.add("attribute", format_args!("{prefix}{name}, {bytes} bytes"));
    }
}

/// The log of directory `number`: its extents, and every word with its entry.
///
/// # Errors
/// Fails if the pool is unusable, or if the inode is not a directory.
pub fn directory(image: &(impl Image + ?Sized), number: u64) -> Result<String, InspectError> {
    let pool = Pool::open(&image)?;
    let inode = pool.inode(number)?;
    if !inode.is_sound(number) || IdentityWord(inode.identity).kind() != Some(FileKind::Directory) {
        return Err(InspectError::NoDirectory(number));
    }
    let generation = IdentityWord(inode.identity).generation();
    if pool.geometry.namespace == NamespaceKind::Tree {
        return Ok(records(&pool, number, &inode));
    }
    let mut out = String::new();
    let mut window = pool.window();
    let mut visited = HashSet::new();
    let mut slot = inode.root;
    while slot != 0 {
        let kind = match pool.chunks.kind_of(slot) {
            Some(ChunkKind::Entries) => LogExtentKind::Small,
            Some(ChunkKind::Blocks) => LogExtentKind::Large,
            _ => {
                let _ = writeln!(out, "slot {slot}: cannot hold an extent");
                break;
            }
        };
        let at = pool.geometry.slot_at(slot);
        let Some(bytes) = window.get(at, kind.bytes() as usize).map(<[u8]>::to_vec) else {
            let _ = writeln!(out, "slot {slot}: reaches out of the metadata");
            break;
        };
        let Ok((head, _)) = LogExtentHead::read_from_prefix(&bytes) else {
            break;
        };
        let sound = if head.is_sound(slot, number, generation) && head.kind() == kind {
            ""
        } else {
            ", UNSOUND"
        };
        let compacted = if head.is_compacted() {
            ", compacted"
        } else {
            ""
        };
        let _ = writeln!(
            out,
            "extent at slot {slot}: {kind:?}, from cookie {}{compacted}, next {}{sound}",
            head.base_cookie, head.next
        );
        if !sound.is_empty() {
            break;
        }
        if !visited.insert(slot) {
            let _ = writeln!(out, "  the log comes back to this extent");
            break;
        }
        for (i, word) in bytes[kind.words_at() as usize..]
            .as_chunks::<8>()
            .0
            .iter()
            .enumerate()
        {
            let word = LogWord(u64::from_le_bytes(*word));
            if word.0 != 0 {
                let entry = entry_line(&pool, &mut window, word.entry());
                let _ = writeln!(out, "  {i:>3}: slot {}: {entry}", word.entry());
            }
        }
        slot = head.next;
    }
    Ok(out)
}

/// A log of records: its blocks, and every record up to the tail.
fn records(pool: &Pool, number: u64, inode: &Inode) -> String {
    let owner = LogOwner {
        slot: number,
        generation: IdentityWord(inode.identity).generation(),
    };
    let tail = LogPosition(inode.detail);
    let mut out = String::new();
    let _ = writeln!(out, "tail: byte {} of slot {}", tail.byte(), tail.slot());
    let (mut slot, mut visited) = (inode.root, HashSet::new());
    let mut counts = tail != LogPosition::NONE;
    while slot != 0 && visited.insert(slot) {
        if pool.chunks.kind_of(slot) != Some(ChunkKind::Blocks) {
            let _ = writeln!(out, "slot {slot}: cannot hold a block");
            break;
        }
        let mut block = [0; BLOCK_BYTES as usize];
        pool.view.read(pool.geometry.slot_at(slot), &mut block);
        let Ok((head, _)) = LogExtentHead::read_from_prefix(&block) else {
            break;
        };
        let is_sound = head.is_sound_of_records(slot, owner);
        let unsound = if is_sound { "" } else { ", UNSOUND" };
        let _ = writeln!(
            out,
            "block at slot {slot}: from cookie {}, next {}{unsound}",
            head.base_cookie, head.next
        );
        if !is_sound {
            break;
        }
        let end = Some(tail).filter(|tail| tail.slot() == slot);
        for found in Records::of(&block, slot, owner, end).take_while(|_| counts) {
            let _ = match found {
                Err(unsound) => writeln!(out, "  {:>4}: UNSOUND", unsound.place.byte()),
                Ok(found) => writeln!(
                    out,
                    "  {:>4}: {:?}, cookie {}, inode {}, {:?}",
                    found.place.byte(),
                    found.record.kind(),
                    found.record.cookie,
                    TargetWord(found.record.target).ino(),
                    found.name.escape_ascii().to_string()
                ),
            };
        }
        counts &= end.is_none();
        slot = head.next;
    }
    out
}

fn entry_line(pool: &Pool, window: &mut Window, slot: u64) -> String {
    if pool.chunks.kind_of(slot) != Some(ChunkKind::Entries) {
        return "not in a chunk of entries".to_owned();
    }
    let at = pool.geometry.slot_at(slot);
    let head = window
        .get(at, Entry::NAME as usize)
        .and_then(|bytes| EntryHead::read_from_bytes(bytes).ok());
    let Some(head) = head else {
        return "reaches out of the metadata".to_owned();
    };
    let used = Entry::NAME as usize + usize::from(head.name_len);
    let parent = journal::generation_of(&pool.view, &pool.geometry, head.parent);
    let sound = |bytes: &&[u8]| Entry::is_sound(bytes, parent);
    let Some(bytes) = window.get(at, used).filter(sound) else {
        return "UNSOUND".to_owned();
    };
    let life = LifeWord(head.life);
    let target = TargetWord(head.target);
    format!(
        "\"{}\" cookie {}, {} since {} ns, names inode {} generation {} ({:?}), parent {}",
        bytes[Entry::NAME as usize..].escape_ascii(),
        head.cookie,
        if life.is_alive() { "alive" } else { "dead" },
        life.ns(),
        target.ino(),
        head.generation,
        target.kind(),
        head.parent,
    )
}

/// The entry at metadata slot `slot`.
///
/// # Errors
/// Fails if the pool is unusable or has no such slot.
pub fn entry(image: &(impl Image + ?Sized), slot: u64) -> Result<String, InspectError> {
    let pool = Pool::open(&image)?;
    Pool::has("slot", slot, pool.geometry.meta_slots())?;
    let line = entry_line(&pool, &mut pool.window(), slot);
    Ok(format!("slot {slot}: {line}\n"))
}

/// The file and the state of data block `block`.
///
/// # Errors
/// Fails if the pool is unusable or has no such block.
pub fn block(image: &(impl Image + ?Sized), block: u64) -> Result<String, InspectError> {
    let pool = Pool::open(&image)?;
    let geometry = &pool.geometry;
    Pool::has("block", block, geometry.blocks())?;
    let nodes = Nodes::read(&pool.view, geometry, &pool.chunks, |_| {});
    let seed = pool.superblock.hash_seed;
    let word = word_of(&pool.view, geometry, &pool.chunks, &nodes, seed, block);
    let mut out = Lines(String::new());
    out.add("state", format!("{:?}", word.state()).to_lowercase());
    if word.state() != MapState::Free {
        out.add("mapping id", word.id())
            .add("logical block", word.logical());
        if geometry.mapping.has_home_lines() {
            let homes = geometry.homes(pool.superblock.hash_seed);
            out.add("line", block / vellum_layout::LINE_ENTRIES)
                .add("home line", homes.line(word.id(), word.logical()));
        }
    }
    out.add(
        "data at",
        geometry.data_at + block * vellum_layout::BLOCK_BYTES,
    );
    Ok(out.0)
}

/// Every thread slot's journal that is not retired.
///
/// # Errors
/// Fails if the pool is unusable.
pub fn journals(image: &(impl Image + ?Sized)) -> Result<String, InspectError> {
    let pool = Pool::open(&image)?;
    let mut out = String::new();
    for slot in 0..pool.geometry.thread_slots {
        let (head, record) = journal::read(&pool.view, &pool.geometry, slot);
        let _ = match record {
            Record::Retired => continue,
            Record::Unsound => writeln!(out, "thread slot {slot}: unsound head {:#x}", head.0),
            Record::Torn(why) => writeln!(
                out,
                "thread slot {slot}: record {} of {} pairs never committed: {why}",
                head.sequence(),
                head.count()
            ),
            Record::Committed(_) => writeln!(
                out,
                "thread slot {slot}: record {} is committed:",
                head.sequence()
            ),
        };
        if let Record::Committed(pairs) = record {
            for pair in pairs {
                let _ = match pair.witnessed() {
                    Some(at) => writeln!(out, "  witness {at:#x}: checksum {:#x}", pair.value),
                    None => writeln!(out, "  store   {:#x}: {:#018x}", pair.at, pair.value),
                };
            }
        }
    }
    if out.is_empty() {
        out.push_str("every journal is retired\n");
    }
    Ok(out)
}
