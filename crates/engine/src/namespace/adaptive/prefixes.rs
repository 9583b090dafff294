//! Prefixes: a cache of the directories that paths from the root led through. With it a whole path
//! costs one probe for all components but the last.
//!
//! A prefix is found by the hash of its bytes, and confirmed by the bytes themselves: those in the
//! table, or for a long prefix those in the directory's own entry. It is valid for the *version of
//! paths* under which it was found. The version changes whenever a directory is moved or removed,
//! or may be searched by fewer users ([`crate::namespace::common::changing`]). So a valid prefix
//! leads to the directory that a walk by components would find, through directories that everybody
//! may search. The permissions of single users are not remembered.
//!
//! A path that ends in a slash is a prefix itself. So an operation that creates a file by its path
//! finds the directory, and changes there what it would have changed after a walk.
//!
//! The table is a hint, with two prefixes a row; a newer one displaces an older one. No other
//! change makes it wrong:
//! * **Entries** move when areas come and go, and their slots are reused. The table holds no
//!   location of an entry. For a long prefix the directory's inode is asked for the location each
//!   time; those slots are not reused before the operation ends, and no such move changes a
//!   directory's path from the root.
//! * **Cachelets** are evicted, and then belong to other files. The table names the inode, and the
//!   cachelet that it had. The cachelet itself shows whether it still belongs to the inode
//!   ([`Core::is_known_for`]). If not, the inode's word leads to the cachelet, as in any other
//!   lookup.
//! * **Inodes** are reused after their directory was removed, which changes the version. An
//!   operation that loaded a version may use, until it ends, everything that is valid for this
//!   version.
//! * **Two writers of one location**: a writer first makes the prefix's *turn* odd. A reader that
//!   finds it odd, or changed, has found nothing. Nobody waits, because the other prefix is as good
//!   a hint. The arena belongs to one process; if several shared it, one that died would leave the
//!   location unused.

use std::sync::atomic::Ordering;

use vellum_layout::{FileKind, Geometry, IdentityWord, PathEntryHead, ROOT_SLOT, long_name_hash};
use vellum_media::{LINE_BYTES, Memories, Memory, count};

use super::prefixes_at;
use crate::core::Core;
use crate::core::cachelet::Cachelet;
use crate::core::slots::Op;
use crate::error::Result;
use crate::namespace::Walked;
use crate::namespace::common::{has_byte, walk};

/// Size of a row of the table, and of a prefix in it, in bytes. A prefix is two lines, which
/// processors fetch together.
pub(super) const ROW_BYTES: u64 = 256;
const PREFIX_BYTES: u64 = 128;
/// Metadata slots for each row of the table.
const SLOTS_PER_ROW: u64 = 128;

/// Offset in a prefix of its turn: twice the number of its changes, odd during a change.
const TURN: u64 = 0;
/// Offset of the version of paths under which it is valid.
const VERSION: u64 = 8;
/// Offset of what it leads to: [`Leads`].
const LEADS: u64 = 16;
/// Offset of its bytes, or of the hash if there are too many.
const BYTES: u64 = 24;
/// Words that hold its bytes, ...
const KEPT_WORDS: usize = ((PREFIX_BYTES - BYTES) / 8) as usize;
/// ... and the number of them in the first line.
const FIRST_WORDS: usize = ((LINE_BYTES - BYTES) / 8) as usize;
/// Length of the longest prefix whose bytes are in the table.
const KEPT_MAX: usize = KEPT_WORDS * 8;

/// The target of a prefix: inode slot of the directory (bits 0..32), number of the cachelet that it
/// had, or 0 (32..52), length of the prefix (52..64).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Leads(u64);

impl Leads {
    /// Limit of a cachelet's number. Larger numbers are not recorded.
    const CACHELET_MAX: u64 = 0xF_FFFF;

    fn new(prefix: Prefix<'_>, ino: u64, dir: Cachelet) -> Self {
        let told = match u64::from(dir.0) {
            number @ 0..=Self::CACHELET_MAX => number,
            _ => 0,
        };
        Self((prefix.bytes.len() as u64) << 52 | told << 32 | ino)
    }

    fn ino(self) -> u64 {
        self.0 & 0xFFFF_FFFF
    }

    fn cachelet(self) -> Cachelet {
        Cachelet((self.0 >> 32 & Self::CACHELET_MAX) as u32)
    }

    fn len(self) -> u64 {
        self.0 >> 52
    }
}

/// The beginning of a path.
#[derive(Clone, Copy)]
struct Prefix<'p> {
    bytes: &'p [u8],
    hash: u64,
}

impl<'p> Prefix<'p> {
    fn new(seed: u64, bytes: &'p [u8]) -> Self {
        let hash = long_name_hash(seed, bytes);
        Self { bytes, hash }
    }

    /// Whether its bytes do not fit into the table.
    fn is_long(self) -> bool {
        self.bytes.len() > KEPT_MAX
    }

    /// Whether `is_so` holds for each of its words in the table, with the word's index. The last
    /// word holds the last eight bytes, so two prefixes of the same length have the same words only
    /// if they have the same bytes.
    #[inline(always)]
    fn all_words(self, mut is_so: impl FnMut(usize, u64) -> bool) -> bool {
        if self.is_long() {
            return is_so(0, self.hash);
        }
        let (whole, rest) = self.bytes.as_chunks::<8>();
        let last = || match self.bytes.last_chunk() {
            Some(last) => u64::from_le_bytes(*last),
            None => rest
                .iter()
                .fold(0, |word, &byte| word << 8 | u64::from(byte)),
        };
        let mut words = whole
            .iter()
            .map(|bytes| u64::from_le_bytes(*bytes))
            .enumerate();
        words.all(|(at, word)| is_so(at, word)) && (rest.is_empty() || is_so(whole.len(), last()))
    }
}

/// Number of rows of the table.
fn rows(geometry: &Geometry) -> u64 {
    (geometry.region_slots() / SLOTS_PER_ROW)
        .next_power_of_two()
        .max(16)
}

/// Size of the table in bytes.
pub(super) fn bytes(geometry: &Geometry) -> u64 {
    rows(geometry) * ROW_BYTES
}

/// Whether everybody may search the directory. A list may forbid it to some whom the permission
/// bits permit it.
fn is_searchable(identity: IdentityWord) -> bool {
    const SEARCH: u16 = 0o111;
    identity.mode() & SEARCH == SEARCH && !identity.has(IdentityWord::ACCESS_LIST)
}

/// Splits a path from the root into a prefix of at least two components and a plain name behind it.
/// If the path ends in a slash, all of it is the prefix and there is no name.
fn split(path: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let first = path.iter().position(|&byte| byte != b'/')?;
    let last = path.iter().rposition(|&byte| byte == b'/')?;
    let (end, name) = match &path[last + 1..] {
        b"." | b".." => return None,
        b"" => (path.iter().rposition(|&byte| byte != b'/')? + 1, None),
        name => (last, Some(name)),
    };
    let prefix = path.get(first..end)?;
    has_byte(prefix, b'/').then_some((prefix, name))
}

impl<M: Memories> Core<M> {
    /// Arena offsets of the two locations that a prefix may have.
    fn prefix_places(&self, prefix: Prefix<'_>) -> [u64; 2] {
        let row = prefix.hash & (rows(&self.geometry) - 1);
        let at = self.map.namespace + prefixes_at(&self.geometry) + row * ROW_BYTES;
        [at, at + PREFIX_BYTES]
    }

    /// The target of a prefix under this version, if it is at this location.
    #[inline]
    fn prefix_in(&self, place: u64, prefix: Prefix<'_>, version: u64) -> Option<Leads> {
        let turn = || self.arena.load(place + TURN, Ordering::Acquire);
        let before = turn();
        // Loads a whole line, because each load checks bounds.
        let first = self.arena.load_line(place);
        let leads = Leads(first[LEADS as usize / 8]);
        if leads.len() != prefix.bytes.len() as u64 || first[VERSION as usize / 8] != version {
            return None;
        }
        let mut kept = [0; KEPT_WORDS];
        kept[..FIRST_WORDS].copy_from_slice(&first[BYTES as usize / 8..]);
        if prefix.bytes.len() > FIRST_WORDS * 8 {
            kept[FIRST_WORDS..].copy_from_slice(&self.arena.load_line(place + LINE_BYTES));
        }
        // The second load of the turn comes after everything that it vouches for.
        self.arena.load_barrier();
        let is_whole = before.is_multiple_of(2) && turn() == before;
        (is_whole && prefix.all_words(|at, word| kept[at] == word)).then_some(leads)
    }

    /// As [`Self::prefix_in`], in both locations of the prefix.
    #[inline]
    fn find_prefix(&self, prefix: Prefix<'_>, version: u64) -> Option<Leads> {
        let [first, second] = self.prefix_places(prefix);
        self.prefix_in(first, prefix, version)
            .or_else(|| self.prefix_in(second, prefix, version))
    }

    /// Stores a prefix over one of another version, or over either of the two. Does nothing if
    /// somebody else is writing there.
    fn keep_prefix(&self, prefix: Prefix<'_>, leads: Leads, version: u64) {
        let places = self.prefix_places(prefix);
        let load = |at| self.arena.load(at, Ordering::Acquire);
        let is_old = |&place: &u64| load(place + VERSION) != version;
        let either = places[usize::from(prefix.hash >> 63 == 1)];
        let place = places.into_iter().find(is_old).unwrap_or(either);
        let turn = load(place + TURN);
        let taken = |turn| {
            self.arena
                .compare_exchange(place + TURN, turn, turn + 1)
                .is_ok()
        };
        if !(turn.is_multiple_of(2) && taken(turn)) {
            return;
        }
        let store = |at, word| self.arena.store(place + at, word, Ordering::Release);
        store(VERSION, version);
        store(LEADS, leads.0);
        prefix.all_words(|at, word| {
            store(BYTES + 8 * at as u64, word);
            true
        });
        store(TURN, turn + 2);
    }

    /// Whether this path from the root leads to the directory with inode `dir`. The directory's own
    /// entry holds the last part of its path, and the roots of areas above hold the rest.
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

    /// The area of a directory's own entry, and the part of `path` in front of the path in that
    /// entry.
    fn without_own_path<'p>(&self, dir: u64, path: &'p [u8]) -> Option<(u32, &'p [u8])> {
        let entry = self.place_of_directory(dir).entry();
        if !self.geometry.has_slot(entry) {
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
    /// The directory that a prefix leads to under this version, if the table knows it.
    fn directory_at(&self, prefix: Prefix<'_>, version: u64) -> Option<Cachelet> {
        let core = self.core;
        count::probe();
        let leads = core.find_prefix(prefix, version)?;
        let (ino, told) = (leads.ino(), leads.cachelet());
        if prefix.is_long() {
            count::probe();
            if !core.is_own_path(ino, prefix.bytes) {
                return None;
            }
        }
        // The directory was not removed before this operation began, so its inode is not reused
        // before the operation ends.
        if core.is_known_for(told, ino) {
            return Some(told);
        }
        core.load_cachelet(self, ino).ok()
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
    let prefix = Prefix::new(core.seed, prefix);
    if let Some(dir) = op.directory_at(prefix, version) {
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
        is_open &= is_searchable(core.identity(dir));
        enter(dir)
    };
    let walked = walk::walk(op, start, path, &mut enter, lookup)?;
    let dir = if name.is_some() {
        walked.parent
    } else {
        walked.at
    };
    let identity = core.identity(dir);
    // A walk does not enter the directory at the end of a path with a trailing slash, so its mode
    // was not checked.
    is_open &= identity.kind() == Some(FileKind::Directory) && is_searchable(identity);
    let ino = core.ino(dir);
    if is_open
        && walked.used == path.len()
        && core.is_own_path(ino, prefix.bytes)
        && core.version_of_paths() == Some(version)
    {
        core.keep_prefix(prefix, Leads::new(prefix, ino, dir), version);
    }
    Ok(walked)
}

#[cfg(test)]
mod tests {
    use vellum_layout::{MappingKind, NamespaceKind};
    use vellum_media::{HeapMemory, SimPool, Simulated};

    use super::*;
    use crate::checking::kernels::{Job, Stage};
    use crate::checking::loom_memory::{Swaps, check};
    use crate::checking::small_fs;

    /// Prefixes that differ in one word of two, with locations in one row.
    const BESIDE: [&[u8]; 3] = [b"a/directory", b"b/directory", b"c/directory"];
    const VERSION: u64 = 1 << 16;

    fn beside(index: usize) -> (Prefix<'static>, Leads) {
        let prefix = Prefix {
            bytes: BESIDE[index],
            hash: 5,
        };
        let leads = Leads::new(prefix, index as u64 + 100, Cachelet(index as u32 + 1));
        (prefix, leads)
    }

    fn keep(index: usize) -> Job {
        Box::new(move |stage: Stage| {
            let (prefix, leads) = beside(index);
            stage.core().keep_prefix(prefix, leads, VERSION);
        })
    }

    #[test]
    fn a_prefix_that_two_writers_displace_leads_to_its_target_or_nowhere() {
        check(1, Swaps::Plain, |known| {
            let kinds = (NamespaceKind::Adaptive, MappingKind::HashFs);
            let stage = Stage::new(known, kinds, Some(8));
            let find = |stage: &Stage, index| {
                let (prefix, leads) = beside(index);
                let found = stage.core().find_prefix(prefix, VERSION);
                assert!(found.is_none_or(|found| found == leads), "{found:?}");
                found
            };
            // Both locations of the row are used, and the first one may be displaced.
            for _ in 0..2 {
                keep(0)(stage.clone());
            }
            let look = Box::new(move |stage: Stage| {
                find(&stage, 1);
            });
            stage.together(vec![keep(1), keep(2), look]);
            assert!(find(&stage, 1).or(find(&stage, 2)).is_some());
            keep(2)(stage.clone());
            assert!(find(&stage, 2).is_some());
        });
    }

    #[test]
    fn prefixes_of_one_hash_and_length_are_told_apart() {
        let kinds = (NamespaceKind::Adaptive, MappingKind::HashFs);
        let fs = small_fs::<Simulated>(SimPool::new(1 << 20), HeapMemory::new, 2, kinds, None);
        let core = &fs.core;
        let (long, longest) = ([b'l'; 45], [b'l'; KEPT_MAX]);
        for bytes in [
            &b"a/b"[..],
            b"a/bcdef",
            b"a/bcdefg",
            b"a/bcdefgh",
            &long,
            &longest,
        ] {
            let find = |bytes: &[u8]| core.find_prefix(Prefix { bytes, hash: 5 }, VERSION);
            let prefix = Prefix { bytes, hash: 5 };
            let leads = Leads::new(prefix, 100, Cachelet(1));
            core.keep_prefix(prefix, leads, VERSION);
            assert_eq!(find(bytes), Some(leads));
            for at in 0..bytes.len() {
                let mut other = bytes.to_vec();
                other[at] ^= 1;
                assert_eq!(find(&other), None, "{at}");
            }
        }
        let bytes = &[b'l'; KEPT_MAX + 1];
        let prefix = |hash| Prefix { bytes, hash };
        let leads = Leads::new(prefix(5), 100, Cachelet(1));
        core.keep_prefix(prefix(5), leads, VERSION);
        assert!(prefix(5).is_long());
        assert_eq!(core.find_prefix(prefix(5), VERSION), Some(leads));
        let row_mates = prefix(5 + (1 << 40));
        assert_eq!(core.prefix_places(row_mates), core.prefix_places(prefix(5)));
        assert_eq!(core.find_prefix(row_mates, VERSION), None);
    }

    #[test]
    fn a_cachelet_number_that_does_not_fit_is_not_recorded() {
        let bytes = &[b'l'; 4095];
        let prefix = Prefix { bytes, hash: 5 };
        let last = Leads::CACHELET_MAX as u32;
        for (number, told) in [(1, 1), (last, last), (last + 1, 0), (u32::MAX, 0)] {
            let leads = Leads::new(prefix, u64::from(u32::MAX), Cachelet(number));
            let expected = (4095, Cachelet(told), u64::from(u32::MAX));
            assert_eq!((leads.len(), leads.cachelet(), leads.ino()), expected);
        }
    }

    #[test]
    fn only_paths_with_two_components_in_front_of_a_plain_name_or_the_end_are_split() {
        let name = Some(&b"c"[..]);
        assert_eq!(split(b"/a/b/c"), Some((&b"a/b"[..], name)));
        assert_eq!(split(b"//a/b/c"), Some((&b"a/b"[..], name)));
        for path in [&b"/a/b/"[..], b"a/b/", b"/a/b//"] {
            assert_eq!(split(path), Some((&b"a/b"[..], None)));
        }
        // A prefix that no entry's path equals is never kept.
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
