//! `vellum du`: the space that files take.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use clap::{ArgAction, Args};
use serde::Serialize;
use vellum::FileKind;
use vellum_terminal::output::{print_json, warn_line};
use vellum_terminal::{Outcome, Printing};

use crate::args::Opening;
use crate::files;
use crate::location::PathInPool;
use crate::transfer::host::as_of_pool;
use crate::transfer::tree::{Meta, Tree};
use crate::units::{in_kib, in_letters};
use crate::walk::{Event, Text, Walk, Which, fail_if_unread};
use crate::way::Side;

#[derive(Debug, Args)]
#[command(
    disable_help_flag = true,
    after_help = "\
A directory counts all that is in it. Files with several names count once.

Examples:
  vellum du -h pool.img:/
  vellum du -s pool.img:/src pool.img:/doc
  vellum du -h -d 1 pool.img:/
  vellum du --json pool.img:/src | jq '.[-1].allocated_bytes'"
)]
pub(crate) struct Du {
    /// Directories or files
    #[arg(required = true)]
    places: Vec<PathInPool>,
    /// Show files, not only directories
    #[arg(long, short)]
    all: bool,
    /// Show only the places themselves
    #[arg(long, short, conflicts_with_all = ["all", "depth"])]
    summarize: bool,
    /// Show only files down to this many levels below the places
    #[arg(long = "max-depth", short = 'd', value_name = "N")]
    depth: Option<usize>,
    /// Show sizes with K, M, G or T (powers of 1024), not in KiB
    #[arg(long, short)]
    human_readable: bool,
    /// Show the bytes in files and symbolic links, holes included, not the space that they take
    #[arg(long)]
    apparent_size: bool,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
    #[command(flatten)]
    pub(crate) printing: Printing,
    #[command(flatten)]
    opening: Opening,
}

/// The space of a file, or of all files of a directory.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Size {
    allocated_bytes: u64,
    apparent_bytes: u64,
}

impl Size {
    fn of(meta: &Meta) -> Self {
        let has_bytes = matches!(meta.kind, FileKind::File | FileKind::Symlink);
        Self {
            allocated_bytes: meta.allocated_bytes,
            apparent_bytes: if has_bytes { meta.size } else { 0 },
        }
    }

    fn add(&mut self, other: Self) {
        self.allocated_bytes += other.allocated_bytes;
        self.apparent_bytes = self.apparent_bytes.saturating_add(other.apparent_bytes);
    }
}

/// What `--json` prints of a file.
#[derive(Serialize)]
struct Line {
    path: String,
    #[serde(flatten)]
    size: Size,
}

/// What was found.
struct Report<'a> {
    args: &'a Du,
    text: Text,
    lines: Vec<Line>,
    /// Inode numbers of files that may be met again.
    counted: HashSet<u64>,
    unread: u64,
}

/// Shows the space that files take.
pub(crate) fn run(args: &Du) -> Outcome {
    let places: Vec<&PathInPool> = args.places.iter().collect();
    let way = files::way_to(&places, &args.opening, true)?;
    let mut report = Report {
        args,
        text: Text::default(),
        lines: Vec::new(),
        counted: HashSet::new(),
        unread: 0,
    };
    let measured = places.iter().try_for_each(|place| match way.side() {
        Side::Pool(tree) => report.measure(tree, place),
        Side::Host(tree) => report.measure(tree, place),
    });
    let closed = way.close();
    match args.printing.json {
        true => measured.and_then(|()| print_json(&report.lines))?,
        false => report.text.end().and(measured)?,
    }
    closed?;
    fail_if_unread(report.unread)
}

impl Report<'_> {
    fn measure<T: Tree>(&mut self, tree: &T, place: &PathInPool) -> Outcome {
        let walk = tree.find(&place.path, false);
        let walk = walk.and_then(|node| Walk::new(tree, &place.path, node, Which::default()));
        let mut walk = walk.map_err(|trouble| place.troubled(&as_of_pool(trouble)))?;
        // The sizes of the directories that were entered.
        let mut sizes = Vec::new();
        while let Some(event) = walk.next() {
            let (path, size, is_shown) = match event {
                Event::Left(path) => (path, sizes.pop().unwrap_or_default(), true),
                Event::Met(met) => {
                    if let Some(trouble) = met.trouble {
                        let there = place.with_path(&met.path);
                        warn_line!("vellum: {there}: {trouble}");
                        self.unread += 1;
                    }
                    let Some((_, meta)) = met.file else {
                        continue;
                    };
                    let was_counted = self.was_counted(&meta);
                    match (meta.is_dir(), was_counted) {
                        (true, true) => walk.leave_out(),
                        (true, false) => sizes.push(Size::of(&meta)),
                        (false, _) => {}
                    }
                    if meta.is_dir() || was_counted {
                        continue;
                    }
                    let is_shown = self.args.all || met.depth == 0;
                    (met.path, Size::of(&meta), is_shown)
                }
            };
            if let Some(above) = sizes.last_mut() {
                above.add(size);
            }
            let depth_max = if self.args.summarize {
                Some(0)
            } else {
                self.args.depth
            };
            if is_shown && depth_max.is_none_or(|max| sizes.len() <= max) {
                self.show(place, &path, size)?;
            }
        }
        Ok(())
    }

    /// Whether a file was met before, by another name or in another place.
    fn was_counted(&mut self, meta: &Meta) -> bool {
        let may_return = self.args.places.len() > 1 || (meta.links > 1 && !meta.is_dir());
        may_return && !self.counted.insert(meta.identity.1)
    }

    fn show(&mut self, place: &PathInPool, path: &Path, size: Size) -> Outcome {
        if self.args.printing.json {
            let path = path.display().to_string();
            self.lines.push(Line { path, size });
            return Ok(());
        }
        let bytes = match self.args.apparent_size {
            true => size.apparent_bytes,
            false => size.allocated_bytes,
        };
        let size = match self.args.human_readable {
            true => in_letters(bytes),
            false => in_kib(bytes),
        };
        let path = place.with_path(path).shown();
        let path = path.as_os_str().as_bytes();
        self.text.line(&[size.as_bytes(), b"\t", path])
    }
}
