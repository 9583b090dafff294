//! A walk through a tree of files, for commands that look at each of them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::vec::IntoIter;

use vellum::Error;
use vellum_terminal::output::print;
use vellum_terminal::{Failure, Outcome};

use crate::transfer::host::as_of_pool;
use crate::transfer::tree::{Done, Meta, Tree, Trouble};

/// What a walk comes to.
pub(crate) enum Event<N> {
    Met(Met<N>),
    /// All files of a directory that was entered have been met.
    Left(PathBuf),
}

/// A file that a walk meets. A directory is entered then, unless it is too deep.
pub(crate) struct Met<N> {
    pub(crate) path: PathBuf,
    /// The number of directories of the walk that it is in.
    pub(crate) depth: usize,
    /// No file of its directory follows.
    pub(crate) is_last: bool,
    /// `None`: it could not be read.
    pub(crate) file: Option<(N, Meta)>,
    /// Why it, or some name in it, could not be read.
    pub(crate) trouble: Option<Trouble>,
}

/// Which files a walk meets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Which {
    /// Not those whose names begin with a dot.
    pub(crate) skips_hidden: bool,
    pub(crate) only_dirs: bool,
    /// Not deeper.
    pub(crate) depth_max: Option<usize>,
}

/// The files at and below a path. Those of a directory are in the order of their names.
pub(crate) struct Walk<'t, T: Tree> {
    tree: &'t T,
    which: Which,
    first: Option<Met<T::Node>>,
    /// The directories that were entered, and the names in them that follow.
    dirs: Vec<(PathBuf, T::Node, IntoIter<Vec<u8>>)>,
}

impl<'t, T: Tree> Walk<'t, T> {
    pub(crate) fn new(tree: &'t T, path: &Path, node: T::Node, which: Which) -> Done<Self> {
        let meta = tree.meta(&node)?;
        let mut walk = Self {
            tree,
            which,
            first: None,
            dirs: Vec::new(),
        };
        walk.first = Some(walk.meet(path.to_owned(), true, Ok((node, meta))));
        Ok(walk)
    }

    /// Does not enter the directory that was just met.
    pub(crate) fn leave_out(&mut self) {
        self.dirs.pop();
    }

    fn meet(&mut self, path: PathBuf, is_last: bool, found: Done<(T::Node, Meta)>) -> Met<T::Node> {
        let depth = self.dirs.len();
        let is_too_deep = self.which.depth_max.is_some_and(|max| depth >= max);
        let mut trouble = None;
        let file = match found {
            Ok((node, meta)) => {
                if meta.is_dir() && !is_too_deep {
                    let names = self.names(&node, &mut trouble);
                    self.dirs
                        .push((path.clone(), node.clone(), names.into_iter()));
                }
                Some((node, meta))
            }
            Err(unread) => {
                trouble = Some(unread);
                None
            }
        };
        Met {
            path,
            depth,
            is_last,
            file,
            trouble: trouble.map(as_of_pool),
        }
    }

    fn names(&self, dir: &T::Node, trouble: &mut Option<Trouble>) -> Vec<Vec<u8>> {
        let (mut names, lost) = match self.tree.names(dir) {
            Ok(listed) => listed,
            Err(unread) => (Vec::new(), Some(unread)),
        };
        *trouble = lost;
        let is_dir = |name: &[u8]| {
            let found = self.look_up(dir, name);
            found.map_or(true, |(_, meta)| meta.is_dir())
        };
        names.retain(|name| !(self.which.skips_hidden && name.starts_with(b".")));
        names.retain(|name| !self.which.only_dirs || is_dir(name));
        names.sort_unstable();
        names
    }

    fn look_up(&self, dir: &T::Node, name: &[u8]) -> Done<(T::Node, Meta)> {
        let node = self.tree.lookup(dir, name)?.ok_or(Error::NotFound)?;
        let meta = self.tree.meta(&node)?;
        Ok((node, meta))
    }
}

impl<T: Tree> Iterator for Walk<'_, T> {
    type Item = Event<T::Node>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(first) = self.first.take() {
            return Some(Event::Met(first));
        }
        let (path, dir, names) = self.dirs.last_mut()?;
        let Some(name) = names.next() else {
            let (path, ..) = self.dirs.pop()?;
            return Some(Event::Left(path));
        };
        let (is_last, dir) = (names.len() == 0, dir.clone());
        let path = path.join(OsStr::from_bytes(&name));
        let found = self.look_up(&dir, &name);
        Some(Event::Met(self.meet(path, is_last, found)))
    }
}

/// The output of a command, a piece at a time.
#[derive(Default)]
pub(crate) struct Text(Vec<u8>);

impl Text {
    /// Adds a line, and prints what has gathered.
    pub(crate) fn line(&mut self, parts: &[&[u8]]) -> Outcome {
        const PIECE_BYTES: usize = 64 << 10;
        parts.iter().for_each(|part| self.0.extend_from_slice(part));
        self.0.push(b'\n');
        match self.0.len() {
            ..PIECE_BYTES => Ok(()),
            _ => print(std::mem::take(&mut self.0)),
        }
    }

    pub(crate) fn end(self) -> Outcome {
        print(self.0)
    }
}

/// Fails if files, or names in directories, could not be read.
pub(crate) fn fail_if_unread(count: u64) -> Outcome {
    match count {
        0 => Ok(()),
        1 => Err(Failure::new("one file or directory could not be read")),
        _ => Err(Failure::new(format!(
            "{count} files or directories could not be read"
        ))),
    }
}
