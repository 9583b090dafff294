//! Operations that write data: append, and create + write + fsync.

use std::ffi::CString;

use super::workload::{Laps, Part, Workload};
use crate::Result;
use crate::order::names;
use crate::side::{BLOCK, For, Side};

/// Appends blocks to one file.
pub(crate) struct Append {
    appends: usize,
}

impl Append {
    /// As many appends in a round as there are files in a directory.
    pub(crate) fn new(files: usize) -> Self {
        Self { appends: files }
    }
}

impl Workload for Append {
    fn parts(&self) -> &[Part] {
        const { &[Part::single("append_4k", "sequential")] }
    }

    fn fill<S: Side>(&self, side: &S) -> Result<()> {
        side.make_dir("append")
    }

    fn round<S: Side>(&self, side: &S, laps: &mut Laps) -> Result<()> {
        let dir = side.dir("append")?;
        side.create(&dir, c"log")?;
        let file = side.open(&dir, c"log", For::Appending)?;
        let data = vec![0x5A; BLOCK];
        let mut bytes = 0;
        laps.time(side, 0, self.appends, || {
            for _ in 0..self.appends {
                bytes += side.append(&file, &data)?;
            }
            Ok(())
        })?;
        side.expect("bytes appended", bytes, self.appends * BLOCK)?;
        let size = side.size(&dir, c"log")?;
        side.expect("size after appending", size, bytes as u64)?;
        drop(file);
        side.unlink(&dir, c"log")?;
        side.settle()
    }
}

/// Creates files with a block in them, each durable before the next.
pub(crate) struct CreateWriteSync {
    names: Vec<CString>,
}

impl CreateWriteSync {
    pub(crate) fn new(files: usize) -> Self {
        Self {
            names: names("file-", files),
        }
    }
}

impl Workload for CreateWriteSync {
    fn parts(&self) -> &[Part] {
        const { &[Part::single("create_write4k_fsync", "ascending")] }
    }

    fn fill<S: Side>(&self, side: &S) -> Result<()> {
        side.make_dir("durable")
    }

    fn round<S: Side>(&self, side: &S, laps: &mut Laps) -> Result<()> {
        let dir = side.dir("durable")?;
        let data = vec![0xC3; BLOCK];
        laps.time(side, 0, self.names.len(), || {
            self.names
                .iter()
                .try_for_each(|name| side.create_write_sync(&dir, name, &data))
        })?;
        let mut found = vec![0; BLOCK];
        for name in &self.names {
            let file = side.open(&dir, name, For::Reading)?;
            side.expect(
                "bytes of a file",
                side.read_at(&file, 0, &mut found)?,
                BLOCK,
            )?;
            side.expect("content of a file", found == data, true)?;
            drop(file);
            side.unlink(&dir, name)?;
        }
        side.settle()
    }
}
