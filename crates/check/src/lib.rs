//! The read-only checker and inspector of Vellum pools.
//!
//! It shares the format (`vellum-layout`) with the engine but no code, so that it does not repeat
//! mistakes of the engine. [`check`] reads any source of bytes and reports what is wrong: as
//! *damage*, or as *residue* that a crash legitimately leaves in a pool that was not closed and
//! that recovery mends. [`inspect`] prints single structures.
//!
//! Whatever the bytes are, the checker neither panics nor loops, and uses at most a few times as
//! much memory as the image has bytes.
#![forbid(unsafe_code)]

mod areas;
mod blocks;
mod datasets;
mod derived;
mod extents;
mod header;
mod image;
mod inodes;
pub mod inspect;
mod journal;
mod keyed;
mod locate;
mod logged;
mod logs;
mod moves;
mod records;
mod report;
mod saved_state;
mod slots;
pub mod survey;
mod tree;
mod trees;
mod undo;
mod xattrs;

use std::fmt;

use vellum_layout::{ChunkKind, FileKind, LOG_LINE_BYTES, PoolPhase, Superblock};

use crate::image::View;
use crate::report::{Location, Sink};

pub use image::{Image, MemoryImage};
pub use locate::Locator;
pub use report::{Class, Finding, Phase, Report, Severity, Summary, counted};

/// The parts of a check, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Reading inodes; counted in chunks.
    Inodes,
    /// Reading directory logs, then entries; counted in entries.
    Directories,
    /// Reading the mapping table; counted in blocks.
    Blocks,
}

/// Called during a check with the stage, how much is done, and of how much (0: unknown).
pub type Progress<'a> = &'a dyn Fn(Stage, u64, u64);

/// How to check.
#[derive(Clone, Copy, Default)]
pub struct Options<'a> {
    /// Whether residue is damage even if the pool was not closed, as is required right after a
    /// recovery.
    pub strict_clean: bool,
    /// Called now and then.
    pub progress: Option<Progress<'a>>,
}

impl fmt::Debug for Options<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("strict_clean", &self.strict_clean)
            .finish_non_exhaustive()
    }
}

/// Checks `image`. Nothing is written.
pub fn check(image: &(impl Image + ?Sized), options: Options) -> Report {
    run(&image, Left::default(), options)
}

/// A line of metadata: its offset and bytes.
pub type Line = (u64, [u8; LOG_LINE_BYTES as usize]);

/// Data beside the pool's bytes: what a killed process left, and the file with further datasets.
#[derive(Clone, Copy, Default)]
pub struct Left<'a> {
    /// The file or device of the pool, with its other datasets; `None` to skip these.
    pub file: Option<&'a dyn Image>,
    /// Dirty lines of a logged pool's image, which override home and log.
    pub lines: &'a [Line],
    /// The boot id of this machine; zeros: unknown. The metadata of a split pool are checked as of
    /// the last commit, but under the boot of their last change as they are.
    pub boot: [u8; 16],
}

impl fmt::Debug for Left<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Left")
            .field("lines", &self.lines.len())
            .finish_non_exhaustive()
    }
}

/// As [`check`], for a pool whose last process may have been killed.
pub fn check_killed(image: &(impl Image + ?Sized), left: Left<'_>, options: Options) -> Report {
    run(&image, left, options)
}

fn run(image: &dyn Image, left: Left<'_>, options: Options) -> Report {
    let mut view = View::new(image);
    let mut sink = Sink::default();
    let mut summary = Summary::default();
    let mut phase = Phase::Unknown;
    if let Some((superblock, unfinished)) = header::superblock(&view, &mut sink) {
        phase = walk(
            &mut view,
            (&superblock, left),
            options,
            &mut summary,
            &mut sink,
        );
        unfinished.judge(&superblock, options.strict_clean, &mut sink);
        if let Some(file) = left.file {
            datasets::judge(file, &superblock, &mut sink);
        }
    }
    for range in view.take_unreadable() {
        sink.incomplete = true;
        sink.damage(Class::Unreadable, Location::Offset(range.at), range.reason);
    }
    sink.finish(summary, phase)
}

fn walk(
    view: &mut View,
    (superblock, left): (&Superblock, Left<'_>),
    options: Options,
    summary: &mut Summary,
    sink: &mut Sink,
) -> Phase {
    let geometry = superblock.geometry();
    summary.pool_bytes = geometry.pool_bytes;
    if geometry.is_logged() {
        logged::lay_over(view, superblock, left.lines, sink);
    }
    undo::lay_over(view, superblock, left.boot, sink);
    let state = header::state(view, &geometry, sink);
    if header::is_converting(view, &geometry) {
        // A part of the bytes is the old pool, a part the new one.
        return Phase::Unknown;
    }
    let phase = state.map_or(Phase::Unknown, |(phase, _)| phase.into());
    let clean = matches!(state, Some((PoolPhase::Clean, _)));
    sink.lenient = !clean && !options.strict_clean;
    sink.closed = clean;
    let tell = |stage, done, of| {
        if let Some(progress) = options.progress {
            progress(stage, done, of);
        }
    };

    let records = journal::evaluate(view, &geometry, !clean, sink);
    summary.journal_records = if clean { 0 } else { records };
    moves::evaluate(view, &geometry, !clean, sink);
    let view = &*view;
    let chunks = header::Chunks::read(view, &geometry, sink);
    summary.slots = geometry.region_slots()
        + chunks.in_data(&geometry).count() as u64 * geometry.slots_per_chunk();
    summary.blocks = geometry.blocks();
    summary.chunks_inodes = chunks.count(ChunkKind::Inodes);
    summary.chunks_entries = chunks.count(ChunkKind::Entries);
    summary.chunks_blocks = chunks.count(ChunkKind::Blocks);
    summary.chunks_areas = chunks.count(ChunkKind::Areas);
    summary.chunks_free = chunks.count(ChunkKind::Free);

    let of = summary.chunks_inodes;
    let mut nodes = inodes::Nodes::read(view, &geometry, &chunks, |done| {
        tell(Stage::Inodes, done, of);
    });
    let mut logs = logs::Logs::read(
        view,
        &geometry,
        &chunks,
        &nodes,
        superblock.hash_seed,
        |entries| tell(Stage::Directories, 0, entries),
    );
    logs::link(&mut logs, &mut nodes);
    tree::judge(view, &mut nodes, &mut logs, sink);
    logs.areas.judge(&nodes, sink);
    let trees = trees::Trees::read(view, &geometry, &chunks, &nodes, superblock.hash_seed);
    trees.judge(sink);
    if let Some(table) = &trees.table {
        keyed::judge(view, &geometry, table, sink);
    }
    let slots = slots::Slots::claim(view, &geometry, &chunks, &nodes, &logs, &trees);
    slots.judge(&nodes, &logs, &trees, sink);
    let of = geometry.blocks();
    let blocks = (&trees, &chunks.blocks_in_data(&geometry)[..]);
    blocks::judge(view, &geometry, &nodes, blocks, summary, sink, |done| {
        tell(Stage::Blocks, done, of);
    });
    count(&nodes, &logs, summary);
    summary.slots_used = slots.used;
    if let Some((PoolPhase::Clean, epoch)) = state {
        let derived = (&slots, &trees, &chunks);
        judge_saved(view, superblock, epoch, derived, summary, sink);
    }
    phase
}

/// Checks what a clean close saved. The live map and the counters are compared only if everything
/// else is sound, because all other damage shows in them again.
fn judge_saved(
    view: &View,
    superblock: &Superblock,
    epoch: u32,
    (slots, trees, chunks): (&slots::Slots, &trees::Trees, &header::Chunks),
    summary: &Summary,
    sink: &mut Sink,
) {
    let geometry = &superblock.geometry();
    let sound = sink.is_sound_inside();
    // Only the state of segment 0 is saved: once segments are added, the saved state is obsolete.
    if sound && geometry.added.is_empty() {
        let blocks = (trees, &chunks.blocks_in_data(geometry)[..]);
        saved_state::judge(view, geometry, superblock.hash_seed, blocks, epoch, sink);
    }
    let saved = slots::Saved::read(view, geometry);
    if !saved.is_sound(epoch) {
        let detail = "the line saved at close does not fit its checksum";
        sink.damage(Class::SavedCounters, Location::State, detail);
        return;
    }
    let live = geometry.live_words(chunks.in_data(geometry));
    if saved.live_map_check != slots::live_map_checksum(view, geometry, &live) {
        let detail = "does not fit the checksum saved at close";
        sink.damage(Class::LiveMap, Location::LiveMap, detail);
    } else if sound {
        slots.judge_live_map(view, geometry, &live, sink);
    }
    let blocks = summary.blocks_mapped + summary.blocks_unwritten + summary.blocks_metadata;
    for (what, saved, found) in [
        ("inodes", saved.inodes, summary.inodes),
        ("data blocks", saved.blocks, blocks),
    ] {
        if sound && saved != found {
            let detail = format_args!("{saved} {what} in use were saved, {found} are");
            sink.damage(Class::SavedCounters, Location::State, detail);
        }
    }
}

fn count(nodes: &inodes::Nodes, logs: &logs::Logs, summary: &mut Summary) {
    for node in &nodes.list {
        let named = node.names > 0 || node.slot == vellum_layout::ROOT_SLOT;
        summary.unnamed += u64::from(!named);
        if !node.kept {
            continue;
        }
        summary.inodes += 1;
        *match node.kind {
            FileKind::Directory => &mut summary.directories,
            FileKind::File => &mut summary.files,
            FileKind::Symlink => &mut summary.symlinks,
            _ => &mut summary.specials,
        } += 1;
    }
    for name in &logs.names {
        if nodes.list[name.directory as usize].kept {
            *if name.alive {
                &mut summary.entries
            } else {
                &mut summary.entries_dead
            } += 1;
        }
    }
    summary.log_extents = logs
        .extents
        .iter()
        .filter(|extent| nodes.list[extent.directory as usize].kept)
        .count() as u64;
}
