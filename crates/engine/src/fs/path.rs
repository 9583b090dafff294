//! Paths: `.`, `..`, symbolic links, limits, search permission.

use std::sync::Arc;

use vellum_layout::{FileKind, Inode, ROOT_SLOT, TEXT_MAX, text_check, text_home};
use vellum_media::{Memories, Memory};

use crate::core::Core;
use crate::core::cachelet::{Cachelet, field, flag};
use crate::core::slots::Op;
use crate::error::{Error, Location, Result};
use crate::fs::{Cred, Fs, Node};
use crate::namespace::common::has_byte;

/// Limit of the length of a path in bytes. Paths are shorter than this.
pub(crate) const PATH_MAX: usize = 4096;
/// Limit of the symbolic links that one resolution follows.
const LINKS_MAX: u32 = 40;

/// Whether a symbolic link at the end of a path is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Follow {
    Last,
    AllButLast,
}

/// A path up to its last component.
pub(crate) struct Parent<'p> {
    pub(crate) dir: Cachelet,
    /// The last component: a plain name, or `.` or `..`, or empty for the root itself.
    pub(crate) name: &'p [u8],
    /// The path ended in a slash, so it must name a directory.
    pub(crate) wants_dir: bool,
}

impl Parent<'_> {
    /// Whether the last component is a name that can be created or removed.
    pub(crate) fn is_plain(&self) -> bool {
        !matches!(self.name, b"" | b"." | b"..")
    }
}

impl<M: Memories> Fs<M> {
    /// Resolves a path from `start`, or from the root if it begins with a slash.
    pub(crate) fn resolve(
        &self,
        op: &Op<'_, M>,
        cred: &Cred,
        start: Cachelet,
        path: &[u8],
        follow: Follow,
    ) -> Result<Cachelet> {
        let mut links = 0;
        self.resolve_counting(op, cred, start, path, follow, &mut links)
    }

    fn resolve_counting(
        &self,
        op: &Op<'_, M>,
        cred: &Cred,
        start: Cachelet,
        path: &[u8],
        follow: Follow,
        links: &mut u32,
    ) -> Result<Cachelet> {
        check_path(path)?;
        let mut at = if path[0] == b'/' { self.root } else { start };
        let mut owned: Vec<u8>;
        let mut rest = path;
        loop {
            let mut enter = |dir| op.check_search(cred, dir);
            let walked = self.namespace.walk(op, at, rest, &mut enter)?;
            at = walked.at;
            let after = &rest[walked.used..];
            let wants_dir = rest.ends_with(b"/");
            if op.core.kind(at) == FileKind::Symlink && walked.at != walked.parent {
                let is_last = after.iter().all(|&b| b == b'/');
                if is_last && !wants_dir && follow == Follow::AllButLast {
                    return Ok(at);
                }
                follow_one(links)?;
                let mut target = self.read_text(op, at)?;
                target.extend_from_slice(after);
                at = if target[0] == b'/' {
                    self.root
                } else {
                    walked.parent
                };
                owned = target;
                rest = &owned;
                continue;
            }
            if after.is_empty() {
                if wants_dir && op.core.kind(at) != FileKind::Directory {
                    return Err(Error::NotDirectory);
                }
                return Ok(at);
            }
            let dots = if after.starts_with(b"..") { 2 } else { 1 };
            op.check_search(cred, at)?;
            if dots == 2 {
                at = self.parent_of(op, at)?;
            }
            rest = &after[dots..];
            if rest.is_empty() {
                return Ok(at);
            }
        }
    }

    /// Resolves all but the last component of a path. `links` counts the symbolic links followed.
    pub(crate) fn resolve_parent<'p>(
        &self,
        op: &Op<'_, M>,
        cred: &Cred,
        start: Cachelet,
        path: &'p [u8],
        links: &mut u32,
    ) -> Result<Parent<'p>> {
        check_path(path)?;
        let end = path.iter().rposition(|&b| b != b'/').map_or(0, |at| at + 1);
        let wants_dir = end < path.len();
        let cut = path[..end]
            .iter()
            .rposition(|&b| b == b'/')
            .map_or(0, |at| at + 1);
        let name = &path[cut..end];
        let dir = match &path[..cut] {
            b"" if path[0] == b'/' => self.root,
            b"" => start,
            prefix => self.resolve_counting(op, cred, start, prefix, Follow::Last, links)?,
        };
        // Without a name it is the root.
        if !name.is_empty() {
            op.check_search(cred, dir)?;
        }
        Ok(Parent {
            dir,
            name,
            wants_dir,
        })
    }

    /// The parent of a directory. The root is its own parent.
    pub(crate) fn parent_of(&self, op: &Op<'_, M>, dir: Cachelet) -> Result<Cachelet> {
        let core = op.core;
        if core.ino(dir) == ROOT_SLOT {
            return Ok(self.root);
        }
        // The inode number of a removed directory's parent may belong to another file by now.
        if core.has_flag(dir, flag::UNLINKED) {
            return Err(Error::NotFound);
        }
        core.load_cachelet(op, core.word(core.inode_at(dir) + Inode::PARENT))
    }

    /// The target of a symbolic link.
    pub(crate) fn read_text(&self, op: &Op<'_, M>, link: Cachelet) -> Result<Vec<u8>> {
        let core = op.core;
        let (size, root) = (core.get(link, field::SIZE), core.get(link, field::ROOT));
        let generation = core.identity(link).generation();
        core.text(core.ino(link), generation, size, root)
    }

    /// Resolves a path to a node.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let (fs, root, cred) = (pool.fs(), pool.fs().root(), vellum::Cred::root());
    /// let dir = fs.mkdir(&cred, &root, b"d", 0o755)?;
    /// fs.symlink(&cred, &dir, b"link", b"..")?;
    /// assert_eq!(fs.find(&cred, &dir, b"link/d", true)?.ino(), dir.ino());
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails as `open(2)` does for paths.
    pub fn find(
        self: &Arc<Self>,
        cred: &Cred,
        start: &Node<M>,
        path: &[u8],
        follow: bool,
    ) -> Result<Node<M>> {
        let follow = if follow {
            Follow::Last
        } else {
            Follow::AllButLast
        };
        self.with_op(|op| {
            let found = self.resolve(op, cred, start.cachelet, path, follow)?;
            Ok(Node::hold(self, found))
        })
    }

    /// Looks up one name in a directory, including `.` and `..`.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let (fs, root, cred) = (pool.fs(), pool.fs().root(), vellum::Cred::root());
    /// let dir = fs.mkdir(&cred, &root, b"d", 0o755)?;
    /// assert_eq!(fs.lookup(&cred, &root, b"d")?.ino(), dir.ino());
    /// assert_eq!(fs.lookup(&cred, &dir, b"..")?.ino(), root.ino());
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the name is not found or too long, `dir` is not a directory, or may not be
    /// searched.
    pub fn lookup(self: &Arc<Self>, cred: &Cred, dir: &Node<M>, name: &[u8]) -> Result<Node<M>> {
        self.with_op(|op| {
            op.check_search(cred, dir.cachelet)?;
            let found = match name {
                b"." => dir.cachelet,
                b".." => self.parent_of(op, dir.cachelet)?,
                _ => self.namespace.lookup(op, dir.cachelet, name)?,
            };
            Ok(Node::hold(self, found))
        })
    }

    /// The target of a symbolic link.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let (fs, root, cred) = (pool.fs(), pool.fs().root(), vellum::Cred::root());
    /// let link = fs.symlink(&cred, &root, b"link", b"target")?;
    /// assert_eq!(fs.read_link(&link)?, b"target");
    /// assert!(matches!(fs.read_link(&root), Err(vellum::Error::WrongKind)));
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::WrongKind`] if it is not a symbolic link.
    pub fn read_link(&self, link: &Node<M>) -> Result<Vec<u8>> {
        self.with_op(|op| {
            if op.core.kind(link.cachelet) != FileKind::Symlink {
                return Err(Error::WrongKind);
            }
            let text = self.read_text(op, link.cachelet)?;
            op.core.touch(link.cachelet, FileKind::Symlink);
            Ok(text)
        })
    }

    /// The absolute path of a directory, by walking up (DirectFS III-D, `getcwd`).
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let (fs, root, cred) = (pool.fs(), pool.fs().root(), vellum::Cred::root());
    /// let above = fs.mkdir(&cred, &root, b"a", 0o755)?;
    /// let dir = fs.mkdir(&cred, &above, b"b", 0o755)?;
    /// assert_eq!(fs.path_of(&dir)?, b"/a/b");
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotFound`] if the directory was removed.
    pub fn path_of(&self, dir: &Node<M>) -> Result<Vec<u8>> {
        self.with_op(|op| {
            let mut names = Vec::new();
            let mut at = dir.cachelet;
            while op.core.ino(at) != ROOT_SLOT {
                if names.len() as u64 > op.core.geometry.meta_slots() {
                    let place = Location::Inode(op.core.ino(at));
                    return Err(Error::damaged("directories form a circle", place));
                }
                let above = self.parent_of(op, at)?;
                names.push(self.namespace.name_of(op, above, at)?);
                at = above;
            }
            if names.is_empty() {
                return Ok(b"/".to_vec());
            }
            let mut path = Vec::new();
            for name in names.iter().rev() {
                path.push(b'/');
                path.extend_from_slice(name);
            }
            Ok(path)
        })
    }
}

impl<M: Memories> Core<M> {
    /// The target of the symbolic link `ino`, of `size` bytes at metadata slot `root`.
    pub(crate) fn text(&self, ino: u64, generation: u32, size: u64, root: u64) -> Result<Vec<u8>> {
        let damaged = || Error::damaged("symlink text", Location::Inode(ino));
        let len = usize::try_from(size).unwrap_or(usize::MAX);
        let (home, slots) = text_home(len);
        let fits = self.kind_of_slot(root) == Some(home) && root.is_multiple_of(slots);
        if !fits || !(1..=TEXT_MAX).contains(&len) {
            return Err(damaged());
        }
        let mut text = vec![0; len];
        self.pool.read(self.slot_at(root)?, &mut text);
        let check = self.word(self.geometry.slot_at(ino) + Inode::DETAIL);
        if check == text_check(ino, generation, &text) && !text.contains(&0) {
            Ok(text)
        } else {
            Err(damaged())
        }
    }
}

/// Counts one more followed symbolic link.
pub(crate) fn follow_one(links: &mut u32) -> Result<()> {
    *links += 1;
    if *links > LINKS_MAX {
        Err(Error::Loop)
    } else {
        Ok(())
    }
}

fn check_path(path: &[u8]) -> Result<()> {
    match path.len() {
        0 => Err(Error::NotFound),
        PATH_MAX.. => Err(Error::NameTooLong),
        _ if has_byte(path, 0) => Err(Error::Invalid("a path cannot contain a zero byte")),
        _ => Ok(()),
    }
}
