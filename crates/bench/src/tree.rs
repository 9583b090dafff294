//! A source tree: random, or read from a directory.

use std::ffi::{CString, OsString};
use std::path::Path;

use crate::Result;
use crate::error::{Error, doing};
use crate::order::Numbers;
use crate::side::BLOCK;

/// The average number of files in a random directory, and the largest depth: about as in the
/// sources of a kernel.
const FILES_PER_DIR: usize = 15;
const DEPTH_MAX: usize = 8;
/// Sizes are drawn between these powers of two, evenly by their logarithm: half of the files have
/// less than 4 KiB.
const SIZE_POWERS: [f64; 2] = [8.0, 16.0];
/// The upper bound of the random numbers from which fractions are made.
const FINE: u64 = 1 << 32;

/// Directories in an order in which each follows the one that contains it. The first is the root,
/// whose path is empty.
pub(crate) struct Tree {
    pub(crate) dirs: Vec<Dir>,
}

#[derive(Default)]
pub(crate) struct Dir {
    /// The path below the root.
    path: String,
    depth: usize,
    /// Files in it.
    pub(crate) files: Vec<File>,
}

pub(crate) struct File {
    pub(crate) name: CString,
    pub(crate) bytes: usize,
}

impl Dir {
    fn below(&self, name: &str) -> Self {
        let path = match self.path.as_str() {
            "" => name.to_owned(),
            above => format!("{above}/{name}"),
        };
        Self {
            path,
            depth: self.depth + 1,
            files: Vec::new(),
        }
    }

    /// Its path, with the tree's root at `root`.
    pub(crate) fn path(&self, root: &str) -> String {
        match self.path.as_str() {
            "" => root.to_owned(),
            path => format!("{root}/{path}"),
        }
    }
}

impl Tree {
    /// The tree in a directory, or else a random one with this many files.
    pub(crate) fn of(dir: Option<&Path>, files: usize) -> Result<Self> {
        match dir {
            Some(dir) => Self::in_dir(dir),
            None => Ok(Self::drawn(files)),
        }
    }

    /// A note for the reader of what was measured with the tree [`of`](Self::of) this directory.
    pub(crate) fn note(&self, dir: Option<&Path>) -> String {
        let from = match dir {
            Some(dir) => format!("as in {}", dir.display()),
            None => "drawn".to_owned(),
        };
        let (dirs, files) = (self.dirs.len(), self.files().count());
        let mib = self.bytes() >> 20;
        format!("{files} files in {dirs} directories, {mib} MiB, {from}.")
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = &File> {
        self.dirs.iter().flat_map(|dir| &dir.files)
    }

    /// The number of files and directories.
    pub(crate) fn names(&self) -> usize {
        self.dirs.len() + self.files().count()
    }

    /// Bytes of all files, each rounded up to whole blocks.
    pub(crate) fn bytes(&self) -> u64 {
        let bytes = self.files().map(|file| file.bytes.next_multiple_of(BLOCK));
        bytes.sum::<usize>() as u64
    }

    pub(crate) fn drawn(files: usize) -> Self {
        let mut numbers = Numbers::new(71);
        let mut dirs = vec![Dir::default()];
        for dir in 1..files.div_ceil(FILES_PER_DIR) {
            let drawn = numbers.below(dir as u64) as usize;
            let above = if dirs[drawn].depth < DEPTH_MAX {
                drawn
            } else {
                0
            };
            dirs.push(dirs[above].below(&format!("dir-{dir}")));
        }
        let [least, most] = SIZE_POWERS;
        for file in 0..files {
            let part = numbers.below(FINE) as f64 / FINE as f64;
            let dir = numbers.below(dirs.len() as u64) as usize;
            dirs[dir].files.push(File {
                name: CString::new(format!("source-{file}.c")).unwrap_or_default(),
                bytes: (least + (most - least) * part).exp2() as usize,
            });
        }
        Self { dirs }
    }

    /// Writes its directories, and every `part`th file, below `root`. The content of a file says
    /// which one it is and what it is for.
    pub(crate) fn write(&self, root: &Path, part: usize) -> Result<()> {
        let mut number = 0;
        for dir in &self.dirs {
            let path = root.join(&dir.path);
            std::fs::create_dir_all(&path).map_err(doing("make a directory"))?;
            for file in &dir.files {
                if number % part == 0 {
                    let line = format!("file {number}, every {part}th\n");
                    let text = line.repeat(file.bytes.div_ceil(line.len()).max(1));
                    let path = path.join(file.name.to_string_lossy().as_ref());
                    std::fs::write(&path, text)
                        .map_err(doing(format!("write {}", path.display())))?;
                }
                number += 1;
            }
        }
        Ok(())
    }

    /// Reads names and sizes of directories and regular files; repositories are left out.
    fn in_dir(root: &Path) -> Result<Self> {
        let mut dirs = vec![Dir::default()];
        let mut at = 0;
        while at < dirs.len() {
            let path = root.join(&dirs[at].path);
            let failed = || doing(format!("look at {}", path.display()));
            for entry in std::fs::read_dir(&path).map_err(failed())? {
                let entry = entry.map_err(failed())?;
                let kind = entry.file_type().map_err(failed())?;
                let name = utf8(entry.file_name())?;
                if kind.is_dir() && name != ".git" {
                    dirs.push(dirs[at].below(&name));
                } else if kind.is_file() {
                    let bytes = entry.metadata().map_err(failed())?.len() as usize;
                    let name = CString::new(name).unwrap_or_default();
                    dirs[at].files.push(File { name, bytes });
                }
            }
            at += 1;
        }
        let tree = Self { dirs };
        if tree.files().next().is_none() {
            let text = format!("--tree: there are no files in {}", root.display());
            return Err(Error::Option(text));
        }
        Ok(tree)
    }
}

fn utf8(name: OsString) -> Result<String> {
    name.into_string().map_err(|name| {
        let name = name.display();
        Error::Option(format!("--tree: the name {name} is no UTF-8"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drawn_tree_has_directories_before_what_is_in_them() {
        let tree = Tree::drawn(3000);
        assert_eq!((tree.dirs.len(), tree.files().count()), (200, 3000));
        let paths: Vec<&str> = tree.dirs.iter().map(|dir| dir.path.as_str()).collect();
        for (at, path) in paths.iter().enumerate().skip(1) {
            let above = path.rsplit_once('/').map_or("", |(above, _)| above);
            assert!(paths[..at].contains(&above), "{path}");
            assert!(path.split('/').count() <= DEPTH_MAX);
        }
        let small = tree.files().filter(|file| file.bytes < BLOCK).count();
        assert!((1350..1650).contains(&small), "{small}");
    }

    #[test]
    fn a_tree_is_read_from_a_directory() {
        let dir = tempfile::tempdir().expect("a directory");
        for path in ["b/c", ".git"] {
            std::fs::create_dir_all(dir.path().join(path)).expect("made");
        }
        for (path, bytes) in [("a", 3), ("b/c/d", 5000), (".git/config", 9)] {
            std::fs::write(dir.path().join(path), vec![0; bytes]).expect("written");
        }
        let tree = Tree::in_dir(dir.path()).expect("a tree");
        let paths: Vec<String> = tree.dirs.iter().map(|dir| dir.path("root")).collect();
        assert_eq!(paths, ["root", "root/b", "root/b/c"]);
        let files: Vec<(&str, usize)> = tree
            .files()
            .map(|file| (file.name.to_str().expect("UTF-8"), file.bytes))
            .collect();
        assert_eq!(files, [("a", 3), ("d", 5000)]);
        assert_eq!((tree.names(), tree.bytes()), (5, 4096 + 8192));
        let empty = tempfile::tempdir().expect("a directory");
        assert!(Tree::in_dir(empty.path()).is_err());
    }
}
