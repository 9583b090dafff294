//! `vellum export`.

use std::path::PathBuf;

use clap::Args;
use vellum::Error;
use vellum_terminal::{Failure, Outcome, Printing, quoted};

use super::copier::{Copier, Existing, Rules};
use super::host::{Host, HostNode};
use super::progress::Progress;
use super::tree::{Done, Tree, Trouble};
use super::{Copied, INTO_ITSELF, Losses};
use crate::args::Opening;
use crate::location::PathInPool;
use crate::way::{Side, Way};

#[derive(Debug, Args)]
#[command(after_help = "\
The reverse of `vellum import`: copies the contents of the directory in the pool into DIR.

Examples:
  vellum export pool.img:/src /tmp/src")]
pub(crate) struct Export {
    /// The directory in the pool
    pub(crate) place: PathInPool,
    /// The target
    pub(crate) dir: PathBuf,
    /// Replace files that exist
    #[arg(long)]
    pub(crate) overwrite: bool,
    #[command(flatten)]
    pub(crate) printing: Printing,
    #[command(flatten)]
    pub(crate) opening: Opening,
}

/// Copies a tree out of a pool.
pub(crate) fn run(args: &Export) -> Outcome {
    let way = Way::to(&args.place, &args.opening, true)?;
    let progress = Progress::new(args.printing, "exported");
    progress.begin(way.bytes_used());
    let done = match way.side() {
        Side::Pool(tree) => export(args, tree, |_, _, _| Ok(false), &progress),
        Side::Host(tree) => {
            let is_below = |host: &Host, to: &_, from: &_| host.is_below(to, tree, from);
            export(args, tree, is_below, &progress)
        }
    };
    let closed = way.close();
    let (copied, losses) = done?;
    closed?;
    progress.report(copied, losses)
}

/// `is_below` reports whether a directory of this machine is the exported one, or below it.
fn export<T: Tree>(
    args: &Export,
    pool: &T,
    is_below: impl Fn(&Host, &HostNode, &T::Node) -> Done<bool>,
    progress: &Progress,
) -> Outcome<(Copied, Losses)> {
    let place = &args.place;
    let failed = |trouble: Trouble| place.troubled(&trouble);
    let from = pool.find(&place.path, true).map_err(failed)?;
    if !pool.meta(&from).map_err(failed)?.is_dir() {
        return Err(place.troubled(&Error::NotDirectory.into()).advise(format!(
            "vellum get {} {}",
            quoted(place.to_string()),
            quoted(&args.dir)
        )));
    }
    std::fs::create_dir_all(&args.dir).map_err(|e| Failure::io(args.dir.display(), &e))?;
    let host = Host::new();
    let target = host.find(&args.dir, true);
    let target = target.map_err(|t| Failure::new(format!("{}: {t}", args.dir.display())))?;
    if is_below(&host, &target, &from).map_err(failed)? {
        return Err(place.troubled(&INTO_ITSELF));
    }
    let (mut copied, mut losses) = (Copied::default(), Losses::default());
    let existing = match args.overwrite {
        true => Existing::Goes,
        false => Existing::Stays,
    };
    let outcome = (&mut copied, &mut losses);
    let mut copier = Copier::new((pool, &host), Rules::all(existing), progress, outcome);
    copier.contents(from, target, place.shown());
    copier.end();
    progress.finish();
    Ok((copied, losses))
}
