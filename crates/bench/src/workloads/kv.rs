//! redb on a file of any tree.

use std::fmt;
use std::io;

use super::file_tree::Opened;

/// The file that contains a database.
#[derive(Debug)]
pub(super) struct Backend<F>(pub(super) F);

fn io_error(error: crate::Error) -> io::Error {
    io::Error::other(error.to_string())
}

impl<F: Opened + fmt::Debug + Send + Sync + 'static> redb::StorageBackend for Backend<F> {
    fn len(&self) -> io::Result<u64> {
        self.0.len().map_err(io_error)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let read = self.0.read_at(offset, out).map_err(io_error)?;
        if read == out.len() {
            Ok(())
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len).map_err(io_error)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync().map_err(io_error)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, data).map_err(io_error)
    }
}
