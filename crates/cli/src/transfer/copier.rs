//! The copier behind `vellum import`, `vellum export` and `vellum cp`.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use vellum::{FileFlags, FileKind};

use super::keeping::keep;
use super::progress::Progress;
use super::tree::{Done, Meta, Tree, Trouble, Writer};
use super::{Copied, Losses};
use crate::files::PIECE_BYTES;

/// What to do with an existing file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Existing {
    /// Keep it, and do not copy the other one.
    Stays,
    /// Remove it first.
    Goes,
    /// Overwrite the contents of a regular file and keep its attributes; remove any other file
    /// first.
    IsRewritten,
}

/// The permission bits that the owner of a directory needs to fill it.
const OWNERS: u16 = 0o700;

/// How files are copied.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) existing: Existing,
    /// Copies directories with all their contents, and symbolic links as links.
    pub(super) is_recursive: bool,
    /// Copies owners, permission bits, extended attributes, times and flags. Otherwise new files
    /// get permission bits as the umask and the directory's access control list have it.
    pub(super) keeps_attributes: bool,
    /// Keeps hard links.
    pub(super) keeps_hard_links: bool,
}

impl Rules {
    /// Rules that keep everything.
    pub(super) fn all(existing: Existing) -> Self {
        Self {
            existing,
            is_recursive: true,
            keeps_attributes: true,
            keeps_hard_links: true,
        }
    }

    /// The mode with which a copy is created. Only the owner may use one that gets all attributes
    /// later.
    fn first_mode(&self, meta: &Meta) -> u16 {
        match (self.keeps_attributes, meta.is_dir()) {
            (true, true) => OWNERS,
            (true, false) => 0o600,
            (false, true) => meta.mode & 0o777 | OWNERS,
            (false, false) => meta.mode & 0o777,
        }
    }
}

/// Copies from one tree to another.
pub(super) struct Copier<'a, S: Tree, T: Tree> {
    source: &'a S,
    target: &'a T,
    rules: Rules,
    progress: &'a Progress,
    copied: &'a mut Copied,
    losses: &'a mut Losses,
    /// Copied files with several names.
    known: HashMap<(u64, u64), T::Node>,
    /// Copies whose flags or project ids are not yet those of their files. Flags may forbid what is
    /// still to be done: names, attributes.
    flagged: Vec<Flagged<T>>,
    buffer: Vec<u8>,
}

/// A copy that gets these flags in the end.
struct Flagged<T: Tree> {
    to: T::Node,
    flags: FileFlags,
    project: Option<u32>,
    /// The name of the file in messages.
    shown: PathBuf,
}

/// A directory and its copy.
struct Pair<S: Tree, T: Tree> {
    from: S::Node,
    to: T::Node,
    /// The name of the directory in messages.
    shown: PathBuf,
    /// The permission bits that a new directory gets once it is filled, unless it gets all
    /// attributes.
    last_mode: Option<u16>,
}

/// A step of the walk, which does not recurse. The attributes of a directory are set after its
/// contents are complete.
enum Step<S: Tree, T: Tree> {
    Fill(Pair<S, T>),
    Finish(Pair<S, T>),
}

impl<'a, S: Tree, T: Tree> Copier<'a, S, T> {
    pub(super) fn new(
        (source, target): (&'a S, &'a T),
        rules: Rules,
        progress: &'a Progress,
        (copied, losses): (&'a mut Copied, &'a mut Losses),
    ) -> Self {
        Self {
            source,
            target,
            rules,
            progress,
            copied,
            losses,
            known: HashMap::new(),
            flagged: Vec::new(),
            buffer: vec![0; PIECE_BYTES],
        }
    }

    /// Copies the contents of a directory into another one, and then its attributes.
    pub(super) fn contents(&mut self, from: S::Node, to: T::Node, shown: PathBuf) {
        let pair = Pair {
            from,
            to,
            shown,
            last_mode: None,
        };
        self.walk(Step::Fill(pair));
    }

    /// Copies a file into a directory under a name. Messages call it `shown`.
    pub(super) fn file(&mut self, from: S::Node, (dir, name): (&T::Node, &[u8]), shown: PathBuf) {
        match self.entry(from, (dir, name), &shown) {
            Ok(Some(step)) => self.walk(step),
            Ok(None) => {}
            Err(trouble) => self.lose(&shown, trouble),
        }
        self.progress.show(*self.copied);
    }

    fn walk(&mut self, first: Step<S, T>) {
        let mut steps = vec![first];
        while let Some(step) = steps.pop() {
            match step {
                Step::Fill(pair) => {
                    let below = self.fill(&pair);
                    steps.push(Step::Finish(pair));
                    steps.extend(below);
                }
                Step::Finish(pair) => self.finish(&pair),
            }
        }
    }

    fn finish(&mut self, pair: &Pair<S, T>) {
        if let Some(mode) = pair.last_mode
            && let Err(trouble) = self.target.set_mode(&pair.to, mode)
        {
            self.lose_attributes(&pair.shown, &trouble);
        }
        match self.source.meta(&pair.from) {
            Ok(meta) => self.attributes(&pair.from, &pair.to, &meta, &pair.shown),
            Err(trouble) => self.lose(&pair.shown, trouble),
        }
    }

    fn lose(&mut self, shown: &Path, why: impl fmt::Display) {
        self.losses.add(shown.display(), why);
    }

    fn fill(&mut self, pair: &Pair<S, T>) -> Vec<Step<S, T>> {
        let (names, lost) = match self.source.names(&pair.from) {
            Ok(found) => found,
            Err(trouble) => (Vec::new(), Some(trouble)),
        };
        // Some names could not be read; the others are copied.
        if let Some(trouble) = lost {
            self.lose(&pair.shown, trouble);
        }
        let mut below = Vec::new();
        for name in names {
            let shown = pair.shown.join(OsStr::from_bytes(&name));
            let found = self.source.lookup(&pair.from, &name);
            let copied = found.and_then(|found| match found {
                Some(from) => self.entry(from, (&pair.to, &name), &shown),
                // It was removed in the meantime.
                None => Ok(None),
            });
            match copied {
                Ok(step) => below.extend(step),
                Err(trouble) => self.lose(&shown, trouble),
            }
            self.progress.show(*self.copied);
        }
        below
    }

    /// Copies one file. Returns a directory whose contents must still be copied.
    fn entry(
        &mut self,
        from: S::Node,
        to: (&T::Node, &[u8]),
        shown: &Path,
    ) -> Done<Option<Step<S, T>>> {
        let meta = self.source.meta(&from)?;
        if meta.is_dir() {
            let (to, last_mode) = self.directory(to, &meta)?;
            let shown = shown.to_owned();
            return Ok(Some(Step::Fill(Pair {
                from,
                to,
                shown,
                last_mode,
            })));
        }
        if meta.kind != FileKind::File && !self.rules.is_recursive {
            return Err(Trouble::Refused("not a regular file; -r or -a copies it"));
        }
        let there = self.make_way(to, &meta)?;
        let is_linked = self.rules.keeps_hard_links && meta.links > 1;
        if is_linked && let Some(known) = self.known.get(&meta.identity) {
            self.target.link(known, to.0, to.1)?;
            self.copied.files += 1;
            return Ok(None);
        }
        let made = self.make(&from, to, &meta, there)?;
        if is_linked {
            self.known.insert(meta.identity, made.clone());
        }
        self.attributes(&from, &made, &meta, shown);
        self.copied.files += 1;
        Ok(None)
    }

    /// Returns the directory with a name, and its [`Pair::last_mode`].
    fn directory(
        &mut self,
        (dir, name): (&T::Node, &[u8]),
        meta: &Meta,
    ) -> Done<(T::Node, Option<u16>)> {
        match self.target.lookup(dir, name)? {
            None => {
                let first = self.rules.first_mode(meta);
                let made = self.target.make_dir(dir, name, first)?;
                self.copied.files += 1;
                let last = match self.rules.keeps_attributes {
                    true => None,
                    false => self.permit_filling(&made, meta)?,
                };
                Ok((made, last))
            }
            Some(there) if self.target.meta(&there)?.is_dir() => Ok((there, None)),
            Some(_) => Err(Trouble::Refused(
                "a directory does not replace an existing file",
            )),
        }
    }

    /// Lets the owner fill a new directory. Returns the permission bits to set afterwards, if they
    /// are others.
    fn permit_filling(&self, made: &T::Node, meta: &Meta) -> Done<Option<u16>> {
        let given = self.target.meta(made)?.mode;
        let now = given | OWNERS;
        if given != now {
            self.target.set_mode(made, now)?;
        }
        let last = given & (meta.mode | !OWNERS);
        Ok((last != now).then_some(last))
    }

    /// Removes an existing file in the way of a copy, or returns it if its contents are to be
    /// overwritten.
    fn make_way(&self, (dir, name): (&T::Node, &[u8]), meta: &Meta) -> Done<Option<T::Node>> {
        let existing = self.rules.existing;
        if existing == Existing::IsRewritten
            && let Some(there) = self.target.lookup(dir, name)?
        {
            let found = self.target.meta(&there)?;
            if found.identity == meta.identity {
                return Err(Trouble::Refused("source and target are the same file"));
            }
            if found.is_dir() {
                return Err(Trouble::Refused("a file does not replace a directory"));
            }
            let is_linked = self.rules.keeps_hard_links && meta.links > 1;
            if found.kind == FileKind::File && meta.kind == FileKind::File && !is_linked {
                return Ok(Some(there));
            }
        }
        if existing != Existing::Stays {
            self.target.remove(dir, name)?;
        }
        Ok(None)
    }

    fn make(
        &mut self,
        from: &S::Node,
        (dir, name): (&T::Node, &[u8]),
        meta: &Meta,
        there: Option<T::Node>,
    ) -> Done<T::Node> {
        let mode = self.rules.first_mode(meta);
        match (meta.kind, there) {
            (FileKind::Symlink, _) => {
                let target = self.source.read_link(from)?;
                self.target.symlink(dir, name, &target)
            }
            (FileKind::File, Some(there)) => {
                let writer = self.target.rewrite(&there)?;
                self.bytes(from, &*writer, meta.size)?;
                Ok(there)
            }
            (FileKind::File, None) => {
                let (made, writer) = self.target.create(dir, name, mode)?;
                self.bytes(from, &*writer, meta.size)?;
                Ok(made)
            }
            _ => self.target.make_node(dir, name, meta, mode),
        }
    }

    /// Copies the bytes of a file, except its holes.
    fn bytes(&mut self, from: &S::Node, to: &dyn Writer, size: u64) -> Done {
        let reader = self.source.open(from)?;
        let mut at = 0;
        while let Some((from, end)) = reader.next_data(at)? {
            at = from;
            while at < end {
                let want = self.buffer.len().min((end - at) as usize);
                let len = reader.read_at(at, &mut self.buffer[..want])?;
                if len == 0 {
                    // It became shorter in the meantime.
                    return to.set_len(at);
                }
                to.write_at(at, &self.buffer[..len])?;
                at += len as u64;
                self.copied.bytes += len as u64;
                self.progress.show(*self.copied);
            }
        }
        to.set_len(size.max(at))
    }

    fn attributes(&mut self, from: &S::Node, to: &T::Node, meta: &Meta, shown: &Path) {
        if !self.rules.keeps_attributes {
            return;
        }
        let losses = &mut *self.losses;
        let mut lose = |what: fmt::Arguments<'_>| losses.add(shown.display(), what);
        if let Err(trouble) = keep((self.source, from), (self.target, to), meta, &mut lose) {
            self.lose_attributes(shown, &trouble);
        }
        if let Err(trouble) = self.note_flags(from, to, meta, shown) {
            self.lose_flags(shown, &trouble);
        }
    }

    /// Notes flags and project id of a file if its copy has others. Those that only a privileged
    /// user can set are left out for others.
    fn note_flags(&mut self, from: &S::Node, to: &T::Node, meta: &Meta, shown: &Path) -> Done {
        if !matches!(meta.kind, FileKind::File | FileKind::Directory) {
            return Ok(());
        }
        let (mut flags, project) = self.source.flags(from)?;
        if !self.target.is_privileged() {
            flags -= FileFlags::GUARDED;
        }
        let (has, has_project) = self.target.flags(to)?;
        let project = project.filter(|_| has_project.is_some());
        if flags != has || project.is_some() && project != has_project {
            self.flagged.push(Flagged {
                to: to.clone(),
                flags,
                project,
                shown: shown.to_owned(),
            });
        }
        Ok(())
    }

    /// Ends the copying: gives the copies their flags.
    pub(super) fn end(mut self) {
        for copy in std::mem::take(&mut self.flagged) {
            let set = self.target.set_flags(&copy.to, copy.flags, copy.project);
            if let Err(trouble) = set {
                self.lose_flags(&copy.shown, &trouble);
            }
        }
    }

    fn lose_flags(&mut self, shown: &Path, trouble: &Trouble) {
        self.lose(shown, format_args!("flags: {trouble}"));
    }

    fn lose_attributes(&mut self, shown: &Path, trouble: &Trouble) {
        self.lose(shown, format_args!("attributes: {trouble}"));
    }
}
