//! Prefixes: where the directories are that paths from the root led through, so that a whole path costs one probe for
//! all but its last component.
//!
//! A prefix is found by the hash of its bytes. It counts with the *version of paths* under which it was found: that changes
//! whenever a directory is moved or removed, or is searched by fewer from then on ([`crate::namespace::common::changing`]). So what
//! counts leads to the directory that a walk by components would lead to, through directories that everybody may
//! search; that it is this prefix, and no other with its hash, says the directory's own entry. Nothing about anybody's
//! permission is remembered.
//!
//! A path that ends in a slash is a prefix itself: so whoever makes a file by its path finds the directory, and changes there what
//! it would have changed behind a walk.
//!
//! The table is a hint: two prefixes a line, the newer one displaces an older one.

use std::sync::atomic::Ordering;

use vellum_layout::{FileKind, Geometry, PathEntryHead, PathHash, ROOT_SLOT};
use vellum_media::{Memories, Memory, count};

use super::prefixes_at;
use crate::cachelet::Cachelet;
use crate::core::Core;
use crate::error::Result;
use crate::namespace::Walked;
use crate::namespace::common::walk;
use crate::slots::Op;

/// Bytes of a line of the table, and of a prefix in it.
pub(super) const LINE_BYTES: u64 = 64;
const PREFIX_BYTES: u64 = 32;
/// Metadata slots for each line.
const SLOTS_PER_LINE: u64 = 128;
/// Search permission of everybody.
const SEARCH: u16 = 0o111;

/// What the table says of a prefix.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Prefix {
    /// Hash of its bytes.
    hash: u64,
    /// Inode slot and generation of the directory.
    ino: u64,
    generation: u64,
    /// The version of paths under which it led there.
    version: u64,
}

impl Prefix {
    /// Its words in the table. The first one vouches for the others: of two that were stored at once none may be left whole.
    fn words(self) -> [u64; 4] {
        let Self {
            hash,
            ino,
            generation,
            version,
        } = self;
        let sum = hash ^ ino ^ generation.rotate_left(24) ^ version.rotate_left(48);
        [sum, ino, generation, version]
    }
}

/// Lines of the table.
fn lines(geometry: &Geometry) -> u64 {
    (geometry.meta_slots() / SLOTS_PER_LINE)
        .next_power_of_two()
        .max(16)
}

/// Bytes of the table.
pub(super) fn bytes(geometry: &Geometry) -> u64 {
    lines(geometry) * LINE_BYTES
}

/// Splits a path from the root into a prefix of two components and more and a plain name behind it; none, if the path ends in a slash,
/// so that all of it is the prefix.
fn split(path: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let first = path.iter().position(|&byte| byte != b'/')?;
    let last = path.iter().rposition(|&byte| byte == b'/')?;
    let (end, name) = match &path[last + 1..] {
        b"." | b".." => return None,
        b"" => (path.iter().rposition(|&byte| byte != b'/')? + 1, None),
        name => (last, Some(name)),
    };
    let prefix = path.get(first..end)?;
    prefix.contains(&b'/').then_some((prefix, name))
}

impl<M: Memories> Core<M> {
    fn prefix_cells(&self, hash: u64) -> [u64; 2] {
        let line = hash & (lines(&self.geometry) - 1);
        let at = self.map.namespace + prefixes_at(&self.geometry) + line * LINE_BYTES;
        [at, at + PREFIX_BYTES]
    }

    fn load_prefix(&self, cell: u64) -> [u64; 4] {
        [0, 8, 16, 24].map(|word| self.arena.load(cell + word, Ordering::Acquire))
    }

    /// The directory that a prefix with this hash led to under this version.
    fn find_prefix(&self, hash: u64, version: u64) -> Option<Prefix> {
        let mut found = self.prefix_cells(hash).into_iter().filter_map(|cell| {
            let words = self.load_prefix(cell);
            let [_, ino, generation, _] = words;
            let prefix = Prefix {
                hash,
                ino,
                generation,
                version,
            };
            (prefix.words() == words).then_some(prefix)
        });
        found.next()
    }

    /// Puts a prefix in the place of one of another version, or of either.
    fn keep_prefix(&self, prefix: Prefix) {
        let cells = self.prefix_cells(prefix.hash);
        let is_old = |&cell: &u64| self.load_prefix(cell)[3] != prefix.version;
        let either = cells[usize::from(prefix.hash >> 63 == 1)];
        let cell = cells.into_iter().find(is_old).unwrap_or(either);
        for (word, value) in prefix.words().into_iter().enumerate() {
            self.arena
                .store(cell + 8 * word as u64, value, Ordering::Release);
        }
    }

    /// Whether the own entry of the directory with inode `dir` tells this path from the root on: its last part, and those of the
    /// roots above tell the rest.
    fn is_own_path(&self, mut dir: u64, path: &[u8]) -> bool {
        let mut rest = path;
        loop {
            let Some((area, above)) = self.without_own_path(dir, rest) else {
                return false;
            };
            match (self.root_of_area(area), above) {
                (Some(ROOT_SLOT), above) => return above.is_empty(),
                (Some(root), [above @ .., b'/']) if self.is_inode_slot(root) => {
                    (dir, rest) = (root, above);
                }
                _ => return false,
            }
        }
    }

    /// The area that a directory's own entry lies in, and what is in front of its path at the end of `path`.
    fn without_own_path<'p>(&self, dir: u64, path: &'p [u8]) -> Option<(u32, &'p [u8])> {
        let entry = self.place_of_directory(dir).entry();
        if entry == 0 || entry >= self.geometry.meta_slots() {
            return None;
        }
        let at = self.geometry.slot_at(entry);
        let word = self.word(at + PathEntryHead::PATH_WORD);
        let len = usize::from(word as u16);
        let (above, own) = path.split_at(path.len().checked_sub(len)?);
        let slots = PathEntryHead::slots_for(len);
        let is_it = self.geometry.areas.has_room(entry, slots)
            && self.pool.bytes_equal(at + PathEntryHead::PATH, own);
        is_it.then_some(((word >> 32) as u32, above))
    }
}

impl<M: Memories> Op<'_, M> {
    /// The directory that a prefix leads to, if the table knows it.
    fn directory_at(&self, hash: u64, prefix: &[u8], version: u64) -> Option<Cachelet> {
        let core = self.core;
        count::probe();
        let found = core.find_prefix(hash, version)?;
        count::probe();
        // It was not removed before this operation began, so its inode is nobody else's until it ends.
        let dir = core.load_cachelet(self, found.ino).ok()?;
        let is_it = u64::from(core.identity(dir).generation()) == found.generation
            && core.is_own_path(found.ino, prefix);
        is_it.then_some(dir)
    }
}

/// See [`crate::namespace::Namespace::walk`].
pub(super) fn walk<M: Memories>(
    op: &Op<'_, M>,
    start: Cachelet,
    path: &[u8],
    enter: &mut dyn FnMut(Cachelet) -> Result<()>,
    lookup: impl Fn(Cachelet, &[u8]) -> Result<Cachelet>,
) -> Result<Walked> {
    let core = op.core;
    let whole = split(path).filter(|_| core.ino(start) == ROOT_SLOT);
    let (Some((prefix, name)), Some(version)) = (whole, core.version_of_paths()) else {
        return walk::walk(op, start, path, enter, lookup);
    };
    let hash = PathHash::of_root(core.seed).step(core.seed, prefix).0;
    if let Some(dir) = op.directory_at(hash, prefix, version) {
        let entered = enter(start);
        let found = entered.and_then(|()| match name {
            Some(name) => enter(dir).and_then(|()| lookup(dir, name)),
            None => Ok(dir),
        });
        if core.version_of_paths() == Some(version) {
            return found.map(|at| Walked {
                at,
                parent: dir,
                used: path.len(),
            });
        }
    }
    let mut is_open = true;
    let mut enter = |dir| {
        is_open &= core.identity(dir).mode() & SEARCH == SEARCH;
        enter(dir)
    };
    let walked = walk::walk(op, start, path, &mut enter, lookup)?;
    let dir = if name.is_some() {
        walked.parent
    } else {
        walked.at
    };
    let identity = core.identity(dir);
    // Nobody has entered the directory that a path with a slash at its end leads to.
    is_open &= identity.kind() == Some(FileKind::Directory) && identity.mode() & SEARCH == SEARCH;
    if is_open && walked.used == path.len() && core.is_own_path(core.ino(dir), prefix) {
        let prefix = Prefix {
            hash,
            ino: core.ino(dir),
            generation: identity.generation().into(),
            version,
        };
        if core.version_of_paths() == Some(version) {
            core.keep_prefix(prefix);
        }
    }
    Ok(walked)
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn only_paths_with_two_components_in_front_of_a_plain_name_or_the_end_are_split() {
        let name = Some(&b"c"[..]);
        assert_eq!(split(b"/a/b/c"), Some((&b"a/b"[..], name)));
        assert_eq!(split(b"//a/b/c"), Some((&b"a/b"[..], name)));
        for path in [&b"/a/b/"[..], b"a/b/", b"/a/b//"] {
            assert_eq!(split(path), Some((&b"a/b"[..], None)));
        }
        // What is no path of any entry is never kept.
        assert_eq!(split(b"a//c"), Some((&b"a/"[..], name)));
        for path in [
            &b"/a/b"[..],
            b"a",
            b"",
            b"/",
            b"//",
            b"/a/",
            b"/a/b/.",
            b"/a/b/..",
        ] {
            assert_eq!(split(path), None, "{}", path.escape_ascii());
        }
    }
}
