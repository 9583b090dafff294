//! `vellum cp`: copies between this machine and pools, as cp(1) does.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use vellum::PoolPath;
use vellum_terminal::progress::is_wanted;
use vellum_terminal::{Failure, Outcome};

use super::copier::{Copier, Existing, Rules};
use super::host::{self, Host};
use super::progress::Progress;
use super::tree::Tree;
use super::{Copied, INTO_ITSELF, Losses};
use crate::args::Cp;
use crate::location::PathInPool;
use crate::way::{Side, Way};

/// A source or the target of a copy.
#[derive(Clone, Debug)]
pub(crate) enum End {
    /// A path of this machine.
    Host(PathBuf),
    /// `POOL:/path`.
    Pool(PathInPool),
}

impl From<OsString> for End {
    fn from(text: OsString) -> Self {
        let bytes = text.as_bytes();
        match bytes.ends_with(b":") || bytes.windows(2).any(|pair| pair == b":/") {
            true => Self::Pool(text.into()),
            false => Self::Host(text.into()),
        }
    }
}

impl End {
    fn path(&self) -> &Path {
        match self {
            Self::Host(path) => path,
            Self::Pool(place) => &place.path,
        }
    }

    /// Its name in messages.
    fn shown(&self) -> PathBuf {
        match self {
            Self::Host(path) => path.clone(),
            Self::Pool(place) => place.shown(),
        }
    }

    /// The pool of the path.
    fn pool(&self) -> Option<PathBuf> {
        match self {
            Self::Host(_) => None,
            Self::Pool(place) => Some(PoolPath::of(&place.pool).resolved().path()),
        }
    }

    /// Its last component. `None` for a root, `.` or `..`: then the contents are copied.
    fn name(&self) -> Option<&OsStr> {
        let path = self.path();
        match path.as_os_str().as_bytes().ends_with(b"/.") {
            true => None,
            false => path.file_name(),
        }
    }
}

/// Runs `vellum cp`.
pub(crate) fn run(args: &Cp) -> Outcome {
    let pools = Pools::open(args)?;
    let progress = Progress::new(args.printing, "copied");
    let done = copy(args, &pools, &progress);
    progress.finish();
    let closed = pools.close();
    let (copied, losses) = done?;
    closed?;
    progress.report(copied, losses)
}

/// The ways to the pools of all sources and the target, each once.
struct Pools(Vec<(PathBuf, Way)>);

impl Pools {
    fn open(args: &Cp) -> Outcome<Self> {
        let ends = || std::iter::once(&args.target).chain(&args.sources);
        let mut paths = ends().filter_map(End::pool);
        let first = paths.next();
        if !args.opening.data.is_empty() && paths.any(|path| Some(&path) != first.as_ref()) {
            return Err(Failure::usage(
                "--data needs a single pool, but the paths are in several",
            ));
        }
        let mut all = Self(Vec::new());
        for end in ends() {
            let (End::Pool(place), Some(path)) = (end, end.pool()) else {
                continue;
            };
            if all.0.iter().any(|(known, _)| *known == path) {
                continue;
            }
            let is_source = args.target.pool().as_ref() != Some(&path);
            match Way::to(place, &args.opening, is_source) {
                Ok(way) => all.0.push((path, way)),
                Err(failure) => {
                    all.close()?;
                    return Err(failure);
                }
            }
        }
        match all.0.is_empty() {
            true => Err(
                Failure::usage("neither a source nor the target is in a pool")
                    .advise("write POOL:/path for a path in a pool, for example pool.img:/"),
            ),
            false => Ok(all),
        }
    }

    fn way(&self, end: &End) -> Option<&Way> {
        let path = end.pool()?;
        let found = self.0.iter().find(|(known, _)| *known == path);
        found.map(|(_, way)| way)
    }

    /// Closes all of them, even after a failure. Returns the first failure.
    fn close(self) -> Outcome {
        let mut outcome = Ok(());
        for (_, way) in self.0 {
            outcome = outcome.and(way.close());
        }
        outcome
    }
}

/// The target of the copies.
enum Target<T: Tree> {
    /// Into this directory, under their own names.
    Into(T::Node),
    /// Under this name of a directory.
    As(T::Node, Vec<u8>),
}

impl<T: Tree> Target<T> {
    fn of(tree: &T, args: &Cp) -> Outcome<Self> {
        let (end, path) = (&args.target, args.target.path());
        let shown = end.shown();
        let failed = |path: &Path, why: &dyn std::fmt::Display| {
            Failure::new(format!("{}: {why}", path.display()))
        };
        if let Ok(node) = tree.find(path, true) {
            let meta = tree
                .meta(&node)
                .map_err(|trouble| failed(&shown, &trouble))?;
            if meta.is_dir() {
                return Ok(Self::Into(node));
            }
        }
        let is_directory = path.as_os_str().as_bytes().ends_with(b"/");
        if args.sources.len() > 1 || is_directory && !args.rules().is_recursive {
            return Err(failed(&shown, &"there is no such directory"));
        }
        let above = path.parent().filter(|above| !above.as_os_str().is_empty());
        let above = above.unwrap_or(Path::new("."));
        let dir = tree.find(above, true);
        let dir =
            dir.map_err(|trouble| failed(&shown, &format_args!("its directory: {trouble}")))?;
        let name = end
            .name()
            .ok_or_else(|| failed(&shown, &"there is no such directory"))?;
        Ok(Self::As(dir, name.as_bytes().to_vec()))
    }

    fn dir(&self) -> &T::Node {
        match self {
            Self::Into(dir) | Self::As(dir, _) => dir,
        }
    }
}

impl Cp {
    fn rules(&self) -> Rules {
        Rules {
            existing: Existing::IsRewritten,
            is_recursive: self.recursive || self.archive,
            keeps_attributes: self.preserve || self.archive,
            keeps_hard_links: self.archive,
        }
    }
}

/// One run of the command: its arguments, and its result so far.
struct Run<'a> {
    args: &'a Cp,
    progress: &'a Progress,
    copied: Copied,
    losses: Losses,
}

fn copy(args: &Cp, pools: &Pools, progress: &Progress) -> Outcome<(Copied, Losses)> {
    if is_wanted(args.printing.hides_progress()) {
        let bytes = |end: &End| match pools.way(end) {
            Some(way) => way.bytes_used(),
            None => host::bytes_below(end.path()),
        };
        progress.begin(args.sources.iter().map(bytes).sum());
    }
    let mut run = Run {
        args,
        progress,
        copied: Copied::default(),
        losses: Losses::default(),
    };
    let host = Host::new();
    // Consecutive sources in one tree are copied together, so that hard links between them are
    // kept.
    for sources in args.sources.chunk_by(|a, b| a.pool() == b.pool()) {
        let (from, to) = (pools.way(&sources[0]), pools.way(&args.target));
        if from.is_none() && to.is_none() {
            let why = "neither this nor the target is in a pool: cp copies it";
            run.losses.add(sources[0].shown().display(), why);
            continue;
        }
        let [from, to] = [from, to].map(|way| way.map_or(Side::Host(&host), Way::side));
        match (from, to) {
            (Side::Pool(from), Side::Pool(to)) => {
                let is_one = std::ptr::eq(from, to);
                let is_below =
                    |dir: &_, above: &_| is_one && to.is_below(dir, above).unwrap_or(true);
                run.group(sources, (from, to), is_below)?;
            }
            (Side::Pool(from), Side::Host(to)) => {
                run.group(sources, (from, to), |_, _| false)?;
            }
            (Side::Host(from), Side::Pool(to)) => {
                run.group(sources, (from, to), |_, _| false)?;
            }
            (Side::Host(from), Side::Host(to)) => {
                let is_below = |dir: &_, above: &_| to.is_below(dir, from, above).unwrap_or(true);
                run.group(sources, (from, to), is_below)?;
            }
        }
    }
    Ok((run.copied, run.losses))
}

impl Run<'_> {
    /// Copies sources in one tree. `is_below` reports whether a directory of the target is a
    /// directory of the source, or below it.
    fn group<S: Tree, T: Tree>(
        &mut self,
        sources: &[End],
        trees: (&S, &T),
        is_below: impl Fn(&T::Node, &S::Node) -> bool,
    ) -> Outcome {
        let rules = self.args.rules();
        let target = Target::of(trees.1, self.args)?;
        let mut refused = Vec::new();
        let outcome = (&mut self.copied, &mut self.losses);
        let mut copier = Copier::new(trees, rules, self.progress, outcome);
        for end in sources {
            let found = trees.0.find(end.path(), !rules.is_recursive);
            let found = found.and_then(|from| Ok((trees.0.meta(&from)?, from)));
            let why = match found {
                Err(trouble) => trouble.to_string(),
                Ok((meta, _)) if meta.is_dir() && !rules.is_recursive => {
                    "a directory; -r or -a copies it".into()
                }
                Ok((meta, from)) if meta.is_dir() && is_below(target.dir(), &from) => {
                    INTO_ITSELF.to_string()
                }
                Ok((_, from)) => {
                    match (&target, end.name()) {
                        (Target::Into(dir), Some(name)) => {
                            copier.file(from, (dir, name.as_bytes()), end.shown());
                        }
                        (Target::Into(dir), None) => {
                            copier.contents(from, dir.clone(), end.shown());
                        }
                        (Target::As(dir, name), _) => copier.file(from, (dir, name), end.shown()),
                    }
                    continue;
                }
            };
            refused.push((end.shown(), why));
        }
        copier.end();
        for (shown, why) in refused {
            self.losses.add(shown.display(), why);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_with_a_colon_before_a_slash_is_in_a_pool() {
        let is_in_pool = |text: &str| matches!(End::from(OsString::from(text)), End::Pool(_));
        for text in ["p.img:/a", "/x/p.img:/", "p.img:", "p.img:builds:/a"] {
            assert!(is_in_pool(text), "{text}");
        }
        for text in ["p.img", "./a:b", "/a/b", "-", ""] {
            assert!(!is_in_pool(text), "{text}");
        }
    }

    #[test]
    fn contents_are_meant_where_there_is_no_name() {
        let name = |text: &str| End::from(OsString::from(text)).name().map(OsStr::to_owned);
        for text in [".", "..", "d/.", "p:/", "p:", "p:/d/."] {
            assert_eq!(name(text), None, "{text}");
        }
        for text in ["a", "d/a", "d/a/", "p:/a"] {
            assert_eq!(name(text), Some("a".into()), "{text}");
        }
    }
}
