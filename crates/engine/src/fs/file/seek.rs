//! Finding data and holes (`lseek` with `SEEK_DATA` and `SEEK_HOLE`).

use vellum_layout::BLOCK_BYTES;
use vellum_media::Memories;

use super::Files;
use crate::core::cachelet::Cachelet;
use crate::error::{Error, Result};
use crate::mapping::Seek;

impl<M: Memories> Files<'_, M> {
    /// Returns the first offset at or after `offset` that holds data. Preallocated blocks are
    /// holes.
    ///
    /// # Errors
    /// [`Error::NoData`] at or beyond the end of file, or if only holes follow.
    pub(crate) fn seek_data(&self, cachelet: Cachelet, offset: u64) -> Result<u64> {
        self.seek(cachelet, offset, Seek::Data)?
            .ok_or(Error::NoData)
    }

    /// Returns the first offset at or after `offset` that lies in a hole. The end of file counts as
    /// one.
    ///
    /// # Errors
    /// [`Error::NoData`] at or beyond the end of file.
    pub(crate) fn seek_hole(&self, cachelet: Cachelet, offset: u64) -> Result<u64> {
        let size = self.size(cachelet);
        Ok(self
            .seek(cachelet, offset, Seek::Hole)?
            .map_or(size.max(offset), |at| at.min(size)))
    }

    fn seek(&self, cachelet: Cachelet, offset: u64, what: Seek) -> Result<Option<u64>> {
        let op = self.core.op_begin()?;
        let size = self.size(cachelet);
        if offset >= size {
            return Err(Error::NoData);
        }
        let Some((_, id)) = self.core.map_root(cachelet).get() else {
            return Ok((what == Seek::Hole).then_some(offset));
        };
        let (first, end) = (offset / BLOCK_BYTES, size.div_ceil(BLOCK_BYTES));
        let found = self.mapping.seek(&op, id, first, end, what);
        let found = self.core.noting(found)?;
        op.check_hole()?;
        op.check_media()?;
        Ok(found.map(|logical| (logical * BLOCK_BYTES).max(offset)))
    }
}
