use super::*;
use crate::GeometryRequest;

fn sample() -> Superblock {
    let request = GeometryRequest {
        pool_bytes: 1 << 20,
        ..Default::default()
    };
    let geometry = Geometry::plan(&request).unwrap();
    Superblock::new(&geometry, [7; 16], 1, 2, "x", NamespaceKind::Direct)
}

#[test]
fn what_was_sealed_is_read() {
    let sample = sample();
    assert_eq!(Superblock::unseal(sample.as_bytes()).unwrap(), sample);
    assert_eq!(sample.check_readable(), Ok(()));
    assert_eq!(sample.check_writable(), Ok(()));
    assert_eq!(sample.label_text(), "x");
}

#[test]
fn a_logged_pool_records_its_log() {
    let request = GeometryRequest {
        pool_bytes: 4 << 20,
        is_logged: true,
        ..Default::default()
    };
    let geometry = Geometry::plan(&request).unwrap();
    let made = Superblock::new(&geometry, [7; 16], 1, 2, "x", NamespaceKind::Direct);
    assert_eq!(made.check_readable(), Ok(()));
    assert_eq!(made.geometry(), geometry);
    assert!(geometry.is_logged());
}

#[test]
fn a_pool_grows_by_a_segment_behind_its_data() {
    let small = sample();
    let first = small.geometry();
    let once = small.grown((2 << 20) + 4095).unwrap();
    assert_eq!(once.check_readable(), Ok(()));
    assert_eq!(
        (once.pool_bytes, once.last_copy_at),
        (2 << 20, (2 << 20) - 4096)
    );
    assert_eq!(
        (once.sequence, once.incompatible),
        (1, small.incompatible | features::GROWN)
    );
    let own = *once.geometry().added.own().unwrap();
    assert_eq!(own.at, first.data_at + first.segment_blocks * BLOCK_BYTES);
    assert_eq!(
        own.blocks,
        (once.last_copy_at - own.at) / BLOCK_BYTES / 8 * 8
    );
    let twice = once.grown(3 << 20).unwrap();
    assert_eq!(twice.check_readable(), Ok(()));
    assert_eq!(twice.geometry().added.iter().count(), 1);
    assert_eq!(twice.geometry().added.own().unwrap().at, own.at);
    for no in [0, 4096, 1 << 20, 2 << 20, (2 << 20) + 4095, u64::MAX] {
        assert!(once.grown(no).is_none(), "{no}");
    }
    for change in [
        (|sb| sb.incompatible &= !features::GROWN) as fn(&mut Superblock),
        |sb| sb.segments[1].medium = 1,
        |sb| sb.segments[1].data_at += BLOCK_BYTES,
        |sb| sb.segments[1].blocks = u64::MAX - 7,
        |sb| sb.segments[1].blocks += 8,
        |sb| sb.segments[2] = sb.segments[1],
        |sb| sb.segments[0].mapping = MappingKind::Cuckoo as u32,
        |sb| sb.pool_bytes -= BLOCK_BYTES,
    ] {
        let mut bad = once.clone();
        change(&mut bad);
        assert!(bad.check_readable().is_err(), "{:?}", bad.segments[1]);
    }
}

#[test]
fn a_growth_that_was_cut_is_known() {
    let small = sample();
    let large = small.grown(2 << 20).unwrap();
    let larger = large.grown(3 << 20).unwrap();
    for (old, new) in [(&small, &large), (&large, &larger)] {
        let (was, is) = (old.as_bytes(), new.as_bytes());
        for words in 0..BLOCK_BYTES as usize / 8 {
            let growing = [&is[..words * 8], &was[words * 8..]].concat();
            let going = [&was[..words * 8], &is[words * 8..]].concat();
            assert!(old.is_left_by_cut([was, &growing, was]), "{words}");
            assert!(old.is_left_by_cut([was, &going, was]), "{words}");
            assert!(new.is_left_by_cut([&growing, is, is]), "{words}");
            assert!(new.is_left_by_cut([&going, is, is]), "{words}");
        }
        assert!(new.is_left_by_cut([was, is, is]));
    }
    assert!(!larger.is_left_by_cut([small.as_bytes(), larger.as_bytes(), &[7; 4096]]));
}

#[test]
fn a_pool_with_external_data_records_its_device() {
    let request = GeometryRequest {
        is_logged: true,
        external: Some(crate::ExternalRequest {
            id: [9; 16],
            at: 2 << 20,
            data_bytes: 8 << 20,
            has_replica: false,
        }),
        ..Default::default()
    };
    let geometry = Geometry::plan(&request).unwrap();
    assert_eq!(geometry.data_at, geometry.pool_bytes);
    assert_eq!(geometry.segment_blocks, 2048);
    let made = Superblock::new(&geometry, [7; 16], 1, 2, "x", NamespaceKind::Direct);
    assert_eq!(made.check_readable(), Ok(()));
    assert_eq!(made.geometry(), geometry);
    for change in [
        (|sb| sb.media_at = 0) as fn(&mut Superblock),
        |sb| sb.incompatible = features::LOGGED,
        |sb| sb.segments[0].medium = 0,
        |sb| sb.segments[0].medium = 2,
        |sb| sb.media_at += 4096,
        |sb| sb.segments[0].data_at = 100,
        |sb| sb.segments[0].data_at = u64::MAX - 4095,
    ] {
        let mut changed = made.clone();
        change(&mut changed);
        let refused = changed.check_readable();
        assert!(matches!(refused, Err(SuperblockError::Field(_))));
    }
}

#[test]
fn a_split_pool_records_its_undo_log() {
    let request = GeometryRequest {
        external: Some(crate::ExternalRequest {
            id: [9; 16],
            at: 2 << 20,
            data_bytes: 8 << 20,
            has_replica: true,
        }),
        ..Default::default()
    };
    let geometry = Geometry::plan(&request).unwrap();
    let made = Superblock::new(&geometry, [7; 16], 1, 2, "x", NamespaceKind::Direct);
    assert_eq!(made.check_readable(), Ok(()));
    assert_eq!(made.geometry(), geometry);
    assert!(geometry.has_undo() && !geometry.is_logged());
    for change in [
        (|sb| sb.incompatible ^= features::UNDO) as fn(&mut Superblock),
        |sb| sb.read_only_compatible = 0,
        |sb| sb.changed_at = 0,
        |sb| sb.changed_at += 100,
        |sb| sb.changed_at += 1 << 20,
        |sb| sb.changed_at = u64::MAX - 4095,
        |sb| sb.incompatible |= features::LOGGED,
        |sb| sb.undo_bytes -= 8192,
        |sb| sb.undo_bytes = u64::MAX,
        |sb| sb.undo_at = u64::MAX - 4095,
        |sb| sb.undo_at += 100,
    ] {
        let mut changed = made.clone();
        change(&mut changed);
        let refused = changed.check_readable();
        assert!(matches!(refused, Err(SuperblockError::Field(_))));
    }
}

#[test]
fn a_pool_with_areas_records_their_table() {
    let request = GeometryRequest {
        pool_bytes: 4 << 20,
        namespace: NamespaceKind::Adaptive,
        ..Default::default()
    };
    let geometry = Geometry::plan(&request).unwrap();
    let namespace = NamespaceKind::Adaptive;
    let made = Superblock::new(&geometry, [7; 16], 1, 2, "x", namespace);
    assert_eq!(made.check_readable(), Ok(()));
    assert_eq!(made.geometry(), geometry);
    for change in [
        (|fs| fs.area_table = 0) as fn(&mut FsRecord),
        |fs| fs.area_table = u64::MAX - 31,
        |fs| fs.area_bytes = u32::MAX,
        |fs| fs.size_max = u32::MAX,
        |fs| fs.namespace = NamespaceKind::Tree as u32,
    ] {
        let mut changed = made.clone();
        change(&mut changed.datasets[0]);
        let refused = Err(SuperblockError::Field("geometry"));
        assert_eq!(changed.check_readable(), refused);
    }
}

#[test]
fn every_flipped_byte_is_refused() {
    let mut bytes = sample().as_bytes().to_vec();
    for at in 0..bytes.len() {
        bytes[at] ^= 0x10;
        assert!(Superblock::unseal(&bytes).is_err(), "byte {at}");
        bytes[at] ^= 0x10;
    }
}

#[test]
fn unknown_features_are_refused_by_name() {
    let with = |change: fn(&mut Superblock)| {
        let mut changed = sample();
        change(&mut changed);
        (changed.check_readable(), changed.check_writable())
    };
    let refused = Err(SuperblockError::Features(1 << 63));
    assert_eq!(with(|sb| sb.incompatible = 1 << 63), (refused, Ok(())));
    let only_read = Err(SuperblockError::ReadOnlyFeatures(1 << 62));
    assert_eq!(
        with(|sb| sb.read_only_compatible = 1 << 62),
        (Ok(()), only_read)
    );
    assert_eq!(with(|sb| sb.compatible = 1 << 61), (Ok(()), Ok(())));
    let newer = Err(SuperblockError::Version(2));
    assert_eq!(with(|sb| sb.version = 2), (newer, Ok(())));
    for change in [
        (|sb| sb.segments[0].medium = 1) as fn(&mut Superblock),
        |sb| sb.segments[0].fs = 1,
        |sb| sb.segments[0].mapping = 99,
        |sb| sb.datasets[0].namespace = 4,
        |sb| sb.datasets[0].namespace = 2,
        |sb| sb.datasets[0].area_table = 32,
        |sb| sb.datasets[0].area_bytes = 4096,
        |sb| sb.datasets[0].size_max = 8,
        |sb| sb.last_copy_at = 0,
        |sb| sb.incompatible = features::LOGGED,
        |sb| sb.incompatible |= features::EXTERNAL_DATA,
        |sb| sb.incompatible |= features::UNDO,
        |sb| sb.undo_bytes = 1 << 16,
        |sb| sb.media_at = 4096,
        |sb| sb.log_bytes = 1 << 16,
        |sb| sb.incompatible ^= features::SPANS,
        |sb| sb.segments[0].span_lines = 0,
        |sb| sb.segments[0].span_lines = 1,
        |sb| sb.segments[0].span_lines = 3,
        |sb| sb.segments[0].span_lines = SPAN_LINES_MAX * 2,
        |sb| sb.segments[0].run_blocks = 1,
        |sb| sb.incompatible ^= features::DATA_CHUNKS,
        |sb| sb.regions[1].chunks += 1,
        |sb| sb.regions[1].chunks = u64::MAX,
        |sb| sb.regions[1].at += 4096,
        |sb| sb.regions[1].at = u64::MAX - 4095,
        |sb| sb.regions[1].chunk_table_at += 8,
        |sb| sb.regions[1].live_map_at = 0,
    ] {
        assert!(matches!(with(change).0, Err(SuperblockError::Field(_))));
    }
}

#[test]
fn a_pool_without_spans_needs_no_feature() {
    let request = GeometryRequest {
        pool_bytes: 64 << 20,
        span_lines: Some(1),
        ..Default::default()
    };
    let geometry = Geometry::plan(&request).unwrap();
    let made = Superblock::new(&geometry, [7; 16], 1, 2, "x", NamespaceKind::Direct);
    assert_eq!(made.incompatible, features::DATA_CHUNKS);
    assert_eq!(made.segments[0].span_lines, 0);
    assert_eq!(made.check_readable(), Ok(()));
    assert_eq!(made.geometry(), geometry);
}

#[test]
fn the_latest_copy_of_the_pool_is_current() {
    let copy = |sequence, uuid, version| {
        let mut copy = sample();
        (copy.sequence, copy.uuid, copy.version) = (sequence, [uuid; 16], version);
        Ok(copy)
    };
    let chosen = |copies: [Result<Superblock, SuperblockError>; 3]| {
        Superblock::choose(copies).map(|sb| (sb.sequence, sb.uuid[0], sb.version))
    };
    let damaged = || Err(SuperblockError::Damaged);
    let alien = || Err(SuperblockError::NotVellum);
    let all = chosen([copy(0, 7, 1), copy(0, 7, 1), copy(0, 7, 1)]);
    assert_eq!(all, Ok((0, 7, 1)));
    // An interrupted rewrite to a later format version, and a copy of another pool.
    let newer = chosen([copy(0, 7, 1), copy(1, 7, 2), copy(9, 8, 1)]);
    assert_eq!(newer, Ok((1, 7, 2)));
    assert_eq!(chosen([damaged(), alien(), copy(3, 7, 1)]), Ok((3, 7, 1)));
    assert_eq!(
        chosen([alien(), damaged(), alien()]),
        Err(SuperblockError::Damaged)
    );
    assert_eq!(
        chosen([alien(), alien(), alien()]),
        Err(SuperblockError::NotVellum)
    );
}

#[test]
fn uuids_have_their_hyphens() {
    let bytes = std::array::from_fn(|index| index as u8);
    assert_eq!(uuid_text(&bytes), "00010203-0405-0607-0809-0a0b0c0d0e0f");
}
