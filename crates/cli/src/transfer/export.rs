//! `vellum export`.

use vellum::Error;
use vellum_terminal::{Failure, Outcome, quoted};

use super::copier::{Copier, Existing, Rules};
use super::host::Host;
use super::pool::PoolTree;
use super::progress::Progress;
use super::tree::{Tree, Trouble};
use super::{Copied, Losses};
use crate::args::Export;
use crate::location;

/// Copies a tree out of a pool.
pub(crate) fn run(args: &Export) -> Outcome {
    let pool = args.place.open(&args.opening, true)?;
    let progress = Progress::new(args.printing, "exported");
    let done = export(args, &PoolTree::new(pool.fs()), &progress);
    let closed = location::close(pool, &args.place.pool);
    let (copied, losses) = done?;
    closed?;
    progress.report(copied, losses)
}

fn export(args: &Export, pool: &PoolTree, progress: &Progress) -> Outcome<(Copied, Losses)> {
    let place = &args.place;
    let failed = |trouble: Trouble| Failure::new(format!("{place}: {trouble}"));
    let from = pool.find(&place.path, true).map_err(failed)?;
    if !pool.meta(&from).map_err(failed)?.is_dir() {
        return Err(place.failed(&Error::NotDirectory).advise(format!(
            "vellum get {} {}",
            quoted(place.to_string()),
            quoted(&args.dir)
        )));
    }
    std::fs::create_dir_all(&args.dir).map_err(|e| Failure::io(args.dir.display(), &e))?;
    let host = Host::new();
    let target = host.find(&args.dir, true);
    let target = target.map_err(|t| Failure::new(format!("{}: {t}", args.dir.display())))?;
    progress.begin(pool.bytes_used());
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
