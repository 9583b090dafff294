//! Memory for the chunks of an image in a shared file on tmpfs, whose space goes to the first
//! program that asks for it.
//!
//! A chunk has all its memory before it is used, and the next chunks have theirs in advance: other
//! programs that fill `/dev/shm` take nothing from files that are created soon. Chunks are
//! allocated from the lowest number on, so one word tells which have their memory.

use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use vellum_layout::ChunkKind;
use vellum_media::{ImageMemory, Memories, Memory, SharedImage};

use crate::core::{Core, header};
use crate::error::Error;
use crate::logs::redo::SHARED_DIR;

/// Unused metadata that have their memory in advance: for 65 536 files. This is the most memory
/// that it costs, and pools up to 1 GiB have no more metadata by default.
const AHEAD_BYTES: u64 = 16 << 20;

impl<M: Memories> Core<M> {
    /// The image, if its memory is bounded, and how many bytes of it are left.
    fn bounded_image(&self) -> Option<(Arc<dyn SharedImage>, u64)> {
        let image = self.pool.shared_image()?;
        let room = image.room_bytes()?;
        Some((image, room))
    }

    fn is_free_chunk(&self, chunk: u64) -> bool {
        let word = self.arena.load(self.chunk_cell(chunk), Ordering::Relaxed);
        word == ChunkKind::Free as u64
    }

    /// Free chunks that have their memory.
    fn chunks_ahead(&self) -> u64 {
        let reserved = self.arena.load(header::RESERVED, Ordering::Relaxed);
        let free = (0..reserved.min(self.geometry.meta_chunks)).filter(|&c| self.is_free_chunk(c));
        free.count() as u64
    }

    /// Reserves memory for a chunk, unless it has some. Returns whether it has memory now.
    pub(crate) fn reserve_chunk(&self, chunk: u64) -> bool {
        let bytes = self.geometry.chunk_bytes;
        let at = self.geometry.meta_at + chunk * bytes;
        let Some((image, _)) = self.bounded_image() else {
            return self.pool.prepare(at, bytes).is_ok();
        };
        if chunk < self.arena.load(header::RESERVED, Ordering::Acquire) {
            return true;
        }
        let prepared = self.pool.prepare(at, bytes);
        let was_refused = self.arena.load(header::REFUSED, Ordering::Relaxed) != 0;
        let is_refused = u64::from(prepared.is_err());
        self.arena
            .store(header::REFUSED, is_refused, Ordering::Relaxed);
        if let (Err(error), false) = (&prepared, was_refused) {
            tracing::warn!(
                %error,
                "{} is full: once the metadata that have their memory are used, no file can be \
                 created; free memory there, or mount with --image DIR",
                image.dir().display()
            );
        }
        prepared.is_ok()
    }

    /// Reserves memory for the next free chunks, as far as there is some.
    pub(crate) fn reserve_ahead(&self) {
        if self.bounded_image().is_none() {
            return;
        }
        let wanted = AHEAD_BYTES.div_ceil(self.geometry.chunk_bytes);
        let mut ahead = self.chunks_ahead();
        let mut next = self.arena.load(header::RESERVED, Ordering::Acquire);
        while next < self.geometry.meta_chunks && ahead < wanted {
            let word = self.arena.load(self.chunk_cell(next), Ordering::Acquire);
            let is_free = word == ChunkKind::Free as u64;
            // The thread that allocates the chunk reserves its memory, or leaves it free without.
            if word == crate::core::alloc::TAKING || is_free && !self.reserve_chunk(next) {
                return;
            }
            ahead += u64::from(is_free);
            next = match self
                .arena
                .compare_exchange(header::RESERVED, next, next + 1)
            {
                Ok(_) => next + 1,
                Err(now) => now,
            };
        }
    }

    /// Free chunks for which there is memory.
    pub(crate) fn chunks_to_be_had(&self) -> u64 {
        let free = self.arena.load(header::FREE_SLOTS, Ordering::Relaxed);
        let Some((_, room)) = self.bounded_image() else {
            return free;
        };
        let ahead = self.chunks_ahead();
        free.min(ahead.saturating_add(room / self.geometry.chunk_bytes))
    }

    /// Whether memory for the next chunk was refused at the last attempt.
    pub(crate) fn is_refused_memory(&self) -> bool {
        self.arena.load(header::REFUSED, Ordering::Relaxed) != 0
    }

    /// The error for a missing metadata slot of a kind: the pool has none, or there is no memory
    /// for it.
    pub(crate) fn no_slot(&self, kind: ChunkKind) -> Error {
        let has_free = self.arena.load(header::FREE_SLOTS, Ordering::Relaxed) > 0;
        let lacks_memory = self.is_refused_memory() && has_free;
        match self.bounded_image().filter(|_| lacks_memory) {
            None => Error::NoSpace(match kind {
                ChunkKind::Inodes => "metadata: no inode is free",
                ChunkKind::Entries | ChunkKind::Areas => "metadata: no space for another name",
                _ => "metadata: no block is free",
            }),
            Some((image, _)) if image.dir().as_os_str() == OsStr::new(SHARED_DIR) => {
                Error::NoSpace(Error::SHARED_MEMORY_FULL)
            }
            Some(_) => Error::NoSpace(Error::IMAGE_MEMORY_FULL),
        }
    }
}
