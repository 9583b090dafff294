//! Valid pools of the smallest size that contain every kind of structure, and the locations of
//! these.

use std::sync::OnceLock;

use vellum::{
    Cred, FormatOptions, MappingKind, NamespaceKind, OpenOptions, RenameFlags, XattrMode, format,
};
use vellum_layout::{
    AreaExtentHead, AreaTableHead, BLOCK_BYTES, ChunkKind, ChunkWord, Entry, EntryHead, FileKind,
    Geometry, IdentityWord, Inode, InodeState, JournalHead, LogExtentHead, LogOwner, LogPosition,
    LogWord, MoveListHead, NameRecord, POOL_MIN_BYTES, PathEntryHead, PoolPhase, PoolState,
    Records, SLOT_BYTES, SLOTS_PER_BLOCK, SPAN_LINES, StateWord, Superblock, XattrHead,
};
use vellum_media::{CrashPoints, SimPool, Simulated};
use zerocopy::FromBytes;

use crate::judge::mount;
use crate::maps;

/// A class of structures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StructureKind {
    /// The superblock; a change goes to every copy.
    Superblock,
    /// The state block's two lines.
    State,
    /// A thread slot's journal.
    Journal,
    /// A word of the chunk table.
    Chunk,
    /// The saved live map.
    LiveMap,
    /// An inode.
    Inode,
    /// An entry with its name or its path, or a record of one.
    Entry,
    /// The head of a log extent.
    Extent,
    /// A word of a directory's log; the tail of a log of records.
    LogWord,
    /// The text of a symlink.
    Text,
    /// A piece of a set of extended attributes.
    Xattrs,
    /// A structure that assigns blocks to files: a word or an entry of the mapping table, or a
    /// word, an entry or the head of a node of a file's tree.
    Map,
    /// A line of the area table; line 0 is the head of its block.
    Area,
    /// The head of an extent of areas.
    AreaExtent,
    /// A word of a state-map.
    States,
    /// A block of the list of an unfinished move.
    MoveList,
}

/// A structure of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Structure {
    /// Pool offset.
    pub at: u64,
    /// The size in bytes.
    pub bytes: u64,
    /// Its number among its kind: slot, chunk, block, thread slot, area. For a word of a state-map
    /// this is the first slot; for a text, a piece of attributes, a record or a
    /// tail, the inode's slot; for a tree, see
    /// `maps.rs`.
    pub number: u64,
}

/// A valid pool.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Its bytes.
    pub image: Vec<u8>,
    /// The pool's geometry.
    pub geometry: Geometry,
    /// The seed of its hashes.
    pub hash_seed: u64,
    pub(crate) inodes: Vec<Structure>,
    entries: Vec<Structure>,
    extents: Vec<Structure>,
    log_words: Vec<Structure>,
    texts: Vec<Structure>,
    xattrs: Vec<Structure>,
    maps: Vec<Structure>,
    lists: Vec<Structure>,
}

/// The pools to start from. For the default mapping and namespace: closed cleanly; the same, but
/// marked as not closed; left by a crash; closed cleanly with blocks placed one by one; and the
/// same with runs that lie apart. Then, for each other mapping and each other namespace: closed
/// cleanly, and left by a crash.
pub fn samples() -> &'static [Sample] {
    static SAMPLES: OnceLock<Vec<Sample>> = OnceLock::new();
    SAMPLES.get_or_init(|| {
        let options = FormatOptions::default;
        let usual = |close, run_blocks, span_lines| {
            let options = FormatOptions {
                run_blocks: Some(run_blocks),
                span_lines: Some(span_lines),
                ..options()
            };
            Sample::of(make(close, options))
        };
        let closed = usual(true, 8, SPAN_LINES);
        let mut open = closed.clone();
        let state = StateWord::new(PoolPhase::Dirty, 1).0;
        open.set_word(open.geometry.state_at + PoolState::WORD, state);
        let left = usual(false, 8, SPAN_LINES);
        let mut all = vec![closed, open, left, usual(true, 1, 1), usual(true, 8, 1)];
        let mappings = MappingKind::ALL.into_iter();
        let mappings = mappings.filter(|kind| *kind != MappingKind::HashFs);
        let mappings = mappings.map(|mapping| FormatOptions {
            mapping,
            ..options()
        });
        let namespaces = NamespaceKind::ALL.into_iter();
        let namespaces = namespaces.filter(|kind| *kind != NamespaceKind::Direct);
        let namespaces = namespaces.map(|namespace| FormatOptions {
            namespace,
            ..options()
        });
        for options in mappings.chain(namespaces) {
            let both = [true, false];
            all.extend(both.map(|close| Sample::of(make(close, options.clone()))));
        }
        all.push(Sample::of(make_moving(FormatOptions {
            namespace: NamespaceKind::Adaptive,
            ..options()
        })));
        all
    })
}

/// Makes a pool with directories of one and of several log extents, files in one piece and with
/// holes, blocks beyond the end, links, symlinks in a slot and in a block, devices, extended
/// attributes in slots and in blocks, and dead entries. With areas, one directory is the root of
/// one. Unless `close` is set, the pool is left in the middle of work.
fn make(close: bool, options: FormatOptions) -> Vec<u8> {
    let pool = SimPool::new(POOL_MIN_BYTES);
    let options = FormatOptions {
        label: "sample".into(),
        uuid: [3; 16],
        hash_seed: 5,
        now_ns: 1,
        known_zero: true,
        ..options
    };
    format(&pool, &options).expect("a pool is made");
    let fs = mount(pool.image(), false).expect("a new pool opens").0;
    fill(&fs).expect("there is space for the sample");
    if close {
        fs.close().expect("the sample closes");
    }
    fs.pool().image()
}

/// Makes such a pool with areas, cut off in the middle of moving a directory. A list in it says how
/// to finish the move.
fn make_moving(options: FormatOptions) -> Vec<u8> {
    let (fs, _) = mount(make(true, options), false).expect("the sample opens");
    let (cred, top) = (Cred::root(), fs.root());
    let wide = fs.lookup(&cred, &top, b"wide").expect("it is there");
    let before = fs.pool().image();
    fs.pool().start_recording();
    fs.rename(&cred, &top, b"deep", &wide, b"here", RenameFlags::empty())
        .expect("there is space for the copies");
    let log = fs.pool().take_log();
    let mut points = CrashPoints::new(before, &log);
    while let Some(point) = points.next_point() {
        let images = point.states(1, 1).into_iter();
        let mut images = images.map(|state| point.image(&state));
        if let Some(image) = images.find(|image| is_moving(image)) {
            return image;
        }
    }
    panic!("the directory was moved without a list");
}

/// Whether a list, and no record, says what is left to be done.
fn is_moving(image: &[u8]) -> bool {
    let sample = Sample::of(image.to_vec());
    let journals = sample.structures(StructureKind::Journal).into_iter();
    let mut heads = journals.map(|slot| JournalHead(sample.word(slot.at + JournalHead::AT)));
    !sample.structures(StructureKind::MoveList).is_empty() && heads.all(|head| head.count() == 0)
}

/// A set of capabilities.
const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
/// A list of permissions: owner, user 1, owning group, mask, others.
const LIST: [u8; 44] = [
    2, 0, 0, 0, // version
    1, 0, 6, 0, 255, 255, 255, 255, //
    2, 0, 7, 0, 1, 0, 0, 0, //
    4, 0, 4, 0, 255, 255, 255, 255, //
    16, 0, 6, 0, 255, 255, 255, 255, //
    32, 0, 4, 0, 255, 255, 255, 255,
];

fn fill(fs: &std::sync::Arc<vellum::Fs<Simulated>>) -> vellum::Result<()> {
    let cred = Cred::root();
    let top = fs.root();
    let write = OpenOptions::new().read(true).write(true).mode(0o644);
    let deep = fs.mkdir(&cred, &top, b"deep", 0o755)?;
    let deeper = fs.mkdir(&cred, &deep, b"deeper", 0o700)?;
    let wide = fs.mkdir(&cred, &top, b"wide", 0o1777)?;
    fs.mkdir(&cred, &top, b"empty", 0o755)?;
    let file = fs.create(&cred, &top, b"file", &write)?;
    file.write_at(0, &[7; 20_000])?;
    let holes = fs.create(&cred, &deeper, b"holes", &write)?;
    holes.write_at(50_000, &[8; 3000])?;
    holes.allocate(vellum::Allocate::KeepSize, 0, 90_000)?;
    let cut = fs.create(&cred, &deep, &[b'l'; 255], &write)?;
    cut.write_at(0, &[9; 9000])?;
    cut.truncate(4100)?;
    for n in 0..20 {
        fs.link(&cred, file.node(), &wide, format!("link{n}").as_bytes())?;
    }
    for n in 3..9 {
        fs.unlink(&cred, &wide, format!("link{n}").as_bytes())?;
    }
    fs.symlink(&cred, &top, b"short", b"deep/deeper")?;
    fs.symlink(&cred, &deep, b"long", &b"../".repeat(300))?;
    fs.symlink(&cred, &deep, b"round", b"round")?;
    fs.mknod(&cred, &top, b"pipe", FileKind::Fifo, 0o600, 0)?;
    fs.mknod(&cred, &top, b"disk", FileKind::BlockDevice, 0o600, 77)?;
    // Sets in one slot, in three, and in blocks.
    let any = XattrMode::Any;
    fs.set_xattr(&cred, &deep, b"user.note", b"text", any)?;
    fs.set_xattr(&cred, file.node(), b"security.capability", &CAPABILITY, any)?;
    let access = b"system.posix_acl_access";
    fs.set_xattr(&cred, file.node(), access, &LIST, any)?;
    let default = b"system.posix_acl_default";
    fs.set_xattr(&cred, &wide, default, &LIST, any)?;
    fs.set_xattr(&cred, file.node(), b"user.note", &[2; 250], any)?;
    fs.set_xattr(&cred, &wide, b"trusted.overlay.opaque", b"y", any)?;
    fs.set_xattr(&cred, &wide, b"user.large", &[3; 9000], any)?;
    let gone = fs.create(&cred, &top, b"gone", &write)?;
    fs.set_xattr(&cred, gone.node(), b"user.note", &[4; 9000], any)?;
    gone.write_at(0, &[1; 5000])?;
    fs.unlink(&cred, &top, b"gone")?;
    let plain = RenameFlags::empty();
    fs.rename(&cred, &deep, b"long", &wide, b"moved", plain)?;
    if fs.superblock().geometry().namespace == NamespaceKind::Adaptive {
        fs.split(&wide)?;
    }
    Ok(())
}

impl Sample {
    fn of(image: Vec<u8>) -> Self {
        let superblock = Superblock::unseal(&image[..BLOCK_BYTES as usize]);
        let superblock = superblock.expect("the sample's superblock is sound");
        let mut sample = Self {
            image,
            geometry: superblock.geometry(),
            hash_seed: superblock.hash_seed,
            inodes: vec![],
            entries: vec![],
            extents: vec![],
            log_words: vec![],
            texts: vec![],
            xattrs: vec![],
            maps: vec![],
            lists: vec![],
        };
        sample.find_inodes();
        for inode in sample.inodes.clone() {
            sample.find_xattrs(inode);
            match sample.kind_of(inode) {
                Some(FileKind::Directory) => match sample.geometry.namespace {
                    NamespaceKind::Tree => sample.find_records(inode),
                    NamespaceKind::Direct | NamespaceKind::Adaptive => sample.find_log(inode),
                },
                Some(FileKind::Symlink) => sample.find_text(inode),
                _ => {}
            }
        }
        sample.maps = maps::find(&sample);
        if sample.geometry.namespace == NamespaceKind::Adaptive {
            sample.find_lists();
        }
        sample
    }

    fn find_inodes(&mut self) {
        for slot in 1..self.geometry.meta_slots() {
            let place = self.slot(slot, SLOT_BYTES);
            let state = IdentityWord(self.word(place.at)).state();
            let live = matches!(state, Some(InodeState::Live | InodeState::Orphan));
            if self.chunk_kind(slot) == Some(ChunkKind::Inodes) && live {
                self.inodes.push(place);
            }
        }
    }

    fn find_log(&mut self, dir: Structure) {
        let mut next = self.word(dir.at + Inode::ROOT);
        while next != 0 {
            let place = self.slot(next, size_of::<LogExtentHead>() as u64);
            let head = self.read::<LogExtentHead>(place.at);
            self.extents.push(place);
            for word in 0..head.kind().words() {
                let at = place.at + head.kind().words_at() + 8 * word;
                let entry = LogWord(self.word(at)).entry();
                if entry != 0 {
                    let place = self.slot(entry, 0);
                    let bytes = self.entry_bytes(place.at);
                    self.entries.push(Structure { bytes, ..place });
                }
                // Includes the first free words.
                if entry != 0 || word < 12 {
                    self.log_words.push(Structure {
                        at,
                        bytes: 8,
                        number: word,
                    });
                }
            }
            next = head.next;
        }
    }

    /// Bytes of the entry at `at`, including its name or its path.
    fn entry_bytes(&self, at: u64) -> u64 {
        match self.geometry.namespace {
            NamespaceKind::Adaptive => {
                let len = self.read::<PathEntryHead>(at).path_len;
                PathEntryHead::PATH + u64::from(len)
            }
            _ => Entry::NAME + u64::from(self.read::<EntryHead>(at).name_len),
        }
    }

    /// Metadata slots of the extents of areas.
    fn area_extents(&self) -> Vec<u64> {
        let slots = (0..self.geometry.meta_slots()).step_by(self.geometry.areas.slots() as usize);
        let of_areas = slots.filter(|&slot| self.chunk_kind(slot) == Some(ChunkKind::Areas));
        of_areas.collect()
    }

    /// The words of state-maps that cover entries, and a few others.
    fn states(&self) -> Vec<Structure> {
        let plan = self.geometry.areas;
        let word = |slot| Structure {
            at: self.geometry.meta_at + plan.states_at(slot),
            bytes: 8,
            number: slot,
        };
        let extents = self.area_extents().into_iter();
        let words = extents.flat_map(|extent| {
            let groups = (extent..extent + plan.slots()).step_by(SLOTS_PER_BLOCK as usize);
            groups.map(word).enumerate()
        });
        words
            .filter(|(number, place)| *number < 4 || self.word(place.at) != 0)
            .map(|(_, place)| place)
            .collect()
    }

    fn find_lists(&mut self) {
        let table = self.geometry.slot_at(self.geometry.areas.table);
        let mut next = self.word(table + AreaTableHead::MOVING);
        while next != 0 {
            let at = self.geometry.slot_at(next);
            let head = self.read::<MoveListHead>(at);
            let bytes = MoveListHead::bytes_of(head.count as usize) as u64;
            self.lists.push(self.slot(next, bytes));
            next = head.next;
        }
    }

    fn find_records(&mut self, dir: Structure) {
        let inode: Inode = self.read(dir.at);
        let tail = LogPosition(inode.detail);
        let owner = LogOwner {
            slot: dir.number,
            generation: IdentityWord(inode.identity).generation(),
        };
        self.log_words.push(Structure {
            at: dir.at + Inode::DETAIL,
            bytes: 8,
            number: dir.number,
        });
        let mut next = inode.root;
        while next != 0 {
            let block = self.slot(next, BLOCK_BYTES);
            let bytes = self.bytes(block.at, BLOCK_BYTES).try_into();
            let end = (tail.slot() == next).then_some(tail);
            let records = Records::of(bytes.expect("a block"), next, owner, end);
            let structures = records.map(|record| {
                let found = record.expect("the sample's records are sound");
                Structure {
                    at: block.at + found.place.byte(),
                    bytes: NameRecord::NAME + found.name.len() as u64,
                    number: dir.number,
                }
            });
            let structures: Vec<_> = structures.collect();
            self.entries.extend(structures);
            self.extents
                .push(self.slot(next, size_of::<LogExtentHead>() as u64));
            next = self.read::<LogExtentHead>(block.at).next;
        }
    }

    fn find_text(&mut self, link: Structure) {
        let inode: Inode = self.read(link.at);
        self.texts.push(Structure {
            number: link.number,
            ..self.slot(inode.root, inode.size)
        });
    }

    fn find_xattrs(&mut self, inode: Structure) {
        let mut next = self.word(inode.at + Inode::XATTR_ROOT);
        while next != 0 {
            let piece = self.slot(next, 0);
            let head = self.read::<XattrHead>(piece.at);
            self.xattrs.push(Structure {
                at: piece.at,
                bytes: (size_of::<XattrHead>() + usize::from(head.len)) as u64,
                number: inode.number,
            });
            next = head.next;
        }
    }

    fn kind_of(&self, inode: Structure) -> Option<FileKind> {
        IdentityWord(self.word(inode.at)).kind()
    }

    fn slot(&self, slot: u64, bytes: u64) -> Structure {
        let at = self.geometry.slot_at(slot);
        Structure {
            at,
            bytes,
            number: slot,
        }
    }

    fn chunk_kind(&self, slot: u64) -> Option<ChunkKind> {
        let chunk = slot / self.geometry.slots_per_chunk();
        let word = self.word(self.geometry.chunk_word_at(chunk));
        ChunkWord(word).decode(chunk).map(|(kind, _)| kind)
    }

    /// The structures of a class. Some classes are empty in other namespaces, or where no move was
    /// cut off.
    pub fn structures(&self, part: StructureKind) -> Vec<Structure> {
        let geometry = &self.geometry;
        let one = |at, bytes| {
            vec![Structure {
                at,
                bytes,
                number: 0,
            }]
        };
        let row = |at, count, each, bytes| {
            let place = |number| Structure {
                at: at + each * number,
                bytes,
                number,
            };
            (0..count).map(place).collect()
        };
        match part {
            StructureKind::Superblock => one(0, BLOCK_BYTES),
            StructureKind::State => one(geometry.state_at, 128),
            StructureKind::LiveMap => one(
                geometry.live_map_at,
                geometry.region_slots().div_ceil(64) * 8,
            ),
            StructureKind::Journal => {
                let bytes = JournalHead::PAIRS + 16 * vellum_layout::JOURNAL_MAX_PAIRS as u64;
                let each = vellum_layout::THREAD_SLOT_BYTES;
                row(
                    geometry.slots_at,
                    u64::from(geometry.thread_slots),
                    each,
                    bytes,
                )
            }
            StructureKind::Chunk => row(geometry.chunk_table_at, geometry.chunks_end(), 8, 8),
            StructureKind::Inode => self.inodes.clone(),
            StructureKind::Entry => self.entries.clone(),
            StructureKind::Extent => self.extents.clone(),
            StructureKind::LogWord => self.log_words.clone(),
            StructureKind::Text => self.texts.clone(),
            StructureKind::Xattrs => self.xattrs.clone(),
            StructureKind::Map => self.maps.clone(),
            StructureKind::MoveList => self.lists.clone(),
            StructureKind::Area | StructureKind::AreaExtent | StructureKind::States
                if geometry.namespace != NamespaceKind::Adaptive =>
            {
                vec![]
            }
            StructureKind::Area => row(geometry.slot_at(geometry.areas.table), 6, 64, 64),
            StructureKind::AreaExtent => {
                let head = |slot| self.slot(slot, AreaExtentHead::STATES);
                self.area_extents().into_iter().map(head).collect()
            }
            StructureKind::States => self.states(),
        }
    }

    /// The word at a pool offset.
    pub fn word(&self, at: u64) -> u64 {
        self.read(at)
    }

    /// Stores a word.
    pub fn set_word(&mut self, at: u64, value: u64) {
        self.bytes_mut(at, 8).copy_from_slice(&value.to_le_bytes());
    }

    /// A structure at a pool offset.
    pub fn read<T: FromBytes>(&self, at: u64) -> T {
        let bytes = self.bytes(at, size_of::<T>() as u64);
        T::read_from_bytes(bytes).expect("the length is the structure's")
    }

    /// Bytes at a pool offset.
    pub fn bytes(&self, at: u64, len: u64) -> &[u8] {
        &self.image[at as usize..(at + len) as usize]
    }

    /// The same bytes, mutable.
    pub fn bytes_mut(&mut self, at: u64, len: u64) -> &mut [u8] {
        &mut self.image[at as usize..(at + len) as usize]
    }
}
