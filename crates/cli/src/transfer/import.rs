//! `vellum import`.

use vellum_terminal::progress::is_wanted;
use vellum_terminal::{Failure, Outcome, quoted};

use super::copier::{Copier, Existing, Rules};
use super::host::{self, Host};
use super::pool::PoolTree;
use super::progress::Progress;
use super::tree::Tree;
use super::{Copied, Losses};
use crate::args::Import;
use crate::location;

/// Copies a tree into a pool.
pub(crate) fn run(args: &Import) -> Outcome {
    let from = args.dir.display();
    let source = std::fs::metadata(&args.dir).map_err(|e| Failure::io(&from, &e))?;
    if !source.is_dir() {
        return Err(
            Failure::usage(format!("{from} is not a directory")).advise(format!(
                "vellum put {} {}",
                quoted(&args.dir),
                quoted(args.place.to_string())
            )),
        );
    }
    let pool = args.place.open(&args.opening, false)?;
    let progress = Progress::new(args.printing, "imported");
    let done = import(args, &PoolTree::new(pool.fs()), &progress);
    let closed = location::close(pool, &args.place.pool);
    let (copied, losses) = done?;
    closed?;
    progress.report(copied, losses)
}

fn import(args: &Import, pool: &PoolTree, progress: &Progress) -> Outcome<(Copied, Losses)> {
    if is_wanted(args.printing.hides_progress()) {
        progress.begin(host::bytes_below(&args.dir));
    }
    let host = Host::new();
    // The named directory may itself be a symbolic link.
    let from = host.find(&args.dir, true);
    let from =
        from.map_err(|trouble| Failure::new(format!("{}: {trouble}", args.dir.display())))?;
    let target = pool
        .make_all(&args.place.path)
        .map_err(|e| args.place.failed(&e))?;
    let (mut copied, mut losses) = (Copied::default(), Losses::default());
    let existing = match args.overwrite {
        true => Existing::Goes,
        false => Existing::Stays,
    };
    let outcome = (&mut copied, &mut losses);
    let mut copier = Copier::new((&host, pool), Rules::all(existing), progress, outcome);
    copier.contents(from, target, args.dir.clone());
    copier.end();
    progress.finish();
    Ok((copied, losses))
}
