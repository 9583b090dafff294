//! Pools with every mapping, and files in them that have blocks but no bytes.

use std::path::Path;

use tempfile::TempDir;
use vellum::experiments::{MappingProbe, gather_metadata, settle};
use vellum::media::Real;
use vellum::reading::Rule;
use vellum::{CreateOptions, File, MappingKind, OpenOptions, Pool, PoolOptions};

use crate::library::make_pool;

use super::MappingOptions;
use crate::Result;
use crate::error::expect;
use crate::interrupt::Interrupt;
use crate::scratch::dir_in;

/// Bytes of a block.
pub(super) const BLOCK_BYTES: u64 = 4096;
/// Blocks that are claimed together when a file is filled.
const FILL_BLOCKS: u64 = 256;
/// A pool's metadata: this fraction of the pool, and at least this many bytes.
const METADATA_PART: u64 = 128;
const METADATA_MIN_BYTES: u64 = 8 << 20;
/// The least fraction of a pool's metadata on large pages: the last page may begin in the data.
const GATHERED_MIN: f64 = 0.8;
/// Space for the tables of mappings, as a fraction of what they map.
const TABLE_PART: u64 = 64;
/// The mapping that ratios compare with.
pub(super) const PEER: &str = "extent";
/// The mapping that targets are about.
pub(super) const HASHFS: &str = "hashfs";
/// Bytes per write.
const WRITE_BYTES: usize = 1 << 20;

/// The options and tools of a run.
pub(super) struct Setting<'a> {
    pub(super) options: &'a MappingOptions,
    pub(super) interrupt: &'a Interrupt,
}

impl<'a> Setting<'a> {
    pub(super) fn new(options: &'a MappingOptions, interrupt: &'a Interrupt) -> Self {
        Self { options, interrupt }
    }

    /// Fails once a signal came.
    pub(super) fn check(&self) -> Result<()> {
        self.interrupt.check()
    }

    /// The rounds, including the one that warms up.
    pub(super) fn rounds(&self) -> std::ops::RangeInclusive<usize> {
        0..=self.options.rounds
    }

    /// Blocks of the file.
    pub(super) fn file_blocks(&self) -> u64 {
        self.options.file_bytes / BLOCK_BYTES
    }

    /// For each mapping a pool with this many blocks, whose files get a layout score. No memory is
    /// taken for data.
    pub(super) fn subjects(&self, blocks: u64, layout_score: f64) -> Result<Vec<Subject>> {
        let bytes = blocks * BLOCK_BYTES;
        let metadata = (bytes / METADATA_PART).max(METADATA_MIN_BYTES);
        subjects(bytes, metadata, layout_score, Subject::in_memory)
    }

    /// The same with a size in bytes, a quarter of it metadata. Trees need that much: most inserts
    /// copy nodes, and the old nodes cannot be reused while an operation is running.
    pub(super) fn subjects_with_much_metadata(&self, bytes: u64) -> Result<Vec<Subject>> {
        let metadata = (bytes / 4).max(METADATA_MIN_BYTES);
        subjects(
            bytes,
            metadata,
            self.options.layout_score,
            Subject::in_memory,
        )
    }

    /// For each mapping a pool in the directory for pools, with all of its bytes.
    pub(super) fn whole_subjects(&self, bytes: u64, layout_score: f64) -> Result<Vec<Subject>> {
        let dir = &self.options.pool_dir;
        subjects(bytes, METADATA_MIN_BYTES, layout_score, |design, create| {
            Subject::whole(design, dir, create)
        })
    }
}

fn subjects(
    bytes: u64,
    metadata: u64,
    layout_score: f64,
    make: impl Fn(Design, &CreateOptions) -> Result<Subject>,
) -> Result<Vec<Subject>> {
    let fragmentation = ((1.0 - layout_score) * 1000.0).round() as u16;
    let size = (bytes + bytes / TABLE_PART + metadata).next_multiple_of(4 << 20);
    let subjects = Design::all().into_iter().map(|design| {
        let create = CreateOptions::new(size)
            .mapping(design.mapping)
            .run_blocks(design.run_blocks)
            .span_lines(design.span_lines)
            .fragmentation(fragmentation)
            .metadata_bytes(Some(metadata));
        make(design, &create)
    });
    subjects.collect()
}

/// A mapping with the options that create it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Design {
    name: String,
    mapping: MappingKind,
    run_blocks: Option<u32>,
    span_lines: Option<u16>,
}

impl Design {
    /// All mappings of this release, and the placement of HashFS's paper.
    pub(super) fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for mapping in MappingKind::ALL {
            all.push(Self {
                name: mapping.name().into(),
                mapping,
                run_blocks: None,
                span_lines: None,
            });
            if mapping == MappingKind::HashFs {
                for run_blocks in [8, 1] {
                    all.push(Self {
                        name: format!("{}-{run_blocks}", mapping.name()),
                        mapping,
                        run_blocks: Some(run_blocks),
                        span_lines: Some(1),
                    });
                }
            }
        }
        all
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether one structure maps all files.
    pub(super) fn is_global(&self) -> bool {
        use MappingKind::{Extent, ExtentCached, Radix};
        !matches!(self.mapping, Radix | Extent | ExtentCached)
    }

    /// Whether inserting a mapping claims the block.
    pub(super) fn allocates_itself(&self) -> bool {
        self.mapping == MappingKind::HashFs
    }
}

/// A pool with one of the mappings.
pub(super) struct Subject {
    pub(super) design: Design,
    pool: Pool,
    /// The fraction of its metadata on large pages.
    gathered: f64,
    // Field order: the directory is removed last.
    _dir: Option<TempDir>,
}

impl Subject {
    fn in_memory(design: Design, create: &CreateOptions) -> Result<Self> {
        let pool = create.create_in_memory()?;
        let gathered = gather_metadata(&pool.fs());
        Ok(Self {
            pool,
            design,
            gathered,
            _dir: None,
        })
    }

    fn whole(design: Design, pool_dir: &Path, create: &CreateOptions) -> Result<Self> {
        let dir = dir_in(pool_dir)?;
        let path = dir.path().join("pool");
        make_pool(&path, create)?.close()?;
        // The pool is on large pages, if the kernel has them, and every page is present before
        // anything is timed.
        let opening = PoolOptions::new().populate(true);
        Ok(Self {
            pool: opening.open(&path)?,
            design,
            gathered: 1.0,
            _dir: Some(dir),
        })
    }

    /// A warning about a pool for which the kernel had no large pages: its times are not
    /// comparable.
    pub(super) fn shortcoming(&self) -> Option<String> {
        (self.gathered < GATHERED_MIN).then(|| {
            format!(
                "{}: only {:.0} % of the metadata is on large pages, because the kernel had no \
                 more; this slows down all its operations.",
                self.design.name,
                self.gathered * 100.0
            )
        })
    }

    /// Data blocks of the pool.
    pub(super) fn blocks(&self) -> u64 {
        self.pool.fs().stat_fs().blocks
    }

    /// Sets the rule by which reads find blocks.
    pub(super) fn read_by(&self, rule: Rule) {
        self.pool.fs().set_read_rule(rule);
    }

    /// A new file with this many written bytes.
    pub(super) fn written(&self, name: &str, bytes: u64) -> Result<File> {
        let file = self.sparse(name, 0)?;
        let piece = vec![1; WRITE_BYTES];
        for at in (0..bytes).step_by(WRITE_BYTES) {
            let len = (bytes - at).min(WRITE_BYTES as u64) as usize;
            expect("bytes written", file.write_at(&piece[..len], at)?, len)?;
        }
        Ok(file)
    }

    /// A new file with a size of this many blocks, all of them holes.
    pub(super) fn sparse(&self, name: &str, blocks: u64) -> Result<File> {
        let options = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .no_atime(true)
            .mode(0o600);
        let file = self.pool.volume().open_with(name, &options)?;
        file.set_len(blocks * BLOCK_BYTES)?;
        Ok(file)
    }

    /// A new file with this many blocks, claimed in ascending order.
    pub(super) fn filled(&self, name: &str, blocks: u64) -> Result<File> {
        let file = self.sparse(name, blocks)?;
        let mut probe = probe(&file)?;
        for first in (0..blocks).step_by(FILL_BLOCKS as usize) {
            probe.insert(first, FILL_BLOCKS.min(blocks - first) as usize)?;
        }
        drop(probe);
        Ok(file)
    }

    /// Makes freed blocks available.
    pub(super) fn settle(&self) {
        settle(&self.pool.fs());
    }
}

/// A file's mapping.
pub(super) fn probe(file: &File) -> Result<MappingProbe<'_, Real>> {
    Ok(MappingProbe::new(file.handle())?)
}
