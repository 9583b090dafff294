//! Data space that becomes metadata when those are short, and data again.

use vellum_media::Memories;

use super::Fs;
use crate::core::background::Lease;
use crate::error::{Error, Result};

/// Free chunks, at least, that a pool short of metadata gets: inodes, entries and blocks may each
/// run low.
const CHUNKS_MADE: u64 = 3;
/// Bytes, at least, of these chunks: logs are compacted only if a few blocks are free.
const BYTES_MADE: u64 = 64 << 10;

impl<M: Memories> Fs<M> {
    /// How many chunks of data space could become metadata now.
    pub(crate) fn chunks_possible(&self) -> u64 {
        let core = &self.core;
        let allocator = self.mapping.allocator();
        let is_free = |&chunk: &u64| allocator.are_free(core, core.geometry.blocks_of_chunk(chunk));
        core.data_chunks().filter(is_free).count() as u64
    }

    /// How many free chunks a pool short of metadata gets.
    fn chunks_made(&self) -> u64 {
        (BYTES_MADE / self.core.geometry.chunk_bytes).max(CHUNKS_MADE)
    }

    /// Makes free data space metadata, if those are short. Returns whether it did. Runs outside any
    /// operation.
    ///
    /// # Errors
    /// Fails if the file system below does.
    pub(super) fn make_chunks(&self) -> Result<bool> {
        let core = &self.core;
        if !core.is_short_of_chunks() {
            return Ok(false);
        }
        let _lease = Lease::take_to_work(core)?;
        let op = core.op_step();
        // Until the operation ends, nobody closes the pool.
        match core.check_changeable() {
            // The next try waits.
            Err(Error::Retry(_)) => return Ok(true),
            changeable => changeable?,
        }
        let mut made = 0;
        // From the end: files begin anywhere, and most mappings fill the beginning first.
        for chunk in core.data_chunks().rev() {
            if made >= self.chunks_made() && !core.is_short_of_chunks() {
                break;
            }
            let blocks = core.geometry.blocks_of_chunk(chunk);
            let allocator = self.mapping.allocator();
            if !allocator.are_free(core, blocks.clone()) {
                continue;
            }
            match allocator.take_for_metadata(&op, blocks) {
                Ok(true) => {
                    core.adopt_chunk(chunk);
                    made += 1;
                }
                Ok(false) => {}
                Err(Error::NoSpace(_)) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(made > 0)
    }

    /// Makes chunks of data space that nothing uses data again: with `all` every one, else those
    /// of a kind of which much is free. Runs outside any operation, under the lease of background
    /// work.
    pub(crate) fn return_chunks(&self, all: bool) {
        let core = &self.core;
        let given_up = core.give_up_chunks(all);
        if given_up.is_empty() {
            return;
        }
        // A handle may be looked up in any slot.
        core.wait_for_readers();
        for chunk in given_up {
            core.return_chunk(chunk);
            let blocks = core.geometry.blocks_of_chunk(chunk);
            self.mapping.allocator().return_from_metadata(core, blocks);
        }
    }
}
