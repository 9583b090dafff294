//! Operations that change nothing: stat, open, readdir, pread.

use std::ffi::CString;

use super::workload::{Laps, Part, Workload};
use crate::Result;
use crate::order::{LISTED, Numbers, names, shuffled_names};
use crate::side::{BLOCK, For, Side};

/// Bytes per write while the large file is created.
const FILL_BYTES: usize = 1 << 20;

/// Creates the directories of a path, and empty files in the last one.
fn fill_dir<S: Side>(side: &S, path: &str, names: &[CString]) -> Result<()> {
    for (end, _) in path.match_indices('/') {
        side.make_dir(&path[..end])?;
    }
    side.make_dir(path)?;
    let dir = side.dir(path)?;
    names.iter().try_for_each(|name| side.create(&dir, name))
}

/// Calls `stat` for every file of a directory.
pub(crate) struct Stat {
    parts: [Part; 1],
    /// The directory with the files.
    files_in: &'static str,
    /// The directory at which the paths start.
    from: &'static str,
    names: Vec<CString>,
    paths: Vec<CString>,
}

impl Stat {
    /// By paths of one component.
    pub(crate) fn shallow(files: usize) -> Self {
        Self {
            parts: [Part::single("stat_d1", "shuffled")],
            files_in: "stat",
            from: "stat",
            names: names("file-", files),
            paths: shuffled_names("file-", files, 1),
        }
    }

    /// By paths of eight components.
    pub(crate) fn deep(files: usize) -> Self {
        Self {
            parts: [Part::single("stat_d8", "shuffled")],
            files_in: "usr/share/doc/one/two/three/four",
            from: "",
            names: names("file-", files),
            paths: shuffled_names("usr/share/doc/one/two/three/four/file-", files, 2),
        }
    }
}

impl Workload for Stat {
    fn parts(&self) -> &[Part] {
        &self.parts
    }

    fn fill<S: Side>(&self, side: &S) -> Result<()> {
        fill_dir(side, self.files_in, &self.names)
    }

    fn round<S: Side>(&self, side: &S, laps: &mut Laps) -> Result<()> {
        let dir = side.dir(self.from)?;
        let mut sum: u64 = 0;
        let visits = laps.time_visits(side, 0, self.paths.len(), || {
            for path in &self.paths {
                sum = sum.wrapping_add(side.stat(&dir, path)?);
            }
            Ok(())
        })?;
        let mut expected: u64 = 0;
        for path in &self.paths {
            expected = expected.wrapping_add(side.stat(&dir, path)?);
            side.expect("size of an empty file", side.size(&dir, path)?, 0)?;
        }
        let expected = expected.wrapping_mul(visits as u64);
        side.expect("sum of inode numbers", sum, expected)
    }

    fn has_first_access(&self) -> bool {
        true
    }
}

/// Opens and closes every file of a directory.
pub(crate) struct OpenClose {
    names: Vec<CString>,
    shuffled: Vec<CString>,
}

impl OpenClose {
    pub(crate) fn new(files: usize) -> Self {
        Self {
            names: names("file-", files),
            shuffled: shuffled_names("file-", files, 3),
        }
    }
}

impl Workload for OpenClose {
    fn parts(&self) -> &[Part] {
        const { &[Part::single("open_close", "shuffled")] }
    }

    fn fill<S: Side>(&self, side: &S) -> Result<()> {
        fill_dir(side, "open", &self.names)
    }

    fn round<S: Side>(&self, side: &S, laps: &mut Laps) -> Result<()> {
        let dir = side.dir("open")?;
        laps.time_visits(side, 0, self.shuffled.len(), || {
            self.shuffled
                .iter()
                .try_for_each(|name| side.open_close(&dir, name))
        })
        .map(|_| ())
    }

    fn has_first_access(&self) -> bool {
        true
    }
}

/// Lists a directory; values are per entry.
pub(crate) struct List {
    names: Vec<CString>,
}

impl List {
    pub(crate) fn new(files: usize) -> Self {
        Self {
            names: names("file-", files),
        }
    }
}

impl Workload for List {
    fn parts(&self) -> &[Part] {
        const {
            &[
                Part::single("readdir", "the directory's"),
                Part::single("readdir_owned", "the directory's"),
            ]
        }
    }

    fn fill<S: Side>(&self, side: &S) -> Result<()> {
        fill_dir(side, LISTED, &self.names)
    }

    fn round<S: Side>(&self, side: &S, laps: &mut Laps) -> Result<()> {
        let dir = side.dir(LISTED)?;
        let files = self.names.len();
        let mut found = 0;
        let visits = laps.time_visits(side, 0, files, || {
            found += side.list(&dir)?;
            Ok(())
        })?;
        side.expect("entries listed", found, (visits * files) as u64)?;
        found = 0;
        let visits = laps.time_visits(side, 1, files, || {
            found += side.list_owned(&dir)?;
            Ok(())
        })?;
        let expected = (visits * files) as u64;
        side.expect("entries listed with names of their own", found, expected)
    }

    fn has_first_access(&self) -> bool {
        true
    }
}

/// Reads single blocks of a large file in a random order.
pub(crate) struct ReadRandom {
    blocks: u64,
    offsets: Vec<u64>,
}

impl ReadRandom {
    /// Twice as many reads in a round as there are files in a directory.
    pub(crate) fn new(files: usize, file_bytes: u64) -> Self {
        let blocks = file_bytes / BLOCK as u64;
        let mut numbers = Numbers::new(4);
        let offsets = (0..2 * files)
            .map(|_| numbers.below(blocks) * BLOCK as u64)
            .collect();
        Self { blocks, offsets }
    }
}

impl Workload for ReadRandom {
    fn parts(&self) -> &[Part] {
        const { &[Part::single("pread_4k_random", "random")] }
    }

    /// Writes the file; every block holds its number.
    fn fill<S: Side>(&self, side: &S) -> Result<()> {
        side.make_dir("read")?;
        let dir = side.dir("read")?;
        side.create(&dir, c"large")?;
        let file = side.open(&dir, c"large", For::Appending)?;
        let mut piece = vec![0xA5; FILL_BYTES];
        let mut block = 0;
        while block < self.blocks {
            let count = (self.blocks - block).min((FILL_BYTES / BLOCK) as u64);
            for (number, bytes) in (block..block + count).zip(piece.chunks_exact_mut(BLOCK)) {
                bytes[..8].copy_from_slice(&number.to_le_bytes());
            }
            let mut rest = &piece[..count as usize * BLOCK];
            while !rest.is_empty() {
                let written = side.append(&file, rest)?;
                rest = &rest[written..];
            }
            block += count;
        }
        let size = self.blocks * BLOCK as u64;
        side.expect("size of the large file", side.size(&dir, c"large")?, size)
    }

    fn round<S: Side>(&self, side: &S, laps: &mut Laps) -> Result<()> {
        let dir = side.dir("read")?;
        let file = side.open(&dir, c"large", For::Reading)?;
        let mut buffer = vec![1; BLOCK];
        let mut sum: u64 = 0;
        let mut bytes = 0;
        laps.time(side, 0, self.offsets.len(), || {
            for &offset in &self.offsets {
                bytes += side.read_at(&file, offset, &mut buffer)?;
                let number = buffer.first_chunk().copied().unwrap_or_default();
                sum = sum.wrapping_add(u64::from_le_bytes(number));
            }
            Ok(())
        })?;
        side.expect("bytes read", bytes, self.offsets.len() * BLOCK)?;
        let expected = self.offsets.iter().map(|offset| offset / BLOCK as u64);
        side.expect("sum of the blocks' numbers", sum, expected.sum())
    }

    fn has_first_access(&self) -> bool {
        true
    }
}
