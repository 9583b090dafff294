//! Commands on files in a pool that is not mounted: `ls`, `stat`, `cat`, `put`, `get`, `mkdir`,
//! `rm`, `mv`.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use serde::Serialize;
use vellum::media::Real;
use vellum::{
    Attr, Cred, Error, FileFlags, FileKind, Handle, Node, OpenOptions, Pool, RealFs, RenameFlags,
    Volume,
};
use vellum_terminal::output::{print, print_json};
use vellum_terminal::{Failure, Outcome, quoted};

use crate::args::{Cat, Get, Ls, Mkdir, Mv, Opening, Put, Rm, Stat};
use crate::location::{self, PathInPool};
use crate::units::time;

/// The size of the copy buffer.
pub(crate) const PIECE_BYTES: usize = 1 << 20;

/// Opens the pool of `places`, runs a command, and closes the pool. Fails if the paths are in
/// different pools.
fn with_pool(
    places: &[&PathInPool],
    opening: &Opening,
    read_only: bool,
    run: impl FnOnce(&Session) -> Outcome,
) -> Outcome {
    let Some((first, others)) = places.split_first() else {
        return Err(Failure::usage("no path given"));
    };
    if let Some(other) = others.iter().find(|other| other.pool != first.pool) {
        return Err(
            Failure::usage(format!("{other} and {first} are in different pools"))
                .advise("`vellum cp` copies between pools"),
        );
    }
    if let Some(bare) = others
        .iter()
        .find(|other| other.path.as_os_str().is_empty())
    {
        return Err(Failure::usage(format!(
            "`{bare}` names no path: write POOL:/path"
        )));
    }
    let pool = first.open(opening, read_only)?;
    let done = run(&Session::new(&pool));
    let closed = location::close(pool, &first.pool);
    done.and(closed)
}

/// An open pool, and the user of the command.
struct Session {
    fs: Arc<RealFs>,
    volume: Volume,
    cred: Cred,
}

impl Session {
    fn new(pool: &Pool) -> Self {
        let cred = user();
        Self {
            fs: pool.fs(),
            volume: pool.volume().with_umask(cred.umask),
            cred,
        }
    }

    fn find(&self, place: &PathInPool, follow: bool) -> Outcome<Node<Real>> {
        let root = self.fs.root();
        self.fs
            .find(&self.cred, &root, place.bytes(), follow)
            .map_err(|e| place.failed(&e))
    }

    fn attr(&self, place: &PathInPool, follow: bool) -> Outcome<Attr> {
        let node = self.find(place, follow)?;
        self.fs.attr(&node).map_err(|e| place.failed(&e))
    }

    fn open(&self, place: &PathInPool, options: &OpenOptions) -> Outcome<Handle<Real>> {
        let root = self.fs.root();
        self.fs
            .open(&self.cred, &root, place.bytes(), options)
            .map_err(|e| place.failed(&e))
    }

    /// The path itself, or `name` inside it if it is a directory.
    fn in_directory(&self, place: &PathInPool, name: Option<&OsStr>) -> Outcome<PathInPool> {
        let is_dir = match self.volume.metadata(&place.path) {
            Ok(attr) => attr.file_type().kind() == FileKind::Directory,
            Err(_) => place.bytes().ends_with(b"/"),
        };
        match name {
            _ if !is_dir => Ok(place.clone()),
            Some(name) => Ok(place.with_path(place.path.join(name))),
            None => Err(Failure::usage(format!(
                "{place} is a directory: add a name"
            ))),
        }
    }
}

/// The user of this process, with its umask. The system call can only read that by setting it.
pub(crate) fn user() -> Cred {
    let old = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(old);
    Cred {
        umask: (old.bits() & 0o777) as u16,
        ..Cred::current()
    }
}

/// The names in a list as `listxattr(2)` returns it, a zero byte behind each.
pub(crate) fn names_in(list: &[u8]) -> Vec<Vec<u8>> {
    let names = list.split(|byte| *byte == 0);
    names
        .filter(|name| !name.is_empty())
        .map(<[u8]>::to_vec)
        .collect()
}

/// A file in JSON.
#[derive(Serialize)]
struct Told<'a> {
    name: String,
    kind: &'a str,
    ino: u64,
    generation: u32,
    mode: String,
    nlink: u32,
    uid: u32,
    gid: u32,
    size_bytes: u64,
    allocated_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<[u32; 2]>,
    atime_ns: i64,
    mtime_ns: i64,
    ctime_ns: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    /// The names of the extended attributes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    xattrs: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    flags: Vec<&'static str>,
    /// The project id.
    #[serde(skip_serializing_if = "is_zero")]
    project: u32,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn flag_names(flags: FileFlags) -> Vec<&'static str> {
    let all = [
        (FileFlags::IMMUTABLE, "immutable"),
        (FileFlags::APPEND_ONLY, "append only"),
        (FileFlags::NO_DUMP, "no dump"),
        (FileFlags::NO_ATIME, "no atime"),
        (FileFlags::PROJECT_INHERIT, "project inherit"),
    ];
    let set = all.iter().filter(|(flag, _)| flags.contains(*flag));
    set.map(|(_, name)| *name).collect()
}

impl Told<'_> {
    /// The mark behind the mode of a file with an access control list.
    fn mark(&self) -> &'static str {
        let is_list = |name: &String| name.starts_with("system.posix_acl_");
        match self.xattrs.iter().any(is_list) {
            true => "+",
            false => "",
        }
    }
}

impl Session {
    fn told(&self, name: &[u8], attr: &Attr, node: &Node<Real>) -> Outcome<Told<'static>> {
        let is_device = matches!(attr.kind, FileKind::CharDevice | FileKind::BlockDevice);
        let target = match attr.kind {
            FileKind::Symlink => {
                let target = self.fs.read_link(node);
                Some(target.map_err(|e| Failure::at(String::from_utf8_lossy(name), &e))?)
            }
            _ => None,
        };
        let xattrs = self.fs.xattrs(&self.cred, node);
        let xattrs = xattrs.map_err(|e| Failure::at(String::from_utf8_lossy(name), &e))?;
        let xattrs = names_in(&xattrs);
        let project = self.fs.project(node);
        Ok(Told {
            name: String::from_utf8_lossy(name).into_owned(),
            kind: kind_name(attr.kind),
            ino: attr.ino,
            generation: attr.generation,
            mode: format!("{:04o}", attr.mode),
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            size_bytes: attr.size,
            allocated_bytes: attr.blocks_512 * 512,
            device: is_device.then(|| {
                [
                    rustix::fs::major(attr.device),
                    rustix::fs::minor(attr.device),
                ]
            }),
            atime_ns: attr.atime_ns,
            mtime_ns: attr.mtime_ns,
            ctime_ns: attr.ctime_ns,
            target: target.map(|target| String::from_utf8_lossy(&target).into_owned()),
            xattrs: xattrs
                .iter()
                .map(|name| String::from_utf8_lossy(name).into_owned())
                .collect(),
            flags: flag_names(node.flags()),
            project: project.map_err(|e| Failure::at(String::from_utf8_lossy(name), &e))?,
        })
    }
}

fn kind_name(kind: FileKind) -> &'static str {
    match kind {
        FileKind::File => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
        FileKind::CharDevice => "character device",
        FileKind::BlockDevice => "block device",
    }
}

/// `-rwxr-xr-x`.
fn mode_text(kind: FileKind, mode: u16) -> String {
    let letter = match kind {
        FileKind::File => '-',
        FileKind::Directory => 'd',
        FileKind::Symlink => 'l',
        FileKind::Fifo => 'p',
        FileKind::Socket => 's',
        FileKind::CharDevice => 'c',
        FileKind::BlockDevice => 'b',
    };
    let mut text = String::from(letter);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (bits & 1 != 0, mode & special != 0) {
            (true, false) => 'x',
            (true, true) => letter,
            (false, true) => letter.to_ascii_uppercase(),
            (false, false) => '-',
        });
    }
    text
}

/// `vellum ls`.
pub(crate) fn ls(args: &Ls) -> Outcome {
    let places: Vec<&PathInPool> = args.places.iter().collect();
    with_pool(&places, &args.opening, true, |session| {
        let mut told = Vec::new();
        for place in &places {
            let heading = places.len() > 1 && !args.printing.json;
            told.extend(list(session, place, args, heading)?);
        }
        if args.printing.json {
            print_json(&told)
        } else {
            Ok(())
        }
    })
}

fn list(
    session: &Session,
    place: &PathInPool,
    args: &Ls,
    heading: bool,
) -> Outcome<Vec<Told<'static>>> {
    let node = session.find(place, true)?;
    let mut names: Vec<Vec<u8>> = Vec::new();
    if node.kind() == FileKind::Directory {
        let entries = session
            .volume
            .read_dir(&place.path)
            .map_err(|e| place.failed(&e))?;
        for entry in entries {
            let name = entry.map_err(|e| place.failed(&e))?.name().to_owned();
            if args.all || !name.as_bytes().starts_with(b".") {
                names.push(name.as_bytes().to_vec());
            }
        }
        names.sort();
    }
    let mut told = Vec::new();
    let mut text = Vec::new();
    if heading {
        text.extend_from_slice(format!("{place}:\n").as_bytes());
    }
    let mut one = |name: &[u8], node: &Node<Real>| -> Outcome {
        let attr = session.fs.attr(node).map_err(|e| place.failed(&e))?;
        let file = session.told(name, &attr, node)?;
        if args.long {
            text.extend_from_slice(long_line(&attr, &file).as_bytes());
        }
        text.extend_from_slice(name);
        if let Some(target) = file.target.as_ref().filter(|_| args.long) {
            text.extend_from_slice(format!(" -> {target}").as_bytes());
        }
        text.push(b'\n');
        told.push(file);
        Ok(())
    };
    if node.kind() == FileKind::Directory {
        for name in &names {
            match session.fs.lookup(&session.cred, &node, name) {
                Ok(found) => one(name, &found)?,
                Err(error) => {
                    let path = place.path.join(OsStr::from_bytes(name));
                    return Err(place.with_path(path).failed(&error));
                }
            }
        }
    } else {
        one(place.bytes(), &session.find(place, false)?)?;
    }
    if !args.printing.json {
        print(&text)?;
    }
    Ok(told)
}

fn long_line(attr: &Attr, file: &Told<'_>) -> String {
    let size = match file.device {
        Some([major, minor]) => format!("{major}, {minor}"),
        None => attr.size.to_string(),
    };
    format!(
        "{}{:1} {:>3} {:>5} {:>5} {:>12} {} ",
        mode_text(attr.kind, attr.mode),
        file.mark(),
        attr.nlink,
        attr.uid,
        attr.gid,
        size,
        time(attr.mtime_ns)
    )
}

/// `vellum stat`.
pub(crate) fn stat(args: &Stat) -> Outcome {
    let places: Vec<&PathInPool> = args.places.iter().collect();
    with_pool(&places, &args.opening, true, |session| {
        let mut all = Vec::new();
        for place in &places {
            let node = session.find(place, args.dereference)?;
            let attr = session.fs.attr(&node).map_err(|e| place.failed(&e))?;
            let told = session.told(place.bytes(), &attr, &node)?;
            if !args.printing.json {
                print(stat_text(place, &attr, &told).as_bytes())?;
            }
            all.push(told);
        }
        if args.printing.json {
            print_json(&all)
        } else {
            Ok(())
        }
    })
}

fn stat_text(place: &PathInPool, attr: &Attr, told: &Told<'_>) -> String {
    let arrow = told
        .target
        .as_ref()
        .map(|target| format!(" -> {target}"))
        .unwrap_or_default();
    let device = told
        .device
        .map(|[major, minor]| format!(", device {major}, {minor}"));
    let flags = match &told.flags[..] {
        [] => String::new(),
        flags => format!("flags   {}\n", flags.join(", ")),
    };
    let project = match told.project {
        0 => String::new(),
        project => format!("project {project}\n"),
    };
    format!(
        "file    {}{arrow}\nkind    {}{}\nsize    {} bytes, {} bytes allocated\n\
         inode   {} generation {}, {} links\nmode    {} {}{}\nowner   {} group {}\n\
         {flags}{project}access  {}\nmodify  {}\nchange  {}\n",
        place.path.display(),
        told.kind,
        device.unwrap_or_default(),
        attr.size,
        told.allocated_bytes,
        attr.ino,
        attr.generation,
        attr.nlink,
        told.mode,
        mode_text(attr.kind, attr.mode),
        told.mark(),
        attr.uid,
        attr.gid,
        time(attr.atime_ns),
        time(attr.mtime_ns),
        time(attr.ctime_ns),
    )
}

/// `vellum cat`.
pub(crate) fn cat(args: &Cat) -> Outcome {
    let places: Vec<&PathInPool> = args.places.iter().collect();
    with_pool(&places, &args.opening, true, |session| {
        for place in &places {
            let options = OpenOptions::new().read(true);
            let handle = session.open(place, &options)?;
            match copy_out(&handle, place, &mut io::stdout().lock()) {
                Err(Some(failure)) => return Err(failure),
                // The reader has closed the pipe.
                Err(None) => return Ok(()),
                Ok(()) => {}
            }
        }
        print(b"")
    })
}

/// Copies a file's bytes to `out`. An error of `None` means that the reader has closed the pipe.
fn copy_out(
    handle: &Handle<Real>,
    place: &PathInPool,
    to: &mut dyn Write,
) -> Result<(), Option<Failure>> {
    let mut buffer = vec![0; PIECE_BYTES];
    let mut at = 0;
    loop {
        let len = handle
            .read_at(at, &mut buffer)
            .map_err(|e| place.failed(&e))?;
        if len == 0 {
            return Ok(());
        }
        match to.write_all(&buffer[..len]) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Err(None),
            Err(error) => return Err(Some(Failure::io("writing", &error))),
        }
        at += len as u64;
    }
}

/// `vellum put`.
pub(crate) fn put(args: &Put) -> Outcome {
    let from_stdin = args.file == Path::new("-");
    let mut source: Box<dyn Read> = if from_stdin {
        Box::new(io::stdin())
    } else {
        let open = File::open(&args.file).and_then(|file| {
            if file.metadata()?.is_dir() {
                return Err(io::ErrorKind::IsADirectory.into());
            }
            Ok(file)
        });
        Box::new(open.map_err(|e| Failure::io(args.file.display(), &e))?)
    };
    with_pool(&[&args.place], &args.opening, false, |session| {
        let name = args.file.file_name().filter(|_| !from_stdin);
        let place = session.in_directory(&args.place, name)?;
        let options = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o666);
        let handle = session.open(&place, &options)?;
        let mut buffer = vec![0; PIECE_BYTES];
        let mut at = 0;
        loop {
            let len = match source.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(Failure::io(args.file.display(), &error)),
            };
            write_all(&handle, at, &buffer[..len]).map_err(|e| place.failed(&e))?;
            at += len as u64;
        }
    })
}

/// Writes all of `data`.
pub(crate) fn write_all(handle: &Handle<Real>, at: u64, data: &[u8]) -> vellum::Result<()> {
    let mut done = 0;
    while done < data.len() {
        match handle.write_at(at + done as u64, &data[done..])? {
            0 => return Err(Error::Io(io::ErrorKind::WriteZero.into())),
            len => done += len,
        }
    }
    Ok(())
}

/// `vellum get`.
pub(crate) fn get(args: &Get) -> Outcome {
    with_pool(&[&args.place], &args.opening, true, |session| {
        let place = &args.place;
        if session.attr(place, true)?.kind == FileKind::Directory {
            return Err(
                Failure::new(format!("{place} is a directory")).advise(format!(
                    "vellum export {} {}",
                    quoted(place.to_string()),
                    quoted(&args.file)
                )),
            );
        }
        let handle = session.open(place, &OpenOptions::new().read(true))?;
        if args.file == Path::new("-") {
            return match copy_out(&handle, place, &mut io::stdout().lock()) {
                Err(Some(failure)) => Err(failure),
                _ => Ok(()),
            };
        }
        let mut path = args.file.clone();
        if path.is_dir() {
            path.push(place.path.file_name().unwrap_or_else(|| OsStr::new("file")));
        }
        let mut file = File::create(&path).map_err(|e| Failure::io(path.display(), &e))?;
        match copy_out(&handle, place, &mut file) {
            Err(Some(failure)) => Err(failure),
            _ => Ok(()),
        }
    })
}

/// `vellum mkdir`.
pub(crate) fn mkdir(args: &Mkdir) -> Outcome {
    let places: Vec<&PathInPool> = args.places.iter().collect();
    with_pool(&places, &args.opening, false, |session| {
        for place in &places {
            if args.parents {
                session
                    .volume
                    .create_dir_all(&place.path)
                    .map_err(|e| place.failed(&e))?;
                if session.attr(place, true)?.kind != FileKind::Directory {
                    return Err(place.failed(&Error::NotDirectory));
                }
            } else {
                session
                    .volume
                    .create_dir(&place.path)
                    .map_err(|e| place.failed(&e))?;
            }
            if args.mode.is_some() {
                let set = vellum::SetAttr::new().mode(args.mode);
                session
                    .volume
                    .set_attr(&place.path, &set)
                    .map_err(|e| place.failed(&e))?;
            }
        }
        Ok(())
    })
}

/// `vellum rm`.
pub(crate) fn rm(args: &Rm) -> Outcome {
    let places: Vec<&PathInPool> = args.places.iter().collect();
    with_pool(&places, &args.opening, false, |session| {
        for place in &places {
            match remove(session, place, args.recursive) {
                Err((_, Error::NotFound)) if args.force => {}
                Err((place, Error::IsDirectory)) if !args.recursive => {
                    return Err(place
                        .failed(&Error::IsDirectory)
                        .advise(format!("vellum rm -r {}", quoted(place.to_string()))));
                }
                Err((place, error)) => return Err(place.failed(&error)),
                Ok(()) => {}
            }
        }
        Ok(())
    })
}

/// Removes a file, or a tree from its leaves up.
fn remove(
    session: &Session,
    place: &PathInPool,
    recursive: bool,
) -> Result<(), (PathInPool, Error)> {
    let at = |error| (place.clone(), error);
    if session
        .volume
        .symlink_metadata(&place.path)
        .map_err(at)?
        .file_type()
        .kind()
        != FileKind::Directory
    {
        return session.volume.remove_file(&place.path).map_err(at);
    }
    if !recursive {
        return Err(at(Error::IsDirectory));
    }
    // The root cannot be removed, only its contents.
    let mut stack = vec![(place.path.clone(), false)];
    while let Some((path, emptied)) = stack.pop() {
        let at = |error| (place.with_path(&path), error);
        if emptied {
            match session.volume.remove_dir(&path) {
                Err(Error::Busy) if path == Path::new("/") => {}
                done => done.map_err(at)?,
            }
            continue;
        }
        let entries = session.volume.read_dir(&path).map_err(at)?;
        let entries: Vec<_> = entries.collect::<Result<_, _>>().map_err(at)?;
        stack.push((path.clone(), true));
        for entry in entries {
            let below = path.join(entry.name());
            if entry.file_type().map_err(at)?.is_dir() {
                stack.push((below, false));
            } else {
                session
                    .volume
                    .remove_file(&below)
                    .map_err(|e| (place.with_path(&below), e))?;
            }
        }
    }
    Ok(())
}

/// `vellum mv`.
pub(crate) fn mv(args: &Mv) -> Outcome {
    with_pool(&[&args.from, &args.to], &args.opening, false, |session| {
        let to = session.in_directory(&args.to, args.from.path.file_name())?;
        let flags = if args.no_clobber {
            RenameFlags::NO_REPLACE
        } else {
            RenameFlags::empty()
        };
        let done = session.volume.rename_with(&args.from.path, &to.path, flags);
        done.map_err(|error| {
            Failure::at(
                format_args!("{} to {}", args.from, to.path.display()),
                &error,
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_in_letters() {
        assert_eq!(mode_text(FileKind::File, 0o644), "-rw-r--r--");
        assert_eq!(mode_text(FileKind::Directory, 0o1777), "drwxrwxrwt");
        assert_eq!(mode_text(FileKind::File, 0o6755), "-rwsr-sr-x");
        assert_eq!(mode_text(FileKind::File, 0o4644), "-rwSr--r--");
    }
}
