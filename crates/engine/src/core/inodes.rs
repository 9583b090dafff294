//! The pool's own words about chunks and inodes, for opening and recovery.

use vellum_layout::{ChunkKind, ChunkWord, FileKind, InodeState, ROOT_SLOT};
use vellum_media::Memories;

use super::Core;
use crate::error::{Error, Location, Result};

/// The number by which a mapping knows a file.
pub(crate) type MapId = u32;

/// Calls `each` with the mapping id of every regular file in use.
pub(crate) fn for_each_file<M: Memories>(
    core: &Core<M>,
    each: &mut dyn FnMut(MapId) -> Result<()>,
) -> Result<()> {
    let mut files = core.inode_slots().filter(|&ino| is_file(core, ino));
    files.try_for_each(|ino| each(ino as MapId))
}

/// Whether this slot exists and holds a regular file in use.
pub(crate) fn is_file<M: Memories>(core: &Core<M>, ino: u64) -> bool {
    let identity = || core.identity_on_pool(ino);
    core.is_inode_slot(ino)
        && identity().kind() == Some(FileKind::File)
        && identity().state() == Some(InodeState::Live)
}

/// Reads the chunk table into the arena.
pub(crate) fn note_chunks<M: Memories>(core: &Core<M>) -> Result<()> {
    for chunk in core.geometry.chunks() {
        let word = ChunkWord(core.word(core.geometry.chunk_word_at(chunk)));
        // A reader does without the slots of a chunk whose word is not valid.
        let unknown = core.read_only.then_some((ChunkKind::Free, 0));
        let (kind, _) = core
            .geometry
            .decode_chunk(chunk, word)
            .filter(|&(kind, _)| kind.is_of(core.geometry.namespace))
            .or(unknown)
            .ok_or(Error::damaged("chunk table word", Location::Chunk(chunk)))?;
        core.note_chunk_found(chunk, kind);
    }
    if core.kind_of_slot(ROOT_SLOT) != Some(ChunkKind::Inodes) {
        return Err(Error::damaged(
            "the root directory's chunk",
            Location::Chunk(0),
        ));
    }
    core.note_used(0, 1);
    Ok(())
}
