//! `vellum import`.

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::SeekFrom;
use rustix::io::Errno;
use vellum::media::Real;
use vellum::{Cred, Error, FileKind, Handle, Node, OpenOptions, RealFs, SetAttr, SetTime};
use vellum_terminal::progress::is_wanted;
use vellum_terminal::{Failure, Outcome, plain};

use super::progress::Progress;
use super::{Carried, Losses};
use crate::args::Import;
use crate::files::{PIECE_BYTES, write_all};
use crate::place;

/// Copies a tree into a pool.
pub(crate) fn run(args: &Import) -> Outcome {
    let from = args.dir.display();
    let source = std::fs::metadata(&args.dir).map_err(|e| Failure::io(&from, &e))?;
    if !source.is_dir() {
        return Err(Failure::usage(format!("{from} is no directory"))
            .advise(format!("vellum put {from} {}", args.place)));
    }
    let pool = args.place.open(&args.opening, false)?;
    let progress = Progress::new(args.printing, "imported");
    let done = import(args, &pool.fs(), &progress);
    let closed = place::close(pool, &args.place.pool);
    let (carried, losses) = done?;
    closed?;
    progress.report(carried, losses)
}

fn import(args: &Import, fs: &Arc<RealFs>, progress: &Progress) -> Outcome<(Carried, Losses)> {
    let total = if is_wanted(args.printing.hides_progress()) {
        bytes_below(&args.dir)
    } else {
        0
    };
    progress.begin(total);
    let cred = Cred::current();
    let target = make_target(args, fs, &cred)?;
    let mut importer = Importer {
        fs,
        cred,
        overwrite: args.overwrite,
        progress,
        carried: Carried::default(),
        losses: Losses::default(),
        known: HashMap::new(),
        buffer: vec![0; PIECE_BYTES],
    };
    importer.directory(&args.dir, &target);
    progress.finish();
    Ok((importer.carried, importer.losses))
}

/// The directory in the pool, made if it is missing.
fn make_target(args: &Import, fs: &Arc<RealFs>, cred: &Cred) -> Outcome<Node<Real>> {
    let place = &args.place;
    let mut at = fs.root();
    for part in place.path.components() {
        let std::path::Component::Normal(name) = part else {
            continue;
        };
        let next = match fs.lookup(cred, &at, name.as_bytes()) {
            Err(Error::NotFound) => {
                fs.mkdir(cred, &at, name.as_bytes(), 0o777 & !crate::files::umask())
            }
            found => found,
        };
        at = next.map_err(|e| place.failed(&e))?;
    }
    if at.kind() == FileKind::Directory {
        Ok(at)
    } else {
        Err(place.failed(&Error::NotDirectory))
    }
}

fn bytes_below(dir: &Path) -> u64 {
    let mut stack = vec![dir.to_owned()];
    let mut bytes = 0;
    while let Some(dir) = stack.pop() {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(found) if found.is_dir() => stack.push(entry.path()),
                Ok(found) if found.is_file() => bytes += found.len(),
                _ => {}
            }
        }
    }
    bytes
}

struct Importer<'a> {
    fs: &'a Arc<RealFs>,
    cred: Cred,
    overwrite: bool,
    progress: &'a Progress,
    carried: Carried,
    losses: Losses,
    /// Files with several names that were carried: by device and inode.
    known: HashMap<(u64, u64), Node<Real>>,
    buffer: Vec<u8>,
}

/// Work of a walk without recursion: attributes of a directory change when all is in it.
enum Step {
    Fill(PathBuf, Node<Real>),
    Finish(PathBuf, Node<Real>),
}

impl Importer<'_> {
    fn directory(&mut self, dir: &Path, target: &Node<Real>) {
        let mut steps = vec![Step::Fill(dir.to_owned(), target.clone())];
        while let Some(step) = steps.pop() {
            match step {
                Step::Fill(dir, target) => {
                    let below = self.fill(&dir, &target);
                    steps.push(Step::Finish(dir, target));
                    steps.extend(below);
                }
                Step::Finish(dir, target) => match std::fs::symlink_metadata(&dir) {
                    // The directory given may be a symbolic link itself.
                    Ok(found) if found.is_symlink() => {
                        if let Ok(found) = std::fs::metadata(&dir) {
                            self.attributes(&dir, &target, &found);
                        }
                    }
                    Ok(found) => self.attributes(&dir, &target, &found),
                    Err(error) => self.losses.add(dir.display(), plain(&error)),
                },
            }
        }
    }

    fn fill(&mut self, dir: &Path, target: &Node<Real>) -> Vec<Step> {
        let mut below = Vec::new();
        let entries = match std::fs::read_dir(dir) {
            Ok(entries) => entries,
            Err(error) => {
                self.losses.add(dir.display(), plain(&error));
                return below;
            }
        };
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    self.losses.add(dir.display(), plain(&error));
                    continue;
                }
            };
            let path = entry.path();
            match self.entry(&path, entry.file_name().as_bytes(), target) {
                Ok(Some(made)) => below.push(Step::Fill(path, made)),
                Ok(None) => {}
                Err(Trouble::Source(error)) => self.losses.add(path.display(), plain(&error)),
                Err(Trouble::Pool(error)) => self.losses.add(path.display(), error),
            }
            self.progress.show(self.carried);
        }
        below
    }

    /// Carries one entry; gives the directory that is still to be filled.
    fn entry(
        &mut self,
        path: &Path,
        name: &[u8],
        dir: &Node<Real>,
    ) -> Result<Option<Node<Real>>, Trouble> {
        let found = std::fs::symlink_metadata(path)?;
        let kind = kind_of(&found).ok_or(Error::Unsupported("this kind of file"))?;
        if kind == FileKind::Directory {
            return self.make_directory(name, dir).map(Some);
        }
        if self.overwrite {
            match self.fs.unlink(&self.cred, dir, name) {
                Ok(()) | Err(Error::NotFound) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let identity = (found.dev(), found.ino());
        let known = if found.nlink() > 1 {
            self.known.get(&identity).cloned()
        } else {
            None
        };
        if let Some(known) = known {
            self.fs.link(&self.cred, &known, dir, name)?;
            self.carried.files += 1;
            return Ok(None);
        }
        let node = self.make(path, name, dir, kind, &found)?;
        if found.nlink() > 1 {
            self.known.insert(identity, node.clone());
        }
        self.attributes(path, &node, &found);
        self.carried.files += 1;
        Ok(None)
    }

    fn make_directory(&mut self, name: &[u8], dir: &Node<Real>) -> Result<Node<Real>, Trouble> {
        // Open to its maker until it is full; the attributes follow.
        match self.fs.mkdir(&self.cred, dir, name, 0o700) {
            Err(Error::Exists) => {}
            made => {
                self.carried.files += 1;
                return Ok(made?);
            }
        }
        let there = self.fs.lookup(&self.cred, dir, name)?;
        if there.kind() == FileKind::Directory {
            Ok(there)
        } else {
            Err(Error::Exists.into())
        }
    }

    fn make(
        &mut self,
        path: &Path,
        name: &[u8],
        dir: &Node<Real>,
        kind: FileKind,
        found: &Metadata,
    ) -> Result<Node<Real>, Trouble> {
        match kind {
            FileKind::Symlink => {
                let target = std::fs::read_link(path)?;
                Ok(self
                    .fs
                    .symlink(&self.cred, dir, name, target.as_os_str().as_bytes())?)
            }
            FileKind::File => self.file(path, name, dir, found.len()),
            _ => Ok(self
                .fs
                .mknod(&self.cred, dir, name, kind, 0o600, found.rdev())?),
        }
    }

    fn file(
        &mut self,
        path: &Path,
        name: &[u8],
        dir: &Node<Real>,
        size: u64,
    ) -> Result<Node<Real>, Trouble> {
        let source = File::open(path)?;
        let options = OpenOptions {
            read: true,
            write: true,
            mode: 0o600,
            ..OpenOptions::default()
        };
        let handle = self.fs.create(&self.cred, dir, name, &options)?;
        let mut at = 0;
        while let Some((from, to)) = next_data(&source, at, size)? {
            self.copy(&source, &handle, from, to)?;
            at = to;
        }
        // A hole at the end.
        if handle.attr()?.size < size {
            handle.truncate(size)?;
        }
        Ok(handle.node().clone())
    }

    fn copy(
        &mut self,
        source: &File,
        handle: &Handle<Real>,
        from: u64,
        to: u64,
    ) -> Result<(), Trouble> {
        let mut at = from;
        while at < to {
            let want = self.buffer.len().min((to - at) as usize);
            let len = match source.read_at(&mut self.buffer[..want], at) {
                Ok(0) => break,
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            write_all(handle, at, &self.buffer[..len])?;
            at += len as u64;
            self.carried.bytes += len as u64;
            self.progress.show(self.carried);
        }
        Ok(())
    }

    /// Owner, permission bits and times, in this order: a new owner would drop set-id bits.
    fn attributes(&mut self, path: &Path, node: &Node<Real>, found: &Metadata) {
        let ns = |s: i64, ns: i64| SetTime::At(s.saturating_mul(1_000_000_000).saturating_add(ns));
        if self.cred.privileged {
            let owner = SetAttr {
                uid: Some(found.uid()),
                gid: Some(found.gid()),
                ..SetAttr::default()
            };
            if let Err(error) = self.fs.set_attr(&self.cred, node, &owner) {
                self.losses
                    .add(path.display(), format_args!("owner: {error}"));
            }
        }
        let set = SetAttr {
            mode: (!found.is_symlink()).then_some((found.mode() & 0o7777) as u16),
            atime: Some(ns(found.atime(), found.atime_nsec())),
            mtime: Some(ns(found.mtime(), found.mtime_nsec())),
            ..SetAttr::default()
        };
        if let Err(error) = self.fs.set_attr(&self.cred, node, &set) {
            self.losses
                .add(path.display(), format_args!("attributes: {error}"));
        }
        let mut names = [0; 4096];
        match rustix::fs::llistxattr(path, &mut names) {
            Ok(0) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
            Ok(_) | Err(Errno::RANGE) => {
                self.losses
                    .add(path.display(), "extended attributes are not carried");
            }
            Err(errno) => self.losses.add(path.display(), plain(&errno.into())),
        }
    }
}

/// What went wrong with one entry.
enum Trouble {
    Source(io::Error),
    Pool(Error),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Source(error)
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Pool(error)
    }
}

/// The next range of data at or after `at`; file systems that know no holes have one range.
fn next_data(file: &File, at: u64, size: u64) -> io::Result<Option<(u64, u64)>> {
    if at >= size {
        return Ok(None);
    }
    let from = match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(from) => from,
        Err(Errno::NXIO) => return Ok(None),
        Err(Errno::INVAL) => return Ok(Some((at, size))),
        Err(errno) => return Err(errno.into()),
    };
    let to = rustix::fs::seek(file, SeekFrom::Hole(from)).unwrap_or(size);
    Ok(Some((from, to)))
}

fn kind_of(found: &Metadata) -> Option<FileKind> {
    let kind = found.file_type();
    Some(match () {
        () if kind.is_file() => FileKind::File,
        () if kind.is_dir() => FileKind::Directory,
        () if kind.is_symlink() => FileKind::Symlink,
        () if kind.is_fifo() => FileKind::Fifo,
        () if kind.is_socket() => FileKind::Socket,
        () if kind.is_char_device() => FileKind::CharDevice,
        () if kind.is_block_device() => FileKind::BlockDevice,
        () => return None,
    })
}
