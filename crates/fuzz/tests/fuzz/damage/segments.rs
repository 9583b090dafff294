//! Pools with an added external data device whose metadata are damaged: the segment's record, the
//! chunks of its words, the words. Whatever they contain, the checker, the repair and an opening do
//! not panic. A pool that the checker calls sound can be used, and a mended one is sound.

use std::mem::offset_of;
use std::sync::{Arc, OnceLock};

use vellum::experiments::{set_table_aside, write_table};
use vellum::media::{HeapMemory, SimLogged, SimPool, SimulatedLogged};
use vellum::{
    Clock, Cred, ExternalData, FormatOptions, Fs, MappingKind, MountOptions, OpenOptions, Result,
    attach, format,
};
use vellum_check::{Class, Options, check};
use vellum_fuzz::{Input, Watchdog};
use vellum_layout::{
    AddedSegment, BLOCK_BYTES, ChunkWord, Geometry, Superblock, TablePlan, table_chunks,
    table_parts,
};
use zerocopy::{FromBytes, IntoBytes};

use crate::support::{plan_of, strictly, word, write};

/// The number of cases in a run of the tests; see `docs/TESTING.md` for long runs.
const CASES: usize = 300;

const SEGMENT: AddedSegment = AddedSegment {
    id: [10; 16],
    at: BLOCK_BYTES,
    blocks: 256,
};
/// The size of the first segment in bytes: smaller than all files together.
const FIRST_BYTES: u64 = 256 * BLOCK_BYTES;
const MAPPINGS: [MappingKind; 2] = [MappingKind::HashFs, MappingKind::Extent];
/// The size of each file in bytes.
const BYTES: usize = 400_000;

fn opened(disk: &Arc<SimPool>) -> Result<Arc<Fs<SimulatedLogged>>> {
    let pool = SimLogged::new(Arc::clone(disk), None);
    let options = MountOptions {
        clock: Clock::Counter(1_000_000.into()),
        ..MountOptions::default()
    };
    Ok(attach::<SimulatedLogged>(pool, |bytes| Ok(HeapMemory::new(bytes)), options)?.0)
}

/// Reads the existing files and writes one more; returns the pool, closed.
fn used(image: Vec<u8>, name: &[u8]) -> Result<Vec<u8>> {
    let disk = Arc::new(SimPool::from_image(image));
    let fs = opened(&disk)?;
    let (cred, top) = (Cred::root(), fs.root());
    for name in [&b"one"[..], b"two", b"three"] {
        let how = OpenOptions::new().read(true);
        if let Ok(file) = fs.open(&cred, &top, name, &how) {
            file.read_at(0, &mut [0; BYTES])?;
        }
    }
    let create = OpenOptions::new().write(true).create(true).mode(0o644);
    let file = fs.open(&cred, &top, name, &create)?;
    file.write_at(0, &[7; BYTES])?;
    drop(file);
    fs.close()?;
    Ok(disk.image())
}

/// A pool with this mapping whose files have blocks in both segments; closed cleanly.
fn make(mapping: MappingKind) -> Result<Vec<u8>> {
    let options = FormatOptions {
        thread_slots: Some(2),
        mapping,
        metadata_bytes: Some(1 << 18),
        external: Some(ExternalData {
            id: [9; 16],
            at: BLOCK_BYTES,
            data_bytes: FIRST_BYTES,
            replica_bytes: 0,
        }),
        hash_seed: 5,
        known_zero: true,
        ..FormatOptions::default()
    };
    let disk = Arc::new(SimPool::new((3 << 19) + FIRST_BYTES));
    format(&*disk, &options)?;
    let fs = opened(&disk)?;
    let superblock = fs.superblock().clone();
    let chunks = table_chunks(mapping, SEGMENT.blocks, superblock.geometry().chunk_bytes);
    assert!(set_table_aside(&fs, 1, chunks)?);
    fs.close()?;
    let larger = superblock.with_segment(SEGMENT);
    write_table(&*disk, &larger.expect("there is space for it"))?;
    let more = vec![0; (SEGMENT.blocks * BLOCK_BYTES) as usize];
    let mut image = [disk.image(), more].concat();
    for name in [&b"one"[..], b"two", b"three"] {
        image = used(image, name)?;
    }
    Ok(image)
}

fn sample(mapping: MappingKind) -> &'static (Vec<u8>, Geometry) {
    static SAMPLES: [OnceLock<(Vec<u8>, Geometry)>; 2] = [OnceLock::new(), OnceLock::new()];
    let at = MAPPINGS.iter().position(|&of| of == mapping);
    SAMPLES[at.expect("one of them")].get_or_init(|| {
        let image = make(mapping).expect("there is space");
        let superblock = Superblock::unseal(&image).expect("a superblock");
        (image, superblock.geometry())
    })
}

fn set(image: &mut [u8], at: u64, value: u64) {
    image[at as usize..][..8].copy_from_slice(&value.to_le_bytes());
}

/// Puts bytes into the records of segments, either in all copies of the superblock with a checksum
/// that fits, or only in the first copy.
fn change_segments(image: &mut [u8], input: &mut Input) {
    let (mut superblock, _) = Superblock::read_from_prefix(image).expect("it has one");
    let (at, seals) = (input.u8(), !input.u8().is_multiple_of(4));
    let at = offset_of!(Superblock, segments) + usize::from(at);
    let bytes = input.bytes(8);
    superblock.as_mut_bytes()[at..at + bytes.len()].copy_from_slice(bytes);
    if seals {
        superblock.seal();
    }
    let others = [BLOCK_BYTES, superblock.last_copy_at];
    let others = others.into_iter().filter(|_| seals);
    for at in others.chain([0]) {
        let rest = image.get_mut(at as usize..);
        if let Some(copy) = rest.and_then(|rest| rest.get_mut(..BLOCK_BYTES as usize)) {
            copy.copy_from_slice(superblock.as_bytes());
        }
    }
}

/// Applies the changes of the input to a sample.
fn changed(mapping: MappingKind, input: &mut Input) -> Vec<u8> {
    let (image, geometry) = sample(mapping);
    let mut image = image.clone();
    let table = TablePlan::of(geometry, |at| word(&image, at));
    for _ in 0..6 {
        if input.is_empty() {
            break;
        }
        let chunk = input.u64() % geometry.meta_chunks;
        let chunk_at = geometry.chunk_table_at + chunk * 8;
        let word_at = table.word_at(input.u64() % geometry.blocks());
        match (input.u8() % 5, word_at) {
            (0, _) => change_segments(&mut image, input),
            (1, _) => {
                let (segment, part) = (input.u8() % 9, input.u8() % 4);
                let says = ChunkWord::of_table(chunk, segment.into(), part.into());
                set(&mut image, chunk_at, says.0);
            }
            (2, Some(at)) => set(&mut image, at, input.u64()),
            (3, Some(at)) => {
                let other = table.word_at(input.u64() % geometry.blocks());
                let value = other.map_or(0, |other| word(&image, other));
                set(&mut image, at, value);
            }
            _ => set(&mut image, chunk_at, input.u64()),
        }
    }
    image
}

/// Whether a chunk claims, under a valid checksum, to hold other words than it does. The location
/// of its true words is then unknown.
fn is_misled(mapping: MappingKind, image: &[u8]) -> bool {
    let (sound, geometry) = sample(mapping);
    let parts = |image| table_parts(geometry, move |at| word(image, at));
    parts(image).any(|says| !parts(sound).any(|had| had == says))
}

fn judge(mapping: MappingKind, image: &[u8]) {
    let before = check(&image, Options::default());
    assert_eq!(before, check(&image, Options::default()));
    let outcome = used(image.to_vec(), b"four");
    if before.is_sound() {
        let after = outcome.unwrap_or_else(|error| panic!("{error}: {before}"));
        let after = check(&after, Options::default());
        assert!(after.is_sound(), "{after}");
        return;
    }
    let plan = plan_of(image);
    if plan.refused.is_some() {
        assert!(plan.is_empty());
        return;
    }
    let mut mended = image.to_vec();
    write(&plan, &mut mended);
    if is_misled(mapping, image) {
        // Only that damage may be left then.
        let mut left = plan.after.findings.iter();
        assert!(left.all(|found| found.class == Class::ChunkWord));
        return;
    }
    assert!(plan.mends_all(), "{}: {:?}", plan.after, plan.actions);
    let report = strictly(&mended);
    assert!(report.is_sound(), "{report}");
    let outcome = used(mended, b"four");
    assert!(outcome.is_ok(), "{outcome:?}: {:?}", plan.actions);
}

#[test]
fn samples_use_both_segments_and_are_sound() {
    for mapping in MAPPINGS {
        let (image, geometry) = sample(mapping);
        judge(mapping, image);
        let second = geometry.data_at + FIRST_BYTES;
        assert!(image[second as usize..].contains(&7), "{mapping:?}");
        let table = TablePlan::of(geometry, |at| word(image, at));
        let pieces = if mapping.has_home_lines() { 2 } else { 0 };
        assert_eq!(table.pieces().len(), pieces, "{mapping:?}");
    }
}

#[test]
fn segments() {
    vellum_fuzz::target!(CASES, |bytes| {
        let _watchdog = Watchdog::watch(bytes);
        let mut input = Input::new(bytes);
        let mapping = *input.pick(&MAPPINGS);
        judge(mapping, &changed(mapping, &mut input));
    });
}
