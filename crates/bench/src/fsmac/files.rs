//! Files that are created, used and removed at random, the same on every side.

use std::ffi::CString;

use crate::Result;
use crate::error::expect;
use crate::order::Numbers;
use crate::workloads::{FileTree, Opened, Purpose};

/// The files below some directories that one round creates and removes.
pub(super) struct Files<'p, P> {
    tree: &'p P,
    root: &'static str,
    dirs: u64,
    /// The source of random numbers.
    pub(super) numbers: Numbers,
    alive: Vec<(CString, u64)>,
    named: usize,
    bytes: u64,
    buffer: Vec<u8>,
}

impl<'p, P: FileTree> Files<'p, P> {
    /// Creates the directories below `root`.
    pub(super) fn fill(tree: &P, root: &str, dirs: u64) -> Result<()> {
        let name = |text: String| CString::new(text).unwrap_or_default();
        tree.make_dir(&name(root.into()))?;
        (0..dirs).try_for_each(|dir| tree.make_dir(&name(format!("{root}/{dir}"))))
    }

    /// An empty set of files in the directories that [`Self::fill`] creates. Requests have
    /// `request` bytes.
    pub(super) fn new(tree: &'p P, root: &'static str, dirs: u64, request: usize) -> Self {
        Self {
            tree,
            root,
            dirs,
            numbers: Numbers::new(51),
            alive: Vec::new(),
            named: 0,
            bytes: 0,
            buffer: vec![0x77; request],
        }
    }

    /// The number of files.
    pub(super) fn count(&self) -> usize {
        self.alive.len()
    }

    /// The size of all files in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The size of a file in bytes.
    pub(super) fn bytes_of(&self, file: usize) -> u64 {
        self.alive[file].1
    }

    /// A random file; `None` if there are none.
    pub(super) fn pick(&mut self) -> Option<usize> {
        let count = self.alive.len() as u64;
        (count > 0).then(|| self.numbers.below(count) as usize)
    }

    fn name(&mut self) -> CString {
        self.named += 1;
        let dir = self.numbers.below(self.dirs);
        let name = format!("{}/{dir}/{:06}", self.root, self.named);
        CString::new(name).unwrap_or_default()
    }

    pub(super) fn make(&mut self, bytes: u64) -> Result<()> {
        let name = self.name();
        let file = self.tree.open(&name, Purpose::Create)?;
        for (at, len) in self.requests(0, bytes) {
            file.write_at(at, &self.buffer[..len])?;
        }
        self.alive.push((name, bytes));
        self.bytes += bytes;
        Ok(())
    }

    pub(super) fn read(&mut self, file: usize, from: u64, bytes: u64) -> Result<()> {
        let opened = self.tree.open(&self.alive[file].0, Purpose::Read)?;
        for (at, len) in self.requests(from, bytes) {
            let read = opened.read_at(at, &mut self.buffer[..len])?;
            expect("bytes read", read, len)?;
        }
        Ok(())
    }

    pub(super) fn write(&self, file: usize, from: u64, bytes: u64, is_synced: bool) -> Result<()> {
        let opened = self.tree.open(&self.alive[file].0, Purpose::ReadWrite)?;
        for (at, len) in self.requests(from, bytes) {
            opened.write_at(at, &self.buffer[..len])?;
        }
        if is_synced { opened.sync() } else { Ok(()) }
    }

    pub(super) fn append(&mut self, file: usize, bytes: u64, is_synced: bool) -> Result<()> {
        let opened = self.tree.open(&self.alive[file].0, Purpose::Append)?;
        for (_, len) in self.requests(0, bytes) {
            opened.append(&self.buffer[..len])?;
        }
        self.alive[file].1 += bytes;
        self.bytes += bytes;
        if is_synced { opened.sync() } else { Ok(()) }
    }

    pub(super) fn rename(&mut self, file: usize) -> Result<()> {
        let new = self.name();
        self.tree.rename(&self.alive[file].0, &new)?;
        self.alive[file].0 = new;
        Ok(())
    }

    /// Removes a random file, if there are any.
    pub(super) fn remove(&mut self) -> Result<()> {
        let Some(file) = self.pick() else {
            return Ok(());
        };
        let (name, bytes) = self.alive.swap_remove(file);
        self.bytes -= bytes;
        self.tree.remove(&name)
    }

    /// Offsets and lengths of the requests that read or write a range of bytes.
    fn requests(&self, from: u64, bytes: u64) -> impl Iterator<Item = (u64, usize)> + use<P> {
        let (request, end) = (self.buffer.len(), from + bytes);
        let offsets = (from..end).step_by(request);
        offsets.map(move |at| (at, request.min((end - at) as usize)))
    }
}
