//! `vellum convert`.

use serde::Serialize;
use vellum::NamespaceKind;
use vellum::media::MappedPool;
use vellum_check::MemoryImage;
use vellum_repair::{Conversion, ConvertError, convert, finish_conversion, plan_conversion};
use vellum_terminal::output::{print_json, say};
use vellum_terminal::{Failure, Outcome, quoted};

use crate::args::Convert;
use crate::check;
use crate::location;

/// The output of `--json`.
#[derive(Serialize)]
struct Answer {
    pool: String,
    /// Whether the pool was changed.
    changed: bool,
    /// Whether an earlier conversion had to be finished.
    resumed: bool,
    from: &'static str,
    to: &'static str,
    names: u64,
    directories: u64,
}

/// Converts a pool to another namespace.
pub(crate) fn run(args: &Convert) -> Outcome {
    let pool = location::open_as_it_is(&args.pool, &args.opening)?;
    let resumed = check::writing(args.printing.hides_progress(), |tell| {
        finish_conversion(&pool, tell)
    });
    let resumed = resumed.map_err(|error| failed(args, &error))?;
    drop(pool);
    // Opening recovers the pool after a crash. Closing leaves it clean, also after a conversion
    // that was just finished.
    reopen(args)?;
    let pool = location::open_as_it_is(&args.pool, &args.opening)?;
    let to = args.namespace.into();
    let planned = match planned(args, &pool, to) {
        Ok(planned) => planned,
        Err(ConvertError::Same(_)) => return already(args, to, resumed),
        Err(error) => return Err(refused(args, &error)),
    };
    if !args.dry_run {
        check::writing(args.printing.hides_progress(), |tell| {
            convert(&pool, &planned, tell)
        })
        .map_err(|error| {
            failed(args, &error)
                .advise("nothing is lost: run the command again to finish the conversion")
        })?;
        drop(pool);
        reopen(args)?;
    }
    tell(args, &planned, resumed)
}

fn reopen(args: &Convert) -> Outcome {
    let pool = location::open(&args.pool, &args.opening, false)?;
    location::close(pool, &args.pool)
}

fn planned(
    args: &Convert,
    pool: &MappedPool,
    to: NamespaceKind,
) -> Result<Conversion, ConvertError> {
    let bar = check::progress(args.printing.hides_progress());
    let tell = |stage, done, of| check::show(&bar, stage, done, of);
    let planned = plan_conversion(&MemoryImage(pool), to, Some(&tell));
    bar.finish_and_clear();
    planned
}

fn failed(args: &Convert, error: &dyn std::fmt::Display) -> Failure {
    Failure::new(format!("{}: {error}", args.pool.display()))
}

fn refused(args: &Convert, error: &ConvertError) -> Failure {
    let failure = failed(args, error);
    let pool = quoted(&args.pool);
    match error {
        ConvertError::NoRoom { .. } => failure.advise(format!(
            "nothing was changed; remove files, or export {pool}:/ and import it into a pool with \
             a larger -O metadata=SIZE"
        )),
        ConvertError::Unsound { .. } => failure.advise(format!(
            "nothing was changed; `vellum repair {pool}` repairs damage"
        )),
        _ => failure,
    }
}

fn already(args: &Convert, to: NamespaceKind, resumed: bool) -> Outcome {
    let name = to.name();
    if args.printing.json {
        return print_json(&Answer {
            pool: args.pool.display().to_string(),
            changed: resumed,
            resumed,
            from: name,
            to: name,
            names: 0,
            directories: 0,
        });
    }
    if args.printing.quiet {
        return Ok(());
    }
    let pool = args.pool.display();
    if resumed {
        say!("{pool}: an earlier conversion was finished; its namespace is {name}");
    } else {
        say!("{pool}: its namespace is {name} already; nothing was changed");
    }
    Ok(())
}

fn tell(args: &Convert, planned: &Conversion, resumed: bool) -> Outcome {
    let Conversion {
        from,
        to,
        names,
        directories,
        ..
    } = planned;
    let pool = args.pool.display();
    if args.printing.json {
        return print_json(&Answer {
            pool: pool.to_string(),
            changed: !args.dry_run || resumed,
            resumed,
            from: from.name(),
            to: to.name(),
            names: *names,
            directories: *directories,
        });
    }
    if args.printing.quiet {
        return Ok(());
    }
    if resumed {
        say!("{pool}: an earlier conversion was finished");
    }
    let verb = if args.dry_run {
        "would be converted"
    } else {
        "converted"
    };
    say!(
        "{pool}: {verb} from {} to {}: {names} names in {directories} directories",
        from.name(),
        to.name()
    );
    Ok(())
}
