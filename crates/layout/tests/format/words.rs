//! Words of the format, except those of areas.

use super::*;

#[test]
fn words() {
    let byte = |at: u32| 0xFFu64 << at;
    let state = |phase, epoch| StateWord::new(phase, epoch).0;
    let low = u64::from(u32::MAX);
    let aged = state(PoolPhase::Clean, u32::MAX) & low;
    assert_word(
        "StateWord",
        &[
            ("phase", byte(0)),
            ("epoch", (state(PoolPhase::Clean, 0) & low) ^ aged),
            ("check", !low),
        ],
    );
    assert_eq!(state(PoolPhase::Clean, 0) & low, 1);
    assert_eq!(state(PoolPhase::Dirty, 0) & low, 2);
    assert_eq!(
        state(PoolPhase::Clean, u32::MAX) >> 32,
        u64::from(checksum_words(&[aged]))
    );
    let number = CommittedWord::MAX;
    assert_word(
        "CommittedWord",
        &[("transaction", number), ("check", !number)],
    );
    assert_eq!(CommittedWord::new(u64::MAX).0 & number, number);
    assert_eq!(
        CommittedWord::new(5).0 >> 48,
        u64::from(checksum_words(&[5])) & 0xFFFF
    );
    assert_word(
        "JournalHead",
        &[
            ("count", JournalHead::new(0, 0xFFFF).0),
            ("sequence", JournalHead::new(u32::MAX, 0).0),
        ],
    );
    let overwrite = |id, ends_only, first, last| {
        let overwrite = Overwrite {
            id,
            ends_only,
            first,
            last,
        };
        overwrite.words()
    };
    let max = u32::MAX;
    let file = |id, ends_only| overwrite(id, ends_only, 0, 0)[0];
    assert_word(
        "Overwrite::FILE",
        &[("id", file(max, false)), ("ends", file(0, true))],
    );
    let blocks = |first, last| overwrite(0, false, first, last)[1];
    assert_word(
        "Overwrite::BLOCKS",
        &[("first", blocks(max, 0)), ("last", blocks(0, max))],
    );
    let place = |slot, byte| LogPosition::new(slot, byte).0;
    assert_word(
        "LogPlace",
        &[
            ("byte", place(0, 0xFFF)),
            ("block", place((1 << 48) - 1, 0)),
        ],
    );
    let chunk = ChunkWord::new(3, ChunkKind::Inodes, 0xFF).0;
    assert_eq!(chunk & 0xFFFF_FFFF, 0xFF01);
    assert_eq!(chunk >> 32, u64::from(checksum_words(&[3, 0xFF01])));
    assert_word(
        "ChunkWord",
        &[
            ("kind", byte(0)),
            ("segment", byte(8)),
            ("part", 0xFFFF_0000),
            ("check", !0xFFFF_FFFF),
        ],
    );
    let identity = IdentityWord::new(InodeState::Free, FileKind::Fifo, 0, 0);
    assert_eq!(identity.0, 1 << 8);
    let full = IdentityWord::new(InodeState::Free, FileKind::Fifo, u16::MAX, 0);
    let aged = IdentityWord::new(InodeState::Free, FileKind::Fifo, 0, u32::MAX);
    assert_word(
        "IdentityWord",
        &[
            ("state", 0xF),
            ("immutable", IdentityWord::IMMUTABLE),
            ("append only", IdentityWord::APPEND_ONLY),
            ("no dump", IdentityWord::NO_DUMP),
            ("no atime", IdentityWord::NO_ATIME),
            ("kind", byte(8)),
            ("mode", full.0 ^ identity.0),
            ("access list", IdentityWord::ACCESS_LIST),
            ("default list", IdentityWord::DEFAULT_LIST),
            ("capability", IdentityWord::CAPABILITY),
            ("project inherit", IdentityWord::PROJECT_INHERIT),
            ("generation", aged.0 ^ identity.0),
        ],
    );
    let record = |name_len, value_len| {
        u64::from(XattrRecord::new(XattrSpace::Access, name_len, value_len).0 ^ 1)
    };
    assert_bits(
        "XattrRecord",
        32,
        &[
            ("space", 0xF),
            ("name_len", record(0xFF, 0)),
            ("value_len", record(0, (1 << 20) - 1)),
        ],
    );
    assert_word(
        "OwnerWord",
        &[
            ("user", OwnerWord::new(u32::MAX, 0).0),
            ("group", OwnerWord::new(0, u32::MAX).0),
        ],
    );
    assert_word(
        "LinksWord",
        &[
            ("links", LinksWord::new(u32::MAX, 0).0),
            ("flags", LinksWord::new(0, u32::MAX).0),
        ],
    );
    let valid = MapRoot::new(0, 0).0;
    let tree = |target| TreeWord::new(target, 5, 7).0;
    let bits = |word: u64| word & ((1 << 35) - 1);
    let node = |block, level| TreeTarget::Node { block, level };
    assert_word(
        "TreeWord",
        &[
            (
                "target",
                bits(tree(TreeTarget::Mapped(u32::MAX)) ^ tree(TreeTarget::Mapped(0))),
            ),
            ("what", bits(tree(node(0, 0)))),
            ("level", bits(tree(node(0, 7)) ^ tree(node(0, 0)))),
            ("check", !bits(u64::MAX)),
        ],
    );
    let mapped = tree(TreeTarget::Mapped(3));
    assert_eq!(
        mapped >> 35,
        u64::from(checksum_words(&[bits(mapped), 5 << 32 | 7])) & 0x1FFF_FFFF
    );
    assert_eq!(
        [1, 2, 3].map(|what| what << 30),
        [
            bits(tree(TreeTarget::Unwritten(0))),
            bits(tree(TreeTarget::Mapped(0))),
            bits(tree(node(0, 0))),
        ]
    );
    assert_word(
        "MapRoot",
        &[
            ("id", MapRoot::new(0, u32::MAX).0 ^ valid),
            ("segment", MapRoot::new(u16::MAX, 0).0 ^ valid),
            ("beyond", MapRoot::BEYOND),
            ("valid", valid),
        ],
    );
    assert_word(
        "LifeWord",
        &[
            ("time", LifeWord::dead(i64::MAX).0),
            ("valid", LifeWord::alive(0).0),
        ],
    );
    assert_word(
        "TargetWord",
        &[
            (
                "inode",
                TargetWord::new(u64::MAX, FileKind::Fifo).0 ^ 1 << 48,
            ),
            ("kind", byte(48)),
        ],
    );
    assert_word("LogWord", &[("entry", LogWord::new(u64::MAX).0)]);
    let link = |block, last| u64::from(ChainLink::new(block, last).0);
    assert_word(
        "ChainLink",
        &[
            ("block", link(u32::MAX, false)),
            ("last", link(0, true)),
            ("next link", u64::from(u32::MAX) << 32),
        ],
    );
    let place = |block, following, preceding| {
        KeyedWord::new(5, block, following, preceding).0 & ((1 << 46) - 1)
    };
    assert_word(
        "PlaceWord",
        &[
            ("block", place(u32::MAX, 0, 0)),
            ("following", place(0, u32::MAX, 0)),
            ("preceding", place(0, 0, u32::MAX)),
            ("check", !((1 << 46) - 1)),
        ],
    );
    let root = |top, is_moving| LevelRoot::new(top, is_moving).0 & u64::from(u32::MAX);
    assert_word(
        "LevelRoot",
        &[
            ("top", root(u32::MAX, false)),
            ("moving", root(0, true)),
            ("check", !u64::from(u32::MAX)),
        ],
    );
    assert_word(
        "MapWord",
        &[
            ("logical", MapWord::key(0, u32::MAX)),
            ("id", MapWord::key(u32::MAX, 0)),
            ("state", MapWord::new(MapState::Limbo, 0, 0).0),
        ],
    );
}
