//! Commands on files in a pool: `ls`, `stat`, `cat`, `put`, `get`, `mkdir`, `rm`, `mv`.

use std::ffi::OsStr;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::Serialize;
use vellum::media::Real;
use vellum::{Cred, Error, FileFlags, FileKind, Handle, RenameFlags};
use vellum_terminal::output::{print, print_json};
use vellum_terminal::{Failure, Outcome, quoted};

use crate::args::{Cat, Get, Ls, Mkdir, Mv, Opening, Put, Rm, Stat};
use crate::location::PathInPool;
use crate::transfer::tree::{Meta, Reader, Trouble};
use crate::units::time;
use crate::way::{Files, Found, Marks, Way};

/// The size of the copy buffer.
pub(crate) const PIECE_BYTES: usize = 1 << 20;

/// Runs a command on the pool of `places`. Fails if the paths are in different pools.
fn with_pool(
    places: &[&PathInPool],
    opening: &Opening,
    read_only: bool,
    run: impl FnOnce(&dyn Files) -> Outcome,
) -> Outcome {
    let way = way_to(places, opening, read_only)?;
    let done = run(way.files());
    done.and(way.close())
}

/// The way to the pool of `places`. Fails if the paths are in different pools.
pub(crate) fn way_to(places: &[&PathInPool], opening: &Opening, read_only: bool) -> Outcome<Way> {
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
    Way::to(first, opening, read_only)
}

/// The path itself, or `name` inside it if it is a directory.
fn in_directory(
    files: &dyn Files,
    place: &PathInPool,
    name: Option<&OsStr>,
) -> Outcome<PathInPool> {
    let is_dir = match files.find(&place.path, true) {
        Ok(found) => found.meta.is_dir(),
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
    #[serde(skip_serializing_if = "Option::is_none")]
    generation: Option<u32>,
    mode: String,
    nlink: u64,
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

fn told(name: &[u8], found: &Found, marks: &Marks) -> Told<'static> {
    let meta = &found.meta;
    let is_device = matches!(meta.kind, FileKind::CharDevice | FileKind::BlockDevice);
    let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
    Told {
        name: String::from_utf8_lossy(name).into_owned(),
        kind: kind_name(meta.kind),
        ino: meta.identity.1,
        generation: marks.generation,
        mode: format!("{:04o}", meta.mode),
        nlink: meta.links,
        uid: meta.uid,
        gid: meta.gid,
        size_bytes: meta.size,
        allocated_bytes: meta.allocated_bytes,
        device: is_device.then(|| {
            [
                rustix::fs::major(meta.device),
                rustix::fs::minor(meta.device),
            ]
        }),
        atime_ns: meta.atime_ns,
        mtime_ns: meta.mtime_ns,
        ctime_ns: meta.ctime_ns,
        target: found.target.as_ref().map(text),
        xattrs: found.xattrs.iter().map(text).collect(),
        flags: flag_names(marks.flags),
        project: marks.project,
    }
}

pub(crate) fn kind_name(kind: FileKind) -> &'static str {
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
    with_pool(&places, &args.opening, true, |files| {
        let mut told = Vec::new();
        for place in &places {
            let heading = places.len() > 1 && !args.printing.json;
            told.extend(list(files, place, args, heading)?);
        }
        if args.printing.json {
            print_json(&told)
        } else {
            Ok(())
        }
    })
}

fn list(
    files: &dyn Files,
    place: &PathInPool,
    args: &Ls,
    heading: bool,
) -> Outcome<Vec<Told<'static>>> {
    let mut told_all = Vec::new();
    let mut text = Vec::new();
    if heading {
        text.extend_from_slice(format!("{place}:\n").as_bytes());
    }
    let mut one = |name: &[u8], at: &Path| -> Outcome {
        if !args.long && !args.printing.json {
            text.extend_from_slice(name);
            text.push(b'\n');
            return Ok(());
        }
        let found = files.find(at, false);
        let found = found.map_err(|trouble| place.with_path(at).troubled(&trouble))?;
        let marks = match args.printing.json {
            true => files.marks(at, false),
            false => Ok(Marks::default()),
        };
        let marks = marks.map_err(|trouble| place.with_path(at).troubled(&trouble))?;
        let file = told(name, &found, &marks);
        if args.long {
            text.extend_from_slice(long_line(&found.meta, &file).as_bytes());
        }
        text.extend_from_slice(name);
        if let Some(target) = file.target.as_ref().filter(|_| args.long) {
            text.extend_from_slice(format!(" -> {target}").as_bytes());
        }
        text.push(b'\n');
        told_all.push(file);
        Ok(())
    };
    let listed = files.find(&place.path, true);
    let listed = listed.map_err(|trouble| place.troubled(&trouble))?;
    if listed.meta.is_dir() {
        let entries = files.entries(&place.path);
        let mut entries = entries.map_err(|trouble| place.troubled(&trouble))?;
        entries.retain(|(name, _)| args.all || !name.starts_with(b"."));
        entries.sort();
        for (name, _) in &entries {
            one(name, &place.path.join(OsStr::from_bytes(name)))?;
        }
    } else {
        one(place.bytes(), &place.path)?;
    }
    if !args.printing.json {
        print(&text)?;
    }
    Ok(told_all)
}

fn long_line(meta: &Meta, file: &Told<'_>) -> String {
    let size = match file.device {
        Some([major, minor]) => format!("{major}, {minor}"),
        None => meta.size.to_string(),
    };
    format!(
        "{}{:1} {:>3} {:>5} {:>5} {:>12} {} ",
        mode_text(meta.kind, meta.mode),
        file.mark(),
        meta.links,
        meta.uid,
        meta.gid,
        size,
        time(meta.mtime_ns)
    )
}

/// `vellum stat`.
pub(crate) fn stat(args: &Stat) -> Outcome {
    let places: Vec<&PathInPool> = args.places.iter().collect();
    with_pool(&places, &args.opening, true, |files| {
        let mut all = Vec::new();
        for place in &places {
            let found = files.find(&place.path, args.dereference);
            let found = found.map_err(|trouble| place.troubled(&trouble))?;
            let marks = files.marks(&place.path, args.dereference);
            let marks = marks.map_err(|trouble| place.troubled(&trouble))?;
            let told = told(place.bytes(), &found, &marks);
            if !args.printing.json {
                print(stat_text(place, &found.meta, &told).as_bytes())?;
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

fn stat_text(place: &PathInPool, meta: &Meta, told: &Told<'_>) -> String {
    let arrow = told
        .target
        .as_ref()
        .map(|target| format!(" -> {target}"))
        .unwrap_or_default();
    let device = told
        .device
        .map(|[major, minor]| format!(", device {major}, {minor}"));
    let generation = told.generation;
    let generation = generation.map_or_else(String::new, |number| format!(" generation {number}"));
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
         inode   {}{generation}, {} links\nmode    {} {}{}\nowner   {} group {}\n\
         {flags}{project}access  {}\nmodify  {}\nchange  {}\n",
        place.path.display(),
        told.kind,
        device.unwrap_or_default(),
        meta.size,
        told.allocated_bytes,
        told.ino,
        meta.links,
        told.mode,
        mode_text(meta.kind, meta.mode),
        told.mark(),
        meta.uid,
        meta.gid,
        time(meta.atime_ns),
        time(meta.mtime_ns),
        time(meta.ctime_ns),
    )
}

/// `vellum cat`.
pub(crate) fn cat(args: &Cat) -> Outcome {
    let places: Vec<&PathInPool> = args.places.iter().collect();
    with_pool(&places, &args.opening, true, |files| {
        for place in &places {
            let reader = files.open(&place.path);
            let reader = reader.map_err(|trouble| place.troubled(&trouble))?;
            match copy_out(&*reader, place, &mut io::stdout().lock()) {
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
    reader: &dyn Reader,
    place: &PathInPool,
    to: &mut dyn Write,
) -> Result<(), Option<Failure>> {
    let mut buffer = vec![0; PIECE_BYTES];
    let mut at = 0;
    loop {
        let len = reader
            .read_at(at, &mut buffer)
            .map_err(|trouble| place.troubled(&trouble))?;
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
    let failed = |error: io::Error| Failure::io(args.file.display(), &error);
    let mut source: Box<dyn Read> = Box::new(io::stdin());
    let mut identity = None;
    if !from_stdin {
        let file = File::open(&args.file).map_err(failed)?;
        let found = file.metadata().map_err(failed)?;
        if found.is_dir() {
            return Err(failed(io::ErrorKind::IsADirectory.into()));
        }
        identity = Some((found.dev(), found.ino()));
        source = Box::new(file);
    }
    with_pool(&[&args.place], &args.opening, false, |files| {
        let name = args.file.file_name().filter(|_| !from_stdin);
        let place = in_directory(files, &args.place, name)?;
        let there = files.find(&place.path, true).ok();
        if there.is_some_and(|there| identity == Some(there.meta.identity)) {
            return Err(same_file(args.file.display(), &place));
        }
        let writer = files.create(&place.path);
        let writer = writer.map_err(|trouble| place.troubled(&trouble))?;
        let mut buffer = vec![0; PIECE_BYTES];
        let mut at = 0;
        loop {
            let len = match source.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(Failure::io(args.file.display(), &error)),
            };
            let written = writer.write_at(at, &buffer[..len]);
            written.map_err(|trouble| place.troubled(&trouble))?;
            at += len as u64;
        }
    })
}

/// The failure for a copy of a file to itself, which a mount makes possible.
fn same_file(from: impl Display, to: impl Display) -> Failure {
    Failure::new(format!("{from} and {to} are the same file"))
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
    with_pool(&[&args.place], &args.opening, true, |files| {
        let place = &args.place;
        let found = files.find(&place.path, true);
        let found = found.map_err(|trouble| place.troubled(&trouble))?;
        if found.meta.is_dir() {
            return Err(
                Failure::new(format!("{place} is a directory")).advise(format!(
                    "vellum export {} {}",
                    quoted(place.to_string()),
                    quoted(&args.file)
                )),
            );
        }
        let reader = files.open(&place.path);
        let reader = reader.map_err(|trouble| place.troubled(&trouble))?;
        if args.file == Path::new("-") {
            return match copy_out(&*reader, place, &mut io::stdout().lock()) {
                Err(Some(failure)) => Err(failure),
                _ => Ok(()),
            };
        }
        let mut path = args.file.clone();
        if path.is_dir() {
            path.push(place.path.file_name().unwrap_or_else(|| OsStr::new("file")));
        }
        let there = path.metadata();
        if there.is_ok_and(|there| (there.dev(), there.ino()) == found.meta.identity) {
            return Err(same_file(place, path.display()));
        }
        let mut file = File::create(&path).map_err(|e| Failure::io(path.display(), &e))?;
        match copy_out(&*reader, place, &mut file) {
            Err(Some(failure)) => Err(failure),
            _ => Ok(()),
        }
    })
}

/// `vellum mkdir`.
pub(crate) fn mkdir(args: &Mkdir) -> Outcome {
    let places: Vec<&PathInPool> = args.places.iter().collect();
    with_pool(&places, &args.opening, false, |files| {
        for place in &places {
            let made = match args.parents {
                true => files.make_dirs(&place.path),
                false => files.make_dir(&place.path),
            };
            made.map_err(|trouble| place.troubled(&trouble))?;
            if let Some(mode) = args.mode {
                let set = files.set_mode(&place.path, mode);
                set.map_err(|trouble| place.troubled(&trouble))?;
            }
        }
        Ok(())
    })
}

/// `vellum rm`.
pub(crate) fn rm(args: &Rm) -> Outcome {
    let places: Vec<&PathInPool> = args.places.iter().collect();
    with_pool(&places, &args.opening, false, |files| {
        for place in &places {
            match remove(files, place, args.recursive) {
                Err((_, Trouble::Pool(Error::NotFound))) if args.force => {}
                Err((place, Trouble::Pool(Error::IsDirectory))) if !args.recursive => {
                    return Err(place
                        .troubled(&Error::IsDirectory.into())
                        .advise(format!("vellum rm -r {}", quoted(place.to_string()))));
                }
                Err((place, trouble)) => return Err(place.troubled(&trouble)),
                Ok(()) => {}
            }
        }
        Ok(())
    })
}

/// Removes a file, or a tree from its leaves up.
fn remove(
    files: &dyn Files,
    place: &PathInPool,
    recursive: bool,
) -> Result<(), (PathInPool, Trouble)> {
    let at = |trouble| (place.clone(), trouble);
    if !files.find(&place.path, false).map_err(at)?.meta.is_dir() {
        return files.remove_file(&place.path).map_err(at);
    }
    if !recursive {
        return Err(at(Error::IsDirectory.into()));
    }
    // The root cannot be removed, only its contents.
    let mut stack = vec![(place.path.clone(), false)];
    while let Some((path, emptied)) = stack.pop() {
        let at = |trouble| (place.with_path(&path), trouble);
        if emptied {
            match files.remove_dir(&path) {
                Err(Trouble::Pool(Error::Busy)) if path == Path::new("/") => {}
                done => done.map_err(at)?,
            }
            continue;
        }
        let entries = files.entries(&path).map_err(at)?;
        stack.push((path.clone(), true));
        for (name, is_dir) in entries {
            let below = path.join(OsStr::from_bytes(&name));
            match is_dir {
                true => stack.push((below, false)),
                false => files
                    .remove_file(&below)
                    .map_err(|trouble| (place.with_path(&below), trouble))?,
            }
        }
    }
    Ok(())
}

/// `vellum mv`.
pub(crate) fn mv(args: &Mv) -> Outcome {
    with_pool(&[&args.from, &args.to], &args.opening, false, |files| {
        let to = in_directory(files, &args.to, args.from.path.file_name())?;
        let flags = if args.no_clobber {
            RenameFlags::NO_REPLACE
        } else {
            RenameFlags::empty()
        };
        let done = files.rename(&args.from.path, &to.path, flags);
        done.map_err(|trouble| trouble.at(format_args!("{} to {}", args.from, to.path.display())))
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
