//! `vellum tree`: a directory with all that is in it, drawn as a tree.

use std::os::unix::ffi::OsStrExt;

use clap::Args;
use serde::Serialize;
use vellum::FileKind;
use vellum_terminal::output::print_json;
use vellum_terminal::{Outcome, Printing};

use crate::args::Opening;
use crate::files::{self, kind_name};
use crate::location::PathInPool;
use crate::transfer::host::as_of_pool;
use crate::transfer::tree::Tree as Files;
use crate::walk::{Event, Met, Text, Walk, Which, fail_if_unread};
use crate::way::Side;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vellum tree pool.img:/
  vellum tree -d -L 2 pool.img:/src
  vellum tree --json pool.img:/ | jq '.entries[].path'")]
pub(crate) struct Tree {
    /// Directories
    #[arg(required = true)]
    places: Vec<PathInPool>,
    /// Show names that begin with a dot
    #[arg(long, short)]
    all: bool,
    /// Show only directories
    #[arg(long, short)]
    dirs_only: bool,
    /// Go down only this many levels
    #[arg(long, short = 'L', value_name = "N")]
    level: Option<usize>,
    #[command(flatten)]
    pub(crate) printing: Printing,
    #[command(flatten)]
    opening: Opening,
}

/// What `--json` prints of a file.
#[derive(Serialize)]
struct Entry {
    path: String,
    depth: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    /// Why it, or some name in it, could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// What `--json` prints. The places themselves are not counted.
#[derive(Default, Serialize)]
struct Entries {
    entries: Vec<Entry>,
    directories: u64,
    files: u64,
}

/// What was found.
#[derive(Default)]
struct Drawing {
    all: Entries,
    text: Text,
    unread: u64,
}

/// Draws trees of files.
pub(crate) fn run(args: &Tree) -> Outcome {
    let places: Vec<&PathInPool> = args.places.iter().collect();
    let way = files::way_to(&places, &args.opening, true)?;
    let mut drawing = Drawing::default();
    let drawn = places.iter().try_for_each(|place| match way.side() {
        Side::Pool(tree) => drawing.draw(tree, place, args),
        Side::Host(tree) => drawing.draw(tree, place, args),
    });
    let closed = way.close();
    match args.printing.json {
        true => drawn.and_then(|()| print_json(&drawing.all))?,
        false => {
            let counted = drawn.and_then(|()| drawing.count(args.dirs_only));
            drawing.text.end().and(counted)?;
        }
    }
    closed?;
    fail_if_unread(drawing.unread)
}

impl Drawing {
    fn draw<T: Files>(&mut self, tree: &T, place: &PathInPool, args: &Tree) -> Outcome {
        let which = Which {
            skips_hidden: !args.all,
            only_dirs: args.dirs_only,
            depth_max: args.level,
        };
        let walk = tree.find(&place.path, true);
        let walk = walk.and_then(|node| Walk::new(tree, &place.path, node, which));
        let walk = walk.map_err(|trouble| place.troubled(&as_of_pool(trouble)))?;
        // Whether the directories above a file, and it itself, are the last in theirs.
        let mut lasts = Vec::new();
        for event in walk {
            let Event::Met(met) = event else {
                continue;
            };
            lasts.truncate(met.depth);
            lasts.push(met.is_last);
            let target = self.see(tree, &met);
            if args.printing.json {
                self.all.entries.push(Entry::of(&met, target.as_deref()));
                continue;
            }
            let name = match met.depth {
                0 => place.shown().into_os_string(),
                _ => met.path.file_name().unwrap_or_default().to_owned(),
            };
            let target = target.map_or_else(Vec::new, |target| [b" -> ", &target[..]].concat());
            let why = met
                .trouble
                .map_or_else(String::new, |why| format!("  [{why}]"));
            let lines = lines(&lasts);
            let parts = [lines.as_bytes(), name.as_bytes(), &target, why.as_bytes()];
            self.text.line(&parts)?;
        }
        Ok(())
    }

    /// Counts a file. Returns the target of a symbolic link.
    fn see<T: Files>(&mut self, tree: &T, met: &Met<T::Node>) -> Option<Vec<u8>> {
        self.unread += u64::from(met.trouble.is_some());
        let (node, meta) = met.file.as_ref()?;
        match meta.is_dir() {
            _ if met.depth == 0 => {}
            true => self.all.directories += 1,
            false => self.all.files += 1,
        }
        match meta.kind {
            FileKind::Symlink => tree.read_link(node).ok(),
            _ => None,
        }
    }

    /// Adds the line with the counts.
    fn count(&mut self, dirs_only: bool) -> Outcome {
        let directories = match self.all.directories {
            1 => "1 directory".to_owned(),
            count => format!("{count} directories"),
        };
        let files = match self.all.files {
            _ if dirs_only => String::new(),
            1 => ", 1 file".to_owned(),
            count => format!(", {count} files"),
        };
        let parts = [b"\n", directories.as_bytes(), files.as_bytes()];
        self.text.line(&parts)
    }
}

impl Entry {
    fn of<N>(met: &Met<N>, target: Option<&[u8]>) -> Self {
        let kind = met.file.as_ref().map(|(_, meta)| kind_name(meta.kind));
        Self {
            path: met.path.display().to_string(),
            depth: met.depth,
            kind,
            target: target.map(|target| String::from_utf8_lossy(target).into_owned()),
            error: met.trouble.as_ref().map(ToString::to_string),
        }
    }
}

/// The lines before a name: those to the files that follow in the directories above, and its own.
/// The first directory has none.
fn lines(lasts: &[bool]) -> String {
    let Some((is_last, [_, above @ ..])) = lasts.split_last() else {
        return String::new();
    };
    let line = |is_last: &bool| if *is_last { "    " } else { "│\u{a0}\u{a0} " };
    let mut text: String = above.iter().map(line).collect();
    text.push_str(if *is_last { "└── " } else { "├── " });
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_lead_to_the_files_that_follow() {
        assert_eq!(lines(&[true]), "");
        assert_eq!(lines(&[true, false]), "├── ");
        assert_eq!(lines(&[true, false, true, true]), "│\u{a0}\u{a0}     └── ");
    }
}
