//! Compares every marked table of `docs/format` with the code.

use std::collections::BTreeMap;
use std::fs;
use std::mem::offset_of;

use vellum_layout::*;

mod decode;
mod words;

const FORMAT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/format");

/// All files of `docs/format`, one after the other.
fn document() -> String {
    let files = fs::read_dir(FORMAT).expect("docs/format exists");
    let read = |file: fs::DirEntry| fs::read_to_string(file.path());
    let texts = files.map(|file| file.and_then(read));
    texts.map(|text| text.expect("a readable file")).collect()
}

/// The tables of the document by the text of their comments, each row split into cells.
fn tables() -> BTreeMap<String, Vec<Vec<String>>> {
    let document = document();
    let mut tables = BTreeMap::new();
    let mut lines = document.lines();
    while let Some(line) = lines.next() {
        let Some(title) = line
            .strip_prefix("<!-- ")
            .and_then(|line| line.strip_suffix(" -->"))
        else {
            continue;
        };
        let rows: Vec<Vec<String>> = lines
            .by_ref()
            .take_while(|line| line.starts_with('|'))
            .skip(2)
            .map(|line| {
                let cells = line.trim_matches('|').split(" | ");
                cells
                    .map(|cell| cell.trim().trim_matches('`').to_owned())
                    .collect()
            })
            .collect();
        assert!(!rows.is_empty(), "no table under {title:?}");
        let before = tables.insert(title.to_owned(), rows);
        assert!(before.is_none(), "two tables under {title:?}");
    }
    tables
}

#[track_caller]
fn table(title: &str) -> Vec<Vec<String>> {
    let found = tables().remove(title);
    found.unwrap_or_else(|| panic!("docs/format has no table {title:?}"))
}

fn number(text: &str) -> u64 {
    text.parse()
        .unwrap_or_else(|_| panic!("{text:?} is not a number"))
}

fn size_of_field<T, F>(_: impl Fn(&T) -> &F) -> u64 {
    size_of::<F>() as u64
}

/// Offset, size and name of every field of a struct.
macro_rules! fields {
    ($type:ident: $($field:ident)*) => {
        vec![$((
            offset_of!($type, $field) as u64,
            size_of_field(|it: &$type| &it.$field),
            stringify!($field),
        )),*]
    };
}

/// Checks the table of a struct: every field, at its offset, of its size, in order, without a gap.
#[track_caller]
fn assert_struct(name: &str, size: usize, fields: Vec<(u64, u64, &str)>) {
    let rows = table(&format!("struct {name} {size}"));
    let documented: Vec<_> = rows
        .iter()
        .map(|row| (number(&row[0]), number(&row[1]), row[2].as_str()))
        .collect();
    assert_eq!(documented, fields, "{name}");
    let mut end = 0;
    for (offset, bytes, field) in fields {
        assert_eq!(offset, end, "{name}.{field} leaves a gap before it");
        end = offset + bytes;
    }
    assert_eq!(end, size as u64, "{name}");
}

macro_rules! assert_struct {
    ($type:ident: $($field:ident)*) => {
        assert_struct(stringify!($type), size_of::<$type>(), fields!($type: $($field)*));
    };
}

#[test]
fn structs() {
    assert_struct!(Superblock: magic version block_bytes uuid compatible read_only_compatible
        incompatible sequence created hash_seed pool_bytes chunk_bytes thread_slots
        thread_slot_bytes state_at slots_at last_copy_at label log_at log_bytes undo_at undo_bytes
        media_at changed_at user_uuid regions datasets
        segments mount_options reserved_tail reserved_check checksum);
    assert_struct!(RegionRecord: at chunks chunk_table_at live_map_at);
    assert_struct!(FsRecord: in_use namespace root name area_table area_bytes size_max at bytes
        uuid);
    assert_struct!(SegmentRecord: table_at data_at blocks mapping medium fs run_blocks
        fragmentation span_lines saved_state_at medium_id);
    assert_struct!(SavedStateHead: epoch used displaced body_check checksum reserved);
    assert_struct!(PendingBlock: next count checksum reserved stores);
    assert_struct!(PendingStore: at value);
    assert_struct!(Inode: identity owner links btime parent xattr_root acl_root project checksum
        size mtime ctime atime root detail cachelet pattern);
    assert_struct!(EntryHead: life target cookie parent generation checksum name_hash name_len
        flags);
    assert_struct!(LogExtentHead: owner next base_cookie flags checksum);
    assert_struct!(NameRecord: kind reserved name_len checksum target time cookie generation
        name_hash);
    assert_struct!(XattrHead: next checksum len reserved);
    assert_struct!(QuotaRecord: flags hard_bytes soft_bytes hard_inodes soft_inodes bytes_until
        inodes_until);
    assert_struct!(AreaTableHead: next taken number checksum moving reserved);
    assert_struct!(MoveListHead: next count checksum);
    assert_struct!(MovedEntry: word_at from to);
    assert_struct!(AreaLine: word root generation root_generation table saved saved_check formed
        checksum);
    assert_struct!(AreaExtentHead: area generation checksum reserved);
    assert_struct!(PathEntryHead: life target cookie parent generation checksum path_len name_at
        area);
    assert_struct!(Anchor: magic uuid number salt attach boot tail tail_at sum target target_sum
        reserved_middle flags
        image reserved check);
    assert_struct!(MediumHead: magic id pool segment reserved_segment data_at blocks bytes
        replica_at replica_bytes session reserved check);
    assert_struct!(ReplicaHead: magic pool state number blocks sum reserved check);
    assert_struct!(DevicePath: id kind length reserved path);
    assert_struct!(DevicePaths: places check session next reserved);
    assert_struct!(UndoRecord: granule transaction check reserved old);
    assert_struct!(RecordHead: magic check epoch known journaled_from bytes lines journaled revokes
        previous);
    assert_struct!(ExtentNodeHead: owner level first generation checksum reserved);
}

#[test]
fn word_offsets_are_those_of_the_structs() {
    let at = |rows: &[Vec<String>], field: &str| {
        let row = rows.iter().find(|row| row[2] == field).unwrap();
        number(&row[0])
    };
    let inode = table("struct Inode 128");
    for (offset, field) in [
        (Inode::IDENTITY, "identity"),
        (Inode::OWNER, "owner"),
        (Inode::LINKS, "links"),
        (Inode::BTIME, "btime"),
        (Inode::PARENT, "parent"),
        (Inode::PROJECT, "project"),
        (Inode::SIZE, "size"),
        (Inode::MTIME, "mtime"),
        (Inode::CTIME, "ctime"),
        (Inode::ATIME, "atime"),
        (Inode::ROOT, "root"),
        (Inode::DETAIL, "detail"),
        (Inode::CACHELET, "cachelet"),
    ] {
        assert_eq!(offset, at(&inode, field), "{field}");
    }
    let entry = table("struct EntryHead 48");
    for (offset, field) in [
        (Entry::LIFE, "life"),
        (Entry::TARGET, "target"),
        (Entry::COOKIE, "cookie"),
        (Entry::PARENT, "parent"),
        (Entry::CHECK, "generation"),
        (Entry::NAME_WORD, "name_hash"),
    ] {
        assert_eq!(offset, at(&entry, field), "{field}");
    }
    assert_eq!(Entry::NAME, 48);
    let line = table("struct AreaLine 64");
    for (offset, field) in [
        (AreaLine::WORD, "word"),
        (AreaLine::ROOT, "root"),
        (AreaLine::LIVES, "generation"),
        (AreaLine::TABLE, "table"),
        (AreaLine::SAVED, "saved"),
        (AreaLine::SAVED_CHECK, "saved_check"),
        (AreaLine::FORMED, "formed"),
    ] {
        assert_eq!(offset, at(&line, field), "{field}");
    }
    let entry = table("struct PathEntryHead 48");
    for (offset, field) in [
        (PathEntryHead::LIFE, "life"),
        (PathEntryHead::TARGET, "target"),
        (PathEntryHead::COOKIE, "cookie"),
        (PathEntryHead::PARENT, "parent"),
        (PathEntryHead::CHECK, "generation"),
        (PathEntryHead::PATH_WORD, "path_len"),
    ] {
        assert_eq!(offset, at(&entry, field), "{field}");
    }
    let head = table("struct AreaTableHead 64");
    assert_eq!(AreaTableHead::NEXT, at(&head, "next"));
    assert_eq!(AreaTableHead::TAKEN, at(&head, "taken"));
    assert_eq!(AreaTableHead::MOVING, at(&head, "moving"));
    let extent = table("struct LogExtentHead 32");
    assert_eq!(LogExtentHead::NEXT, at(&extent, "next"));
    for (kind, bytes, words_at, words) in [
        (LogExtentKind::Small, SLOT_BYTES, 32, 12),
        (LogExtentKind::Large, BLOCK_BYTES, 64, 504),
    ] {
        assert_eq!(
            (kind.bytes(), kind.words_at(), kind.words()),
            (bytes, words_at, words)
        );
    }
}

#[test]
fn offsets_without_a_struct() {
    let check = |name: &str, expected: &[(&str, u64)]| {
        let rows = table(&format!("offsets {name}"));
        let documented: Vec<_> = rows
            .iter()
            .map(|row| (row[2].as_str(), number(&row[0])))
            .collect();
        assert_eq!(documented, expected, "{name}");
        for pair in rows.windows(2) {
            assert!(number(&pair[0][0]) + number(&pair[0][1]) <= number(&pair[1][0]));
        }
    };
    check(
        "PoolState",
        &[
            ("WORD", PoolState::WORD),
            ("BOOT_ID", PoolState::BOOT_ID),
            ("PID", PoolState::PID),
            ("OPENED", PoolState::OPENED),
            ("LIVE_MAP_CHECK", PoolState::LIVE_MAP_CHECK),
            ("INODES", PoolState::INODES),
            ("BLOCKS", PoolState::BLOCKS),
            ("SAVED_CHECK", PoolState::SAVED_CHECK),
            ("PENDING", PoolState::PENDING),
        ],
    );
    check(
        "PoolHeader",
        &[
            ("COMMITTED", PoolHeader::COMMITTED),
            ("BOOT", PoolHeader::BOOT),
            ("POISONED", PoolHeader::POISONED),
        ],
    );
    check("ChangedMap", &[("SINCE", ChangedMap::SINCE)]);
    check(
        "JournalHead",
        &[
            ("AT", JournalHead::AT),
            ("CHECK", JournalHead::CHECK),
            ("PAIRS", JournalHead::PAIRS),
        ],
    );
    check(
        "Overwrite",
        &[("FILE", Overwrite::FILE), ("BLOCKS", Overwrite::BLOCKS)],
    );
    let pairs = &table("offsets JournalHead")[2];
    assert_eq!(number(&pairs[1]), 16 * JOURNAL_MAX_PAIRS as u64);
}

#[test]
fn constants() {
    let rows = table("constants");
    macro_rules! expect {
        ($($name:ident)*) => {
            vec![$((stringify!($name).to_owned(), u64::try_from($name).unwrap())),*]
        };
    }
    #[allow(clippy::useless_conversion, clippy::unnecessary_fallible_conversions)]
    let expected = expect!(VERSION BLOCK_BYTES SLOT_BYTES SLOTS_PER_BLOCK THREAD_SLOT_BYTES
        ROOT_SLOT POOL_MIN_BYTES REGION_MAX FS_MAX SEGMENT_MAX NAME_MAX ENTRY_MAX_SLOTS
        DIR_PATH_MAX PATH_MAX PATH_ENTRY_MAX_SLOTS MOVE_LIST_ENTRIES AREA_TABLE_LINES ROOT_AREA
        AREA_LIMIT
        TABLE_BLOCK_LINES TABLE_LINE_WORDS TABLE_LEVEL_MAX JOURNAL_MAX_PAIRS LINE_ENTRIES RUN_BLOCKS
        SPAN_LINES SPAN_LINES_MAX TEXT_SLOT_MAX TEXT_MAX XATTR_NAME_MAX
        XATTR_VALUE_MAX XATTR_LIST_MAX XATTR_SET_MAX DATASET_ALIGN FS_NAME_MAX);
    let documented: Vec<_> = rows
        .iter()
        .map(|row| (row[0].clone(), number(&row[1])))
        .collect();
    assert_eq!(documented, expected);
    assert_eq!(&MAGIC, b"VELLUMFS");
    assert!(table("struct Superblock 4096")[0][3].contains("VELLUMFS"));
    assert_eq!(
        (
            features::COMPATIBLE,
            features::READ_ONLY_COMPATIBLE,
            features::INCOMPATIBLE
        ),
        (3, 7, 127),
        "the document says that twelve features are defined"
    );
}

/// Checks the table of a word: its fields cover all bits in order, and each named field has the
/// bits that change with it in `fields`; the others are reserved.
#[track_caller]
fn assert_word(name: &str, fields: &[(&str, u64)]) {
    assert_bits(name, 64, fields);
}

/// The same for a word with this number of bits.
#[track_caller]
fn assert_bits(name: &str, bits: u64, fields: &[(&str, u64)]) {
    let mut end = 0;
    let mut named = Vec::new();
    for row in table(&format!("word {name}")) {
        let (from, to) = row[0].split_once("..").expect("bits are a..b");
        let (from, to) = (number(from), number(to));
        assert_eq!(from, end, "{name}: bits before {}", row[1]);
        assert!(to > from && to <= bits, "{name}: {}", row[1]);
        end = to;
        let mask = (u64::MAX >> (64 - (to - from))) << from;
        if row[1] != "reserved" {
            named.push((row[1].clone(), mask));
        }
    }
    assert_eq!(end, bits, "{name}");
    let expected: Vec<_> = fields
        .iter()
        .map(|(field, mask)| ((*field).to_owned(), *mask))
        .collect();
    assert_eq!(named, expected, "{name}");
}

#[test]
fn area_words() {
    let area = |phase| AreaWord::new(65, phase).0;
    let check = 0xFFFF << 48;
    assert_word(
        "AreaWord",
        &[("phase", area(AreaPhase::Going) & !check), ("check", check)],
    );
    let live = area(AreaPhase::Live);
    assert_eq!(live >> 48, u64::from(checksum_words(&[65, 2])) & 0xFFFF);
    let merged = |into, average_reads| {
        let merged = Merged {
            into,
            reason: MergeReason::Asked,
            at: Formed::default(),
            average_reads,
        };
        AreaLine::default().merged_away(65, &merged).saved
    };
    let reason = merged(0, 0);
    assert_eq!(reason, 1 << 24);
    assert_word(
        "MergedWord",
        &[
            ("area", merged(AREA_LIMIT - 1, 0) & !reason),
            ("reason", 0xFF << 24),
            ("average", merged(0, u32::MAX) & !reason),
        ],
    );
    assert_word(
        "DirPlace",
        &[
            ("entry", DirLocation::new(u64::MAX, 0).0),
            ("area", DirLocation::new(0, AREA_LIMIT - 1).0),
        ],
    );
    assert_word(
        "TableRoot",
        &[
            ("slot", TableRoot::new(u64::MAX, 0).0),
            ("level", TableRoot::new(0, u32::MAX).0),
        ],
    );
    let used = TableWord::new(0, 0).0;
    assert_word(
        "TableWord",
        &[
            ("slot", TableWord::new(u64::MAX, 0).0 ^ used),
            ("tag", TableWord::new(0, u32::MAX).0 ^ used),
            ("used", used),
        ],
    );
    let filter = (0..48u64).fold(0, |bits, bit| {
        // The first tag of each filter bit.
        let tag = (bit << 31).div_ceil(48) as u32;
        bits | TableHead::default().with_displaced(tag).unwrap().0 & !0xFF
    });
    assert_word(
        "TableHead",
        &[
            ("displaced", 0xFF),
            ("filter", filter),
            ("check", 0xFF << 56),
        ],
    );
    let words = [1, 2, 3, 4, 5, 6, 7];
    let area = AreaLife {
        number: 65,
        generation: 3,
    };
    let sealed = TableHead(9).sealed(&words, area, 2, 5);
    let summed = [&[3 << 32 | 65, 2, 5, 9], &words[..]].concat();
    let check = u64::from(checksum_words(&summed)) % 255 + 1;
    assert_eq!(sealed.0, check << 56 | 9);
}

#[test]
fn extent_words() {
    let seal = ExtentSeal::new(9);
    let salted = |salt: u64, word: u64| mix(mix(9 * 4 + salt) ^ word);
    let key = |logical, len, valid| ExtentKey::new(seal, logical, len, valid).0;
    let check = 0x7FFF << 48;
    assert_word(
        "ExtentKey",
        &[
            ("logical", key(u32::MAX, 0, false) & !check),
            ("length", key(0, u32::MAX, false) & !check),
            ("check", check),
            ("valid", key(0, 0, true) & !check),
        ],
    );
    assert_eq!(
        key(7, 3, true) & check,
        salted(1, 1 << 63 | 3 << 32 | 7) & check
    );
    let body = |place, kind| ExtentBody::new(seal, place, kind).0;
    let check = u64::MAX << 34;
    assert_word(
        "ExtentBody",
        &[
            (
                "place",
                body(u32::MAX, ExtentKind::Unwritten) & !check ^ 1 << 32,
            ),
            ("kind", body(0, ExtentKind::Node) & !check),
            ("check", check),
        ],
    );
    let mapped = body(7, ExtentKind::Mapped);
    assert_eq!(mapped & check, salted(2, 2 << 32 | 7) & check);
    let root = |place, len| {
        let state = MapState::Unwritten;
        ExtentRoot::Extent {
            block: place,
            len,
            state,
        }
        .word(seal)
    };
    let check = 0xFFFF << 48;
    let node = ExtentRoot::Node { node: 0, level: 0 }.word(seal);
    assert_word(
        "ExtentRoot",
        &[
            ("place", root(u32::MAX, 0) & !check ^ 1 << 30),
            ("kind", node & !check),
            ("length", root(0, u32::MAX) & !check ^ 1 << 30),
            ("check", check),
        ],
    );
    assert_eq!(root(7, 3) & check, salted(3, 3 << 32 | 1 << 30 | 7) & check);
    assert_eq!((EXTENT_ENTRIES, EXTENT_MAX_LEVEL), (254, 7));
    assert_eq!(ExtentNodeHead::ENTRIES_AT, 32);
    assert_eq!(
        (ExtentKey::AT, ExtentBody::AT, ExtentKey::ENTRY_BYTES),
        (0, 8, 16)
    );
}

/// Checks the table of an enum: `name_of` returns the name of each valid number.
#[track_caller]
fn assert_enum(name: &str, name_of: impl Fn(u8) -> Option<String>) {
    let rows = table(&format!("enum {name}"));
    let documented: Vec<_> = rows
        .iter()
        .map(|row| (number(&row[0]), row[1].clone()))
        .collect();
    let expected: Vec<_> = (0..=u8::MAX)
        .filter_map(|number| Some((u64::from(number), name_of(number)?)))
        .collect();
    assert_eq!(documented, expected, "{name}");
}

fn debug(value: impl std::fmt::Debug) -> String {
    format!("{value:?}")
}

#[test]
fn enums() {
    assert_enum("FileKind", |n| FileKind::from_u8(n).map(debug));
    assert_enum("InodeState", |n| {
        let state = IdentityWord(n.into()).state();
        state.filter(|_| n < 16).map(debug)
    });
    assert_enum("MapState", |n| {
        (n < 4).then(|| debug(MapWord(u64::from(n) << 62).state()))
    });
    assert_enum("ExtentKind", |n| ExtentKind::from_number(n).map(debug));
    assert_enum("ChunkKind", |n| {
        // Words of kind `Table` belong to a segment.
        let low = u64::from(n) | u64::from(u64::from(n) == ChunkKind::Table as u64) << 8;
        let check = u64::from(checksum_words(&[5, low])) << 32;
        let word = ChunkWord(if n == 0 { 0 } else { low | check });
        word.decode(5).map(|(kind, _)| debug(kind))
    });
    assert_enum("AreaPhase", |n| AreaPhase::from_u8(n).map(debug));
    assert_enum("MergeReason", |n| MergeReason::from_u8(n).map(debug));
    assert_enum("EntryState", |n| EntryState::from_u8(n).map(debug));
    assert_enum("RecordKind", |n| RecordKind::from_u8(n).map(debug));
    assert_enum("XattrSpace", |n| XattrSpace::from_u8(n).map(debug));
    for row in table("enum XattrSpace") {
        let space = XattrSpace::from_u8(number(&row[0]) as u8).unwrap();
        assert_eq!(row[2].split('`').next(), Some(space.prefix()), "{row:?}");
        assert_eq!(row[2].contains("whole"), space.is_whole(), "{row:?}");
    }
    assert_enum("NamespaceKind", |n| {
        NamespaceKind::from_number(n.into()).map(debug)
    });
    assert_enum("MappingKind", |n| {
        MappingKind::from_number(n.into()).map(debug)
    });
}

#[test]
fn values() {
    let inode = Inode {
        identity: IdentityWord::new(InodeState::Live, FileKind::File, 0o644, 7).0,
        btime: 99,
        ..Inode::default()
    };
    let pairs = [JournalPair::store(4096, 77)];
    let cuckoo_homes = CuckooPlan { lines: 55 }.homes(24301, MapWord::key(5, 3));
    let level_homes = {
        let plan = LevelPlan { first: 6, last: 3 };
        let begin = plan.lines_of(3).start;
        plan.homes(24301, MapWord::key(5, 3), 3)
            .map(|line| line - begin)
    };
    let merged = Merged {
        into: 1,
        reason: MergeReason::Small,
        at: Formed {
            seconds: 5,
            slots: 6,
            reads: 7,
        },
        average_reads: 8,
    };
    let path = b"dir/file";
    let area = AreaLife {
        number: 65,
        generation: 3,
    };
    let entry = PathEntryHead {
        target: TargetWord::new(9, FileKind::File).0,
        cookie: 3,
        parent: 1,
        generation: 2,
        area: 65,
        ..PathEntryHead::default()
    };
    let seal = PathSeal {
        area: 3,
        slot: 77,
        directory: 6,
    };
    let expected = [
        ("checksum(\"123456789\")", checksum(b"123456789").into()),
        ("checksum_words(1, 2)", checksum_words(&[1, 2]).into()),
        ("mix(1)", mix(1)),
        (
            "name_hash(24301, \"file\")",
            name_hash(24301, b"file").into(),
        ),
        (
            "home_line(24301, 5, 3, 1, 64)",
            home_line(24301, 5, 3, 1, 64),
        ),
        (
            "home_line(24301, 5, 100, 16, 64)",
            home_line(24301, 5, 100, 16, 64),
        ),
        (
            "home_line(24301, 1073741823, 4294967295, 1, 134217728)",
            home_line(24301, 0x3FFF_FFFF, u32::MAX, 1, 1 << 27),
        ),
        ("chain(24301, 5, 3, 1, 65)", chain(24301, 5, 3, 1, 65)),
        ("chain(24301, 5, 100, 16, 65)", chain(24301, 5, 100, 16, 65)),
        ("cuckoo_first(24301, 5, 3, 55)", cuckoo_homes[0]),
        ("cuckoo_second(24301, 5, 3, 55)", cuckoo_homes[1]),
        ("path_hash(24301, \"dir/file\")", path_hash(24301, path).0),
        ("area_word(65, Live)", AreaWord::new(65, AreaPhase::Live).0),
        (
            "area_line_checksum(65, 3, 1048576, 7)",
            AreaLine::new(area, AreaPhase::Live, 1 << 20, 7)
                .checksum
                .into(),
        ),
        (
            "merged_check(65, 3, 1048576, 7)",
            AreaLine::new(area, AreaPhase::Live, 1 << 20, 7)
                .merged_away(65, &merged)
                .saved_check,
        ),
        (
            "path_entry_checksum(\"dir/file\")",
            entry.sealed(path, seal).checksum.into(),
        ),
        (
            "table_second(\"dir/file\", 2)",
            TableRoot::second(path_hash(24301, path), 2),
        ),
        (
            "table_head(65, 3, 2, 5)",
            TableHead::default().sealed(&[0; 7], area, 2, 5).0,
        ),
        (
            "place_word(5, 3, 7, 2, 1)",
            KeyedWord::new(MapWord::key(5, 3), 7, 2, 1).0,
        ),
        ("level_first(24301, 5, 3, 6, 3)", level_homes[0]),
        ("level_second(24301, 5, 3, 6, 3)", level_homes[1]),
        ("level_root(3, 1)", LevelRoot::new(3, true).0),
        (
            "saved_state_checksum(3, 5, 1, 7)",
            SavedStateHead::new(3, 5, 1, 7).checksum.into(),
        ),
        (
            "chunk_word(7, Entries)",
            ChunkWord::new(7, ChunkKind::Entries, 0).0,
        ),
        (
            "state_word(Clean, 3)",
            StateWord::new(PoolPhase::Clean, 3).0,
        ),
        (
            "journal_check(2, 5, 4096, 77)",
            JournalHead::new(5, 1).seal(2, &pairs),
        ),
        (
            "inode_checksum(5, Live, File, 7, 99)",
            inode.expected_checksum(5).into(),
        ),
        ("text_check(5, 7, \"target\")", text_check(5, 7, b"target")),
        (
            "carried_sum(7 * 16, 3, 5 * 4096)",
            ReplicaPlan::block_sum(&[7; 16], 3, &[5; BLOCK_BYTES as usize]),
        ),
    ];
    let expected = expected.map(|(text, value)| (text.to_owned(), format!("{value:#x}")));
    let documented: Vec<_> = table("values")
        .into_iter()
        .map(|row| (row[0].clone(), row[1].clone()))
        .collect();
    assert_eq!(documented, expected);
}

#[test]
fn every_marked_table_is_checked() {
    let known = ["struct ", "word ", "enum ", "offsets "];
    let held = |title: &str| {
        title == "constants"
            || title == "values"
            || known.iter().any(|kind| title.starts_with(kind))
    };
    let count = |kind: &str| {
        tables()
            .keys()
            .filter(|title| title.starts_with(kind))
            .count()
    };
    assert!(
        tables().keys().all(|title| held(title)),
        "{:?}",
        tables().keys()
    );
    assert_eq!(
        (
            count("struct"),
            count("word"),
            count("enum"),
            count("offsets")
        ),
        (27, 29, 12, 5)
    );
}
