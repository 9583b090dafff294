//! `vellum import`.

use std::path::PathBuf;

use clap::Args;
use vellum_terminal::progress::is_wanted;
use vellum_terminal::{Failure, Outcome, Printing, quoted};

use super::copier::{Copier, Existing, Rules};
use super::host::{self, Host, HostNode};
use super::progress::Progress;
use super::tree::{Done, Tree, Trouble, make_all};
use super::{Copied, INTO_ITSELF, Losses};
use crate::args::Opening;
use crate::location::PathInPool;
use crate::way::{Side, Way};

#[derive(Debug, Args)]
#[command(after_help = "\
Copies the contents of DIR into the directory in the pool, which is created if it is missing. \
Permission bits, access control lists, `user.` attributes, times, symbolic links, hard links, \
holes and special files are kept, and owners and all other extended attributes if root imports. \
Files and attributes that could not be copied are reported, and the exit status is 1.

Examples:
  vellum import ~/src pool.img:/src")]
pub(crate) struct Import {
    /// The directory
    pub(crate) dir: PathBuf,
    /// The target
    pub(crate) place: PathInPool,
    /// Replace files that exist
    #[arg(long)]
    pub(crate) overwrite: bool,
    #[command(flatten)]
    pub(crate) printing: Printing,
    #[command(flatten)]
    pub(crate) opening: Opening,
}

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
    let way = Way::to(&args.place, &args.opening, false)?;
    let progress = Progress::new(args.printing, "imported");
    let done = match way.side() {
        Side::Pool(tree) => import(args, tree, |_, _, _| Ok(false), &progress),
        Side::Host(tree) => {
            let is_below = |host: &Host, to: &_, from: &_| tree.is_below(to, host, from);
            import(args, tree, is_below, &progress)
        }
    };
    let closed = way.close();
    let (copied, losses) = done?;
    closed?;
    progress.report(copied, losses)
}

/// `is_below` reports whether a directory of the pool is the imported one, or below it.
fn import<T: Tree>(
    args: &Import,
    pool: &T,
    is_below: impl Fn(&Host, &T::Node, &HostNode) -> Done<bool>,
    progress: &Progress,
) -> Outcome<(Copied, Losses)> {
    if is_wanted(args.printing.hides_progress()) {
        progress.begin(host::bytes_below(&args.dir));
    }
    let host = Host::new();
    // The named directory may itself be a symbolic link.
    let from = host.find(&args.dir, true);
    let from =
        from.map_err(|trouble| Failure::new(format!("{}: {trouble}", args.dir.display())))?;
    let failed = |trouble: Trouble| args.place.troubled(&trouble);
    let target = make_all(pool, &args.place.path).map_err(failed)?;
    if is_below(&host, &target, &from).map_err(failed)? {
        return Err(args.place.troubled(&INTO_ITSELF));
    }
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
