//! `vellum export`.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps};
use vellum::media::Real;
use vellum::{Attr, Cred, Error, FileKind, ListPosition, Node, OpenOptions, RealFs};
use vellum_terminal::progress::is_wanted;
use vellum_terminal::{Failure, Outcome, plain};

use super::progress::Progress;
use super::{Carried, Losses};
use crate::args::Export;
use crate::files::PIECE_BYTES;
use crate::place;

/// Copies a tree out of a pool.
pub(crate) fn run(args: &Export) -> Outcome {
    let pool = args.place.open(&args.opening, true)?;
    let progress = Progress::new(args.printing, "exported");
    let done = export(args, &pool.fs(), &progress);
    let closed = place::close(pool, &args.place.pool);
    let (carried, losses) = done?;
    closed?;
    progress.report(carried, losses)
}

fn export(args: &Export, fs: &Arc<RealFs>, progress: &Progress) -> Outcome<(Carried, Losses)> {
    let place = &args.place;
    let cred = Cred::current();
    let root = fs.root();
    let from = fs
        .find(&cred, &root, place.bytes(), true)
        .map_err(|e| place.failed(&e))?;
    if from.kind() != FileKind::Directory {
        return Err(place
            .failed(&Error::NotDirectory)
            .advise(format!("vellum get {place} {}", args.dir.display())));
    }
    std::fs::create_dir_all(&args.dir).map_err(|e| Failure::io(args.dir.display(), &e))?;
    let stat = fs.stat_fs();
    // More than the tree can hold, if it is not the whole pool.
    let total = if is_wanted(args.printing.hides_progress()) {
        (stat.blocks - stat.blocks_free) * 4096
    } else {
        0
    };
    progress.begin(total);
    let mut exporter = Exporter {
        fs,
        cred,
        keep_owners: rustix::process::geteuid().is_root(),
        overwrite: args.overwrite,
        progress,
        carried: Carried::default(),
        losses: Losses::default(),
        known: HashMap::new(),
        buffer: vec![0; PIECE_BYTES],
    };
    exporter.directory(&from, &args.dir);
    progress.finish();
    Ok((exporter.carried, exporter.losses))
}

struct Exporter<'a> {
    fs: &'a Arc<RealFs>,
    cred: Cred,
    keep_owners: bool,
    overwrite: bool,
    progress: &'a Progress,
    carried: Carried,
    losses: Losses,
    /// Where files with several names went first.
    known: HashMap<u64, PathBuf>,
    buffer: Vec<u8>,
}

/// Work of a walk without recursion: attributes of a directory change when all is in it.
enum Step {
    Fill(Node<Real>, PathBuf),
    Finish(Node<Real>, PathBuf),
}

/// What went wrong with one entry.
enum Trouble {
    Target(io::Error),
    Pool(Error),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Target(error)
    }
}

impl From<rustix::io::Errno> for Trouble {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::Target(errno.into())
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Pool(error)
    }
}

impl Exporter<'_> {
    fn directory(&mut self, from: &Node<Real>, dir: &Path) {
        let mut steps = vec![Step::Fill(from.clone(), dir.to_owned())];
        while let Some(step) = steps.pop() {
            let (path, done) = match step {
                Step::Fill(node, path) => {
                    let below = self.fill(&node, &path);
                    let done = below.map(|below| {
                        steps.push(Step::Finish(node, path.clone()));
                        steps.extend(below);
                    });
                    (path, done)
                }
                Step::Finish(node, path) => {
                    let done = self.fs.attr(&node).map_err(Trouble::Pool);
                    let done = done.and_then(|attr| self.attributes(&path, &attr));
                    (path, done)
                }
            };
            self.note(&path, done);
        }
    }

    fn note(&mut self, path: &Path, done: Result<(), Trouble>) {
        match done {
            Ok(()) => {}
            Err(Trouble::Target(error)) => self.losses.add(path.display(), plain(&error)),
            Err(Trouble::Pool(error)) => self.losses.add(path.display(), error),
        }
    }

    fn fill(&mut self, from: &Node<Real>, dir: &Path) -> Result<Vec<Step>, Trouble> {
        let mut names = Vec::new();
        let listed = self
            .fs
            .list(from, 0, &mut ListPosition::default(), &mut |entry| {
                names.push(entry.name.to_vec());
                true
            });
        // Names that cannot be read; the others are carried.
        self.note(dir, listed.map_err(Trouble::Pool));
        let mut below = Vec::new();
        for name in names {
            let path = dir.join(OsStr::from_bytes(&name));
            let carried = self
                .fs
                .lookup(&self.cred, from, &name)
                .map_err(Trouble::Pool);
            let carried = carried.and_then(|node| self.entry(node, &path));
            match carried {
                Ok(step) => below.extend(step),
                Err(trouble) => self.note(&path, Err(trouble)),
            }
            self.progress.show(self.carried);
        }
        Ok(below)
    }

    fn entry(&mut self, node: Node<Real>, path: &Path) -> Result<Option<Step>, Trouble> {
        let attr = self.fs.attr(&node)?;
        self.carried.files += 1;
        if attr.kind == FileKind::Directory {
            match std::fs::create_dir(path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
                made => made?,
            }
            return Ok(Some(Step::Fill(node, path.to_owned())));
        }
        if self.overwrite {
            match std::fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
                _ => {}
            }
        }
        if attr.nlink > 1 {
            if let Some(first) = self.known.get(&attr.ino) {
                std::fs::hard_link(first, path)?;
                return Ok(None);
            }
            self.known.insert(attr.ino, path.to_owned());
        }
        match attr.kind {
            FileKind::Symlink => {
                let target = self.fs.read_link(&node)?;
                std::os::unix::fs::symlink(OsStr::from_bytes(&target), path)?;
            }
            FileKind::File => self.file(&node, path, attr.size)?,
            kind => {
                let mode = Mode::RUSR | Mode::WUSR;
                rustix::fs::mknodat(CWD, path, file_type(kind), mode, attr.device)?;
            }
        }
        self.attributes(path, &attr)?;
        Ok(None)
    }

    fn file(&mut self, node: &Node<Real>, path: &Path, size: u64) -> Result<(), Trouble> {
        let options = OpenOptions {
            read: true,
            no_atime: false,
            ..OpenOptions::default()
        };
        let handle = self.fs.open_node(&self.cred, node, &options)?;
        let file = File::create_new(path)?;
        file.set_len(size)?;
        let mut at = 0;
        loop {
            at = match handle.seek_data(at) {
                Ok(from) => from,
                Err(Error::NoData) => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            let to = handle.seek_hole(at)?;
            while at < to {
                let want = self.buffer.len().min((to - at) as usize);
                let len = handle.read_at(at, &mut self.buffer[..want])?;
                if len == 0 {
                    return Ok(());
                }
                file.write_all_at(&self.buffer[..len], at)?;
                at += len as u64;
                self.carried.bytes += len as u64;
                self.progress.show(self.carried);
            }
        }
    }

    /// Owner, permission bits and times, in this order: a new owner would drop set-id bits.
    fn attributes(&mut self, path: &Path, attr: &Attr) -> Result<(), Trouble> {
        if self.keep_owners {
            std::os::unix::fs::lchown(path, Some(attr.uid), Some(attr.gid))?;
        }
        if attr.kind != FileKind::Symlink {
            std::fs::set_permissions(path, Permissions::from_mode(u32::from(attr.mode)))?;
        }
        let times = Timestamps {
            last_access: timespec(attr.atime_ns),
            last_modification: timespec(attr.mtime_ns),
        };
        rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(())
    }
}

fn timespec(ns: i64) -> Timespec {
    Timespec {
        tv_sec: ns.div_euclid(1_000_000_000),
        tv_nsec: ns.rem_euclid(1_000_000_000),
    }
}

fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::File => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Fifo => FileType::Fifo,
        FileKind::Socket => FileType::Socket,
        FileKind::CharDevice => FileType::CharacterDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
    }
}
