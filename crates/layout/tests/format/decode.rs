//! Decoders accept any bytes without a panic, and unpack what was packed.

use proptest::prelude::*;
use vellum_layout::*;
use zerocopy::{FromBytes, IntoBytes};

fn kind() -> impl Strategy<Value = FileKind> {
    prop::sample::select(vec![
        FileKind::Fifo,
        FileKind::CharDevice,
        FileKind::Directory,
        FileKind::BlockDevice,
        FileKind::File,
        FileKind::Symlink,
        FileKind::Socket,
    ])
}

fn bytes(max: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..=max)
}

fn sample(request: &GeometryRequest) -> Option<Superblock> {
    let geometry = Geometry::plan(request).ok()?;
    let namespace = request.namespace;
    let uuid = [7; 16];
    Some(Superblock::new(&geometry, uuid, 1, 2, "label", namespace))
}

proptest! {
    #[test]
    fn any_bytes_as_structures(bytes in bytes(5000), slot: u64, owner: u64, generation: u32) {
        let _ = Superblock::unseal(&bytes);
        prop_assert!(!Entry::is_sound(&bytes, generation) || bytes.len() > 48);
        if let Ok((inode, _)) = Inode::read_from_prefix(&bytes) {
            let _ = inode.is_sound(slot);
        }
        let owner_of_records = LogOwner { slot: owner, generation };
        if let Some(Ok(block)) = bytes.get(..4096).map(TryInto::try_into) {
            let tail = LogPosition(u64::from(generation));
            for tail in [None, Some(tail)] {
                let records = Records::of(block, slot, owner_of_records, tail);
                prop_assert!(records.clone().unsealed().count() < 4096);
                prop_assert!(records.from(owner % 8192).count() < 4096);
            }
            prop_assert!(MoveListHead::decode(slot, block).is_none());
        }
        if let Some(xattrs) = read_xattrs(&bytes) {
            let mut again = Vec::new();
            xattrs.iter().for_each(|xattr| xattr.push_to(&mut again));
            prop_assert_eq!(&again, &bytes);
        }
        if let Ok((head, _)) = LogExtentHead::read_from_prefix(&bytes) {
            let _ = head.is_sound_of_records(slot, owner_of_records);
            let _ = (
                head.is_sound(slot, owner, generation),
                head.kind().words(),
                head.is_compacted(),
            );
        }
        let seal = PathSeal { area: generation, slot, directory: generation };
        if let Some((head, path)) = PathEntryHead::decode_unsealed(&bytes) {
            let joined = [head.directory(path), head.name(path)].join(&b'/');
            prop_assert!(joined == path || head.directory(path).is_empty());
            prop_assert!((1..=NAME_MAX).contains(&head.name(path).len()));
        }
        prop_assert!(PathEntryHead::decode(&bytes, seal).is_none());
        if let Ok((line, _)) = AreaLine::read_from_prefix(&bytes) {
            let _ = (
                line.phase(generation),
                line.saved(generation, 3),
                TableRoot(line.table).get(),
            );
            let _ = line.merged(generation);
        }
        if let Ok((head, _)) = AreaTableHead::read_from_prefix(&bytes) {
            let _ = head.is_sound(slot, generation);
        }
        if let Ok((head, _)) = AreaExtentHead::read_from_prefix(&bytes) {
            let _ = head.owner(slot);
        }
        let _ = (
            checksum(&bytes),
            name_hash(owner, &bytes),
            path_hash(owner, &bytes),
            is_path(&bytes),
        );
    }

    /// With a valid checksum, only the checks of fields protect the reader of a superblock.
    #[test]
    fn sealed_superblocks(changes in prop::collection::vec((0usize..511, any::<u64>()), 1..5)) {
        let request = GeometryRequest { pool_bytes: 1 << 20, ..Default::default() };
        let mut bytes = sample(&request).unwrap().as_bytes().to_vec();
        for (word, value) in changes {
            bytes[word * 8..word * 8 + 8].copy_from_slice(&value.to_le_bytes());
        }
        let mut changed = Superblock::read_from_bytes(&bytes).unwrap();
        changed.seal();
        let decoded = Superblock::unseal(changed.as_bytes());
        prop_assert_eq!(&decoded, if changed.magic == MAGIC {
            &Ok(changed)
        } else {
            &Err(SuperblockError::NotVellum)
        });
        if let Ok(decoded) = decoded && decoded.check_readable().is_ok() {
            let geometry = decoded.geometry();
            prop_assert!(geometry.is_sound());
            let end = geometry.meta_at + geometry.region_slots() * SLOT_BYTES;
            prop_assert!(end <= geometry.table_at);
            prop_assert!(geometry.slots_end() <= geometry.data_at + geometry.data_bytes());
            prop_assert!(geometry.last_copy_at + BLOCK_BYTES <= geometry.pool_bytes);
            let _ = (decoded.label_text(), decoded.uuid_text(), geometry.table_lines());
        }
    }

    #[test]
    fn any_request_for_a_pool(
        pool_bytes in prop_oneof![0u64..1 << 24, 0u64..1 << 43],
        metadata_bytes in prop::option::of(prop_oneof![0u64..1 << 24, 0u64..1 << 43]),
        thread_slots in prop::option::of(0u32..2000),
        namespace in prop::sample::select(&NamespaceKind::ALL),
        mapping in prop::sample::select(&MappingKind::ALL),
        run_blocks in prop::option::of(0u32..10),
        span_lines in prop::option::of(prop_oneof![0u16..20, Just(256), Just(512)]),
        fragmentation in 0u16..1100,
        is_logged: bool,
        has_fixed_metadata: bool,
        external in prop::option::of(prop_oneof![0u64..1 << 24, 0u64..1 << 43]),
    ) {
        let request =
            GeometryRequest {
                pool_bytes,
                metadata_bytes,
                has_fixed_metadata,
                thread_slots,
                namespace, mapping,
                run_blocks,
                span_lines,
                fragmentation,
                is_logged,
                external: external.map(|data_bytes| ExternalRequest {
                    id: [9; 16],
                    at: data_bytes / 3 / BLOCK_BYTES * BLOCK_BYTES,
                    data_bytes,
                    has_replica: fragmentation % 2 == 1,
                }),
            };
        if let Ok(geometry) = Geometry::plan(&request) {
            prop_assert!(geometry.is_sound(), "{geometry:?}");
            let sealed = sample(&request).unwrap();
            prop_assert_eq!(sealed.check_readable(), Ok(()));
        }
    }

    #[test]
    fn any_word(word: u64, index: u64) {
        if let Some((kind, segment)) = ChunkWord(word).decode(index) {
            let again = match ChunkWord(word).table_part(index) {
                Some((segment, part)) => ChunkWord::of_table(index, segment, part),
                None => ChunkWord::new(index, kind, segment),
            };
            prop_assert_eq!(again, ChunkWord(word));
        }
        if let Some((phase, epoch)) = StateWord(word).get() {
            prop_assert_eq!(StateWord::new(phase, epoch), StateWord(word));
        }
        let identity = IdentityWord(word);
        if let (Some(state), Some(kind)) = (identity.state(), identity.kind()) {
            let again = IdentityWord::new(state, kind, identity.mode(), identity.generation());
            prop_assert_eq!(again.0, word & !(0xF << 28 | 0xF << 4));
        }
        let target = TargetWord(word);
        if let Some(kind) = target.kind() {
            prop_assert_eq!(TargetWord::new(target.ino(), kind).0, word & !(0xFF << 56));
        }
        let life = LifeWord(word);
        let again =
            if life.is_alive() { LifeWord::alive(life.ns()) } else { LifeWord::dead(life.ns()) };
        prop_assert!(again == life || life.ns() == LifeWord::LAST_NS);
        let owner = OwnerWord(word);
        prop_assert_eq!(OwnerWord::new(owner.uid(), owner.gid()), owner);
        let links = LinksWord(word);
        prop_assert_eq!(LinksWord::new(links.links(), links.flags()), links);
        if let Some((slot, level)) = TableRoot(word).get() {
            prop_assert_eq!(TableRoot::new(slot, level), TableRoot(word));
            prop_assert!(TableRoot::home(PathHash(index), level) < TableRoot::lines(level));
        }
        let place = DirLocation(word);
        prop_assert_eq!(DirLocation::new(place.entry(), place.area()) == place, place.is_sound());
        let used = TableWord(word);
        prop_assert_eq!(TableWord::new(used.slot(), used.tag()) == used, used.is_used());
        let states = StateMapWord(word);
        let with = |all: StateMapWord, slot| all.with(slot, states.get(slot));
        let again = states.entries().fold(StateMapWord::default(), with);
        prop_assert_eq!(again, states);
        let area = AreaWord(word);
        if let Some(phase) = area.phase(index as u32) {
            prop_assert_eq!(AreaWord::new(index as u32, phase), area);
        }
        let log = LogWord(word);
        prop_assert_eq!(LogWord::new(log.entry()) == log, log.is_sound());
        let map = MapWord(word);
        if map.state() != MapState::Free {
            prop_assert_eq!(MapWord::new(map.state(), map.id(), map.logical()), map);
        }
        if let Some((segment, id)) = MapRoot(word).get() {
            prop_assert_eq!(MapRoot::new(segment, id).get(), Some((segment, id)));
        }
        let head = JournalHead(word);
        let again = JournalHead::new(head.sequence(), head.count());
        prop_assert_eq!(again.0, word & !0xFFFF_0000);
        let overwrite = Overwrite::from_words([word, index]);
        prop_assert_eq!(overwrite.words(), [word & 0x1_FFFF_FFFF, index]);
        let pair = JournalPair { at: word, value: index };
        prop_assert_eq!(pair.witnessed(), (word & 1 == 1).then_some(word - (word & 1)));
    }

    #[test]
    fn packed_words(
        ino in 0u64..1 << 48, mode: u16, generation: u32, kind in kind(), id: u32, logical: u32,
        word_flags: u64,
    ) {
        let identity = IdentityWord::new(InodeState::Live, kind, mode, generation);
        prop_assert_eq!(identity.kind(), Some(kind));
        prop_assert_eq!((identity.mode(), identity.generation()), (mode & 0o7777, generation));
        prop_assert_eq!(identity.with_mode(0).with_mode(mode), identity);
        let flagged = identity.with_xattr_flags(word_flags);
        prop_assert_eq!(flagged.with_mode(0).with_mode(mode), flagged);
        prop_assert_eq!(flagged.with_xattr_flags(0), identity);
        let flagged = flagged.with_flags(word_flags);
        prop_assert_eq!(flagged.with_mode(0).with_mode(mode), flagged);
        prop_assert_eq!(flagged.with_xattr_flags(0).with_flags(0), identity);
        let target = TargetWord::new(ino, kind);
        prop_assert_eq!((target.ino(), target.kind()), (ino, Some(kind)));
        let word = MapWord::new(MapState::Unwritten, id, logical);
        prop_assert_eq!((word.id(), word.logical()), (id & 0x3FFF_FFFF, logical));
        prop_assert_eq!(word.0 & MapWord::KEY_MASK, MapWord::key(id, logical));
        prop_assert_eq!(MapRoot::new(3, id).get(), Some((3, id & 0x3FFF_FFFF)));
    }

    #[test]
    fn entries(
        head: [u64; 6],
        name in prop::collection::vec(any::<u8>(), 1..=NAME_MAX),
        life: u64,
        parent: u32,
        flip in 64usize..,
    ) {
        let mut head: EntryHead = zerocopy::transmute!(head);
        head.name_len = name.len() as u16;
        let mut buffer = [0xAA; 384];
        let total = Entry::encode(&head, &name, parent, &mut buffer);
        prop_assert_eq!(total, (48 + name.len()).next_multiple_of(64));
        prop_assert!(Entry::is_sound(&buffer[..total], parent));
        prop_assert_eq!(&buffer[48..48 + name.len()], &name[..]);
        buffer[..8].copy_from_slice(&life.to_le_bytes());
        prop_assert!(Entry::is_sound(&buffer, parent));
        let bit = flip % ((48 + name.len()) * 8 - 64) + 64;
        buffer[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(!Entry::is_sound(&buffer, parent), "bit {bit}");
    }

    #[test]
    fn entries_with_paths(
        head: [u64; 6],
        dir in bytes(DIR_PATH_MAX),
        name in prop::collection::vec(any::<u8>(), 1..=NAME_MAX),
        life: u64,
        flip: usize,
    ) {
        let mut head: PathEntryHead = zerocopy::transmute!(head);
        let mut name = name;
        name.iter_mut().filter(|byte| **byte == b'/').for_each(|byte| *byte = 0);
        let path = [&dir[..], &name].join(&b'/');
        let seal = PathSeal { area: 3, slot: 77, directory: 6 };
        let mut buffer = [0xAA; PATH_ENTRY_MAX_BYTES];
        let total = head.encode(&path, seal, &mut buffer);
        head = head.sealed(&path, seal);
        prop_assert_eq!(total, (48 + path.len()).next_multiple_of(64));
        prop_assert_eq!(PathEntryHead::decode(&buffer[..total], seal), Some((head, &path[..])));
        prop_assert_eq!((head.directory(&path), head.name(&path)), (&dir[..], &name[..]));
        buffer[..8].copy_from_slice(&life.to_le_bytes());
        prop_assert!(PathEntryHead::decode(&buffer, seal).is_some());
        let bit = flip % ((48 + path.len() - 8) * 8) + 64;
        buffer[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(PathEntryHead::decode(&buffer, seal).is_none(), "bit {bit}");
    }

    #[test]
    fn log_extents(
        at: u64,
        owner: u64,
        generation: u32,
        base: u64,
        large: bool,
        compacted: bool,
        next: u64,
        bit in 0usize..256,
    ) {
        let kind = if large { LogExtentKind::Large } else { LogExtentKind::Small };
        let mut head = LogExtentHead::new(at, owner, generation, base, kind, compacted);
        head.next = next;
        prop_assert!(head.is_sound(at, owner, generation));
        prop_assert!(!head.is_sound(at, owner, generation ^ 1));
        prop_assert_eq!((head.kind(), head.is_compacted()), (kind, compacted));
        prop_assert!(!head.is_sound(at.wrapping_add(1), owner, generation));
        prop_assert!(!head.is_sound(at, owner ^ 1, generation));
        let mut bytes: [u8; 32] = zerocopy::transmute!(head);
        bytes[bit / 8] ^= 1 << (bit % 8);
        let flipped: LogExtentHead = zerocopy::transmute!(bytes);
        prop_assert_eq!(flipped.is_sound(at, owner, generation), (64..128).contains(&bit));
    }

    #[test]
    fn journals(
        slot in 0u64..1024,
        sequence: u32,
        pairs in prop::collection::vec((any::<u64>(), any::<u64>()), 0..=JOURNAL_MAX_PAIRS),
        which: prop::sample::Index,
        flip in 1u64..,
    ) {
        let mut pairs: Vec<_> =
            pairs.into_iter().map(|(at, value)| JournalPair { at, value }).collect();
        let head = JournalHead::new(sequence, pairs.len());
        prop_assert_eq!((head.count(), head.sequence()), (pairs.len(), sequence));
        let seal = head.seal(slot, &pairs);
        prop_assert_ne!(seal, 0);
        prop_assert_ne!(seal, head.seal(slot + 1, &pairs));
        prop_assert_ne!(seal, JournalHead::new(sequence ^ 1, pairs.len()).seal(slot, &pairs));
        if !pairs.is_empty() {
            // A burst of at most 32 bits is always found.
            let index = which.index(pairs.len());
            pairs[index].value ^= flip & 0xFFFF_FFFF | 1;
            prop_assert_ne!(seal, head.seal(slot, &pairs));
        }
    }

    #[test]
    fn texts(
        owner: u64,
        generation: u32,
        text in prop::collection::vec(any::<u8>(), 0..=300),
        cut in 1usize..300,
    ) {
        let check = text_check(owner, generation, &text);
        prop_assert_eq!(check >> 32, 0);
        prop_assert_ne!(check, text_check(owner ^ 1, generation, &text));
        prop_assert_ne!(check, text_check(owner, generation.wrapping_add(1), &text));
        if cut <= text.len() {
            prop_assert_ne!(check, text_check(owner, generation, &text[..text.len() - cut]));
        }
        let (kind, slots) = text_home(text.len());
        prop_assert_eq!(kind == ChunkKind::Blocks, text.len() > TEXT_SLOT_MAX);
        prop_assert!(text.len() as u64 <= slots * SLOT_BYTES);
    }

    #[test]
    fn saved_state(
        epoch: u32,
        used: u64,
        displaced: u64,
        check: u32,
        bit in 0usize..256,
        block: u32,
        last: bool,
    ) {
        let head = SavedStateHead::new(epoch, used, displaced, check);
        prop_assert!(head.is_sound(epoch));
        prop_assert!(!head.is_sound(epoch ^ 1));
        let mut bytes: [u8; 64] = zerocopy::transmute!(head);
        bytes[bit / 8] ^= 1 << (bit % 8);
        let flipped: SavedStateHead = zerocopy::transmute!(bytes);
        prop_assert!(!flipped.is_sound(epoch), "bit {bit}");
        let link = ChainLink::new(block, last);
        prop_assert_eq!((link.block(), link.is_last()), (block & 0x3FFF_FFFF, last));
    }

    #[test]
    fn chains_are_in_range(
        seed: u64,
        id: u32,
        run: u32,
        span in 1u32..=256,
        blocks in 1u64..1 << 30,
    ) {
        let lines = blocks.div_ceil(LINE_ENTRIES);
        let plan = SavedStatePlan { at: 0, blocks, lines };
        prop_assert!(chain(seed, id, run, span, blocks) < plan.chains());
    }

    #[test]
    fn home_lines_are_lines(
        seed: u64,
        id: u32,
        run: u32,
        span in 1u32..=256,
        lines in 1u64..1 << 27,
    ) {
        prop_assert!(home_line(seed, id, run, span, lines) < lines);
    }

    #[test]
    fn any_inode(words: [u64; 16], slot: u64) {
        let mut inode: Inode = zerocopy::transmute!(words);
        inode.checksum = inode.expected_checksum(slot);
        let identity = IdentityWord(inode.identity);
        let sound = matches!(identity.state(), Some(InodeState::Live | InodeState::Orphan))
            && identity.kind().is_some();
        prop_assert_eq!(inode.is_sound(slot), sound);
    }
}
