//! Pools with every mapping, and files in them that have blocks but no bytes.

use tempfile::TempDir;
use vellum::experiments::{MappingAlone, settle};
use vellum::media::Real;
use vellum::{CreateOptions, File, MappingKind, OpenOptions, Pool};

use super::MappingOptions;
use crate::Result;
use crate::error::doing;
use crate::interrupt::Interrupt;

/// Bytes of a block.
pub(super) const BLOCK_BYTES: u64 = 4096;
/// Blocks that are claimed together when a file is filled.
const FILL_BLOCKS: u64 = 256;
/// A pool's metadata: this part of it, and at least so many bytes.
const METADATA_PART: u64 = 64;
const METADATA_MIN_BYTES: u64 = 8 << 20;
/// The mapping that ratios are taken to.
pub(super) const PEER: &str = "extent";

/// What a run of this command has to go by.
pub(super) struct Setting<'a> {
    pub(super) options: &'a MappingOptions,
    interrupt: &'a Interrupt,
}

impl<'a> Setting<'a> {
    pub(super) fn new(options: &'a MappingOptions, interrupt: &'a Interrupt) -> Self {
        Self { options, interrupt }
    }

    /// Fails once a signal came.
    pub(super) fn check(&self) -> Result<()> {
        self.interrupt.check()
    }

    /// Rounds, the one that warms up among them.
    pub(super) fn rounds(&self) -> std::ops::RangeInclusive<usize> {
        0..=self.options.rounds
    }

    /// Blocks of the file.
    pub(super) fn file_blocks(&self) -> u64 {
        self.options.file_bytes / BLOCK_BYTES
    }

    /// A pool of `bytes` for each mapping, files in it to have a layout score.
    pub(super) fn subjects(&self, bytes: u64, layout_score: f64) -> Result<Vec<Subject>> {
        Design::all()
            .into_iter()
            .map(|design| Subject::make(design, self.options, bytes, layout_score))
            .collect()
    }
}

/// A mapping as it is chosen when a pool is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Design {
    pub(super) name: String,
    mapping: MappingKind,
    run_blocks: Option<u32>,
}

impl Design {
    /// All that there are: those that this release knows, and the placement of HashFS's paper.
    pub(super) fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for mapping in MappingKind::ALL {
            all.push(Self {
                name: mapping.name().into(),
                mapping,
                run_blocks: None,
            });
            if mapping == MappingKind::HashFs {
                all.push(Self {
                    name: format!("{}-1", mapping.name()),
                    mapping,
                    run_blocks: Some(1),
                });
            }
        }
        all
    }

    /// Whether claiming a block is inserting its mapping.
    pub(super) fn allocates_itself(&self) -> bool {
        self.mapping == MappingKind::HashFs
    }
}

/// A pool with one of the mappings.
pub(super) struct Subject {
    pub(super) design: Design,
    pool: Pool,
    // Goes last.
    _dir: TempDir,
}

impl Subject {
    fn make(
        design: Design,
        options: &MappingOptions,
        bytes: u64,
        layout_score: f64,
    ) -> Result<Self> {
        let made = tempfile::Builder::new()
            .prefix("vellum-bench-")
            .tempdir_in(&options.pool_dir);
        let dir = made.map_err(doing("making a directory"))?;
        let metadata = (bytes / METADATA_PART).max(METADATA_MIN_BYTES);
        let create = CreateOptions {
            mapping: design.mapping,
            run_blocks: design.run_blocks,
            fragmentation: ((1.0 - layout_score) * 1000.0).round() as u16,
            metadata_bytes: Some(metadata),
            ..CreateOptions::new((bytes + metadata).next_multiple_of(4 << 20))
        };
        Ok(Self {
            pool: Pool::create(dir.path().join("pool"), &create)?,
            design,
            _dir: dir,
        })
    }

    /// A new file of so many blocks, all of them holes.
    pub(super) fn sparse(&self, name: &str, blocks: u64) -> Result<File> {
        let options = OpenOptions {
            read: true,
            write: true,
            create_new: true,
            no_atime: true,
            mode: 0o600,
            ..OpenOptions::default()
        };
        let file = self.pool.volume().open_with(name, &options)?;
        file.set_len(blocks * BLOCK_BYTES)?;
        Ok(file)
    }

    /// A new file of so many blocks, all of them there, claimed from the first to the last.
    pub(super) fn filled(&self, name: &str, blocks: u64) -> Result<File> {
        let file = self.sparse(name, blocks)?;
        let mut alone = alone(&file)?;
        for first in (0..blocks).step_by(FILL_BLOCKS as usize) {
            alone.insert(first, FILL_BLOCKS.min(blocks - first) as usize)?;
        }
        drop(alone);
        Ok(file)
    }

    /// Makes blocks free that were given up.
    pub(super) fn settle(&self) {
        settle(&*self.pool.fs());
    }
}

/// A file's mapping.
pub(super) fn alone(file: &File) -> Result<MappingAlone<'_, Real>> {
    Ok(MappingAlone::new(file.handle())?)
}
