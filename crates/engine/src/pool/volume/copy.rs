//! Copying the content of files.

use super::File;
use crate::error::{Error, Result};

/// Bytes that are copied at once.
const PIECE_BYTES: usize = 1 << 20;

/// Copies data and size of a file to an empty one. Returns the size. Holes stay holes.
pub(super) fn copy_data(source: &File, target: &File) -> Result<u64> {
    let len = source.metadata()?.len();
    let piece = usize::try_from(len).map_or(PIECE_BYTES, |len| len.min(PIECE_BYTES));
    let mut buffer = vec![0; piece];
    let mut at = 0;
    while at < len {
        let begin = match source.handle().seek_data(at) {
            Err(Error::NoData) => break,
            found => found?,
        };
        let end = source.handle().seek_hole(begin)?.min(len);
        at = begin;
        while at < end {
            let part = buffer.len().min((end - at) as usize);
            let read = source.read_at(&mut buffer[..part], at)?;
            if read == 0 {
                // The file was truncated meanwhile.
                return Ok(at);
            }
            target.write_all_at(&buffer[..read], at)?;
            at += read as u64;
        }
    }
    target.set_len(len)?;
    Ok(len)
}
