//! Writes names into an area, in a conversion to the namespace *adaptive*.

use vellum_check::survey::Name;
use vellum_layout::{
    AreaLife, AreaLine, AreaPhase, AreaPlan, AreaTableHead, BLOCK_BYTES, ChunkKind, DirLocation,
    EntryState, FileKind, Inode, PATH_ENTRY_MAX_BYTES, PathEntryHead, PathSeal, ROOT_AREA,
    ROOT_SLOT, SLOTS_PER_BLOCK, StateMapWord, path_below,
};
use zerocopy::IntoBytes;

use super::{ConvertError, Making};
use crate::areas::{AREA_GENERATION, join};
use crate::room::Named;

/// A directory whose names must be written.
struct Directory {
    /// Its node.
    number: u32,
    path: Vec<u8>,
    place: DirLocation,
}

impl Making<'_> {
    /// Writes all names, ordered by directory and cookie, into the area of the root; returns the
    /// number of directories.
    pub(super) fn lay_area(&mut self, names: &[&Name]) -> Result<u64, ConvertError> {
        self.lay_area_table()?;
        let root = self.survey.nodes.root().map(|number| Directory {
            number,
            path: Vec::new(),
            place: DirLocation::new(0, ROOT_AREA),
        });
        let mut ready: Vec<Directory> = root.into_iter().collect();
        let mut directories = 0;
        while let Some(dir) = ready.pop() {
            directories += 1;
            let first = names.partition_point(|name| name.directory < dir.number);
            let end = names.partition_point(|name| name.directory <= dir.number);
            self.lay_directory(&dir, &names[first..end], &mut ready)?;
        }
        Ok(directories)
    }

    fn lay_area_table(&mut self) -> Result<(), ConvertError> {
        let geometry = self.survey.geometry;
        let table = self.take(ChunkKind::Blocks, SLOTS_PER_BLOCK)?;
        self.areas = AreaPlan {
            table,
            ..AreaPlan::usual(geometry.chunk_bytes)
        };
        let root = self.survey.nodes.root().map_or(0, |root| {
            let identity = self.survey.nodes.list[root as usize].identity;
            identity.generation()
        });
        let life = AreaLife {
            number: ROOT_AREA,
            generation: AREA_GENERATION,
        };
        let line = AreaLine::new(life, AreaPhase::Live, ROOT_SLOT, root);
        let mut block = [0; BLOCK_BYTES as usize];
        block[..64].copy_from_slice(AreaTableHead::new(table, 0).as_bytes());
        let at = ROOT_AREA as usize * 64;
        block[at..at + 64].copy_from_slice(line.as_bytes());
        self.put(table, &block);
        Ok(())
    }

    /// Writes the names of one directory; directories among them become ready.
    fn lay_directory(
        &mut self,
        dir: &Directory,
        names: &[&Name],
        ready: &mut Vec<Directory>,
    ) -> Result<(), ConvertError> {
        let above = path_below(&dir.path);
        let node = &self.survey.nodes.list[dir.number as usize];
        let mut entries = Vec::with_capacity(names.len());
        for name in names {
            let path = join(above, &self.survey.text_of(name));
            let seal = PathSeal {
                area: AREA_GENERATION,
                slot: self.take(ChunkKind::Areas, PathEntryHead::slots_for(path.len()))?,
                directory: node.identity.generation(),
            };
            let head = Named::of(name).path_entry(node.slot);
            let mut buffer = [0; PATH_ENTRY_MAX_BYTES];
            let len = head.encode(&path, seal, &mut buffer);
            self.put(seal.slot, &buffer[..len]);
            self.set_state(seal.slot);
            entries.push((name.cookie, seal.slot));
            if name.kind == FileKind::Directory {
                ready.extend(self.survey.target(name).map(|number| Directory {
                    number,
                    path,
                    place: DirLocation::new(seal.slot, 0),
                }));
            }
        }
        let root = self.lay_log(node, &entries)?;
        let at = self.survey.geometry.slot_at(node.slot);
        self.overlay.set(at + Inode::ROOT, root);
        self.overlay.set(at + Inode::DETAIL, dir.place.0);
        Ok(())
    }

    fn set_state(&self, slot: u64) {
        let at = self.survey.geometry.meta_at + self.areas.states_at(slot);
        let word = StateMapWord(self.overlay.word(at)).with(slot, EntryState::Cold);
        self.overlay.set(at, word.0);
    }

    /// Zeroes heads and state-maps of a new chunk.
    pub(super) fn clear_states(&self, chunk: u64) {
        let geometry = self.survey.geometry;
        let first = chunk * geometry.slots_per_chunk();
        let extents =
            (first..first + geometry.slots_per_chunk()).step_by(self.areas.slots() as usize);
        for extent in extents {
            let zeros = vec![0; self.areas.first() as usize * vellum_layout::SLOT_BYTES as usize];
            self.put(extent, &zeros);
        }
    }
}
