//! Every structure of the media: decoded from any bytes, and injected into a pool that is then
//! checked, opened, used, closed and checked again.

use vellum_fuzz::{
    Input, Sample, StructureKind, Watchdog, change, decode, inject_raw, judge, samples,
};

/// The number of cases of a target in a run of the tests; see `docs/TESTING.md` for long runs.
const CASES: usize = 300;

/// Judges a sample with the changes that `bytes` describe to structures of these classes.
fn changed(bytes: &[u8], parts: &[StructureKind]) {
    let _watchdog = Watchdog::watch(bytes);
    parts.iter().for_each(|&part| decode(part, bytes));
    let mut input = Input::new(bytes);
    let how = input.u8();
    let has_all = |sample: &&Sample| {
        parts
            .iter()
            .all(|&part| !sample.structures(part).is_empty())
    };
    let samples: Vec<&Sample> = samples().iter().filter(has_all).collect();
    let mut sample = (*samples[usize::from(how) % samples.len()]).clone();
    let (read_only, raw) = (how & 0x30 == 0x30, how & 0xC0 == 0xC0);
    if raw {
        inject_raw(&mut sample, *input.pick(parts), &mut input);
    }
    for _ in 0..12 {
        if input.is_empty() {
            break;
        }
        change(&mut sample, *input.pick(parts), &mut input);
    }
    judge(sample.image, read_only);
}

macro_rules! targets {
    ($($(#[doc = $doc:literal])* $name:ident: $($part:ident),+;)*) => {$(
        $(#[doc = $doc])*
        #[test]
        fn $name() {
            vellum_fuzz::target!(CASES, |bytes| changed(bytes, &[$(StructureKind::$part),+]));
        }
    )*};
}

targets! {
    superblock: Superblock;
    state: State, LiveMap, Chunk;
    inode: Inode;
    entry: Entry;
    directory_log: Extent, LogWord;
    symlink: Text;
    extended_attributes: Xattrs;
    /// The roots and flags of sets, and the sets.
    inodes_with_attributes: Xattrs, Inode;
    journal: Journal;
    mapping: Map;
    area_table: Area;
    state_map: States, AreaExtent;
    move_list: MoveList;
    /// The unfinished work of a move that was cut off, and its objects.
    moving: MoveList, Area, Entry, LogWord, Inode;
    /// All structures of names in areas.
    names_in_areas: Area, States, Entry, LogWord, Inode, Extent;
    /// Several structures at once, which single targets do not reach.
    everything: Inode, Entry, Extent, LogWord, Map, Journal, Text, Xattrs, Chunk;
}
