//! `vellum check`.

mod online;

use std::process::ExitCode;

use indicatif::ProgressBar;
use vellum::PoolPath;
use vellum_check::{Class, Image, Options, Report, Stage};
use vellum_repair::Written;
use vellum_terminal::output::{say, warn_line};
use vellum_terminal::{Failure, Outcome, progress, quoted, status};

use crate::args::Check;
use crate::bytes::Bytes;
use crate::killed::{self, Left};
use crate::location;

/// Checks a pool; the exit status is that of fsck(8).
pub(crate) fn run(args: &Check) -> Outcome<ExitCode> {
    let operational = |failure: Failure| failure.with_status(status::CHECK_OPERATION);
    if args.online {
        return online::run(args).map_err(operational);
    }
    let image = Bytes::open(&args.pool, &args.data).map_err(operational)?;
    location::refuse_later_release(&args.pool).map_err(operational)?;
    let bar = progress(args.printing.hides_progress());
    let tell = |stage, done, of| show(&bar, stage, done, of);
    let left = killed::left(&image, &args.pool).map_err(operational)?;
    let lines = match &left {
        Left::Alive(lines) => &lines[..],
        Left::Nothing | Left::Gone => &[],
    };
    // Only the first dataset has an image file behind it.
    let is_dataset = PoolPath::of(&args.pool).name.is_some();
    let killed = vellum_check::Left {
        file: (!is_dataset).then_some(image.file() as &dyn Image),
        lines,
        boot: vellum::boot_id(),
    };
    let options = Options {
        strict_clean: args.strict,
        progress: Some(&tell),
    };
    let report = vellum_check::check_killed(&image, killed, options);
    bar.finish_and_clear();
    if args.printing.json {
        let text = serde_json::to_string_pretty(&report)
            .map_err(|error| operational(Failure::new(error.to_string())))?;
        say!("{text}");
    } else if args.printing.quiet {
        for finding in &report.findings {
            say!("{finding}");
        }
    } else {
        tell_left(&left);
        say!("{report}");
        let pool = quoted(&args.pool);
        let missing = report.of(Class::Dataset).count() as u64;
        if missing > 0 {
            warn_line!(
                "`vellum dataset remove --force {pool} NAME` removes a missing dataset from the \
                 table"
            );
        }
        if report.damage > missing {
            match report.complete {
                true => warn_line!("`vellum repair {pool}` repairs it; --dry-run shows how"),
                false => warn_line!("{}", location::advice_for_incomplete(&args.pool)),
            }
        }
    }
    Ok(exit_code(&report))
}

fn exit_code(report: &Report) -> ExitCode {
    ExitCode::from(u8::try_from(report.exit_code()).unwrap_or(status::CHECK_OPERATION))
}

/// Reports what a killed process left in memory.
fn tell_left(left: &Left) {
    match left {
        Left::Nothing => {}
        Left::Gone => say!(
            "a process was killed and its image in memory is gone: the pool is in the state of its \
             last commit"
        ),
        Left::Alive(_) => say!(
            "a process was killed; the check includes the image that it left in memory, which the \
             next opening adopts"
        ),
    }
}

/// Runs `work` with a progress bar. It reports how many words, blocks or lines it has written.
pub(crate) fn writing<T>(hidden: bool, work: impl FnOnce(Written<'_>) -> T) -> T {
    let bar = progress(hidden);
    bar.set_message("writing");
    let done = work(&|done, of| {
        bar.set_length(of);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    done
}

/// A progress bar on standard error, if that is a terminal.
pub(crate) fn progress(hidden: bool) -> ProgressBar {
    progress::ticking_bar(hidden, "{msg:12} {wide_bar} {human_pos}/{human_len}")
}

/// Shows the progress of a check.
pub(crate) fn show(bar: &ProgressBar, stage: Stage, done: u64, of: u64) {
    bar.set_message(match stage {
        Stage::Inodes => "inodes",
        Stage::Directories => "directories",
        Stage::Blocks => "blocks",
    });
    bar.set_length(of);
    bar.set_position(done);
}
