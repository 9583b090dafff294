//! `vellum check --online`: checks a mounted pool. The mount's process copies the metadata, as they
//! are at one instant, to a temporary file, and that is checked.

use std::fs::File;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;
use vellum::CopyScope;
use vellum::media::{BLOCK_BYTES, NewFile};
use vellum_check::{Image, Left, Options, Report};
use vellum_terminal::output::{print_json, say, warn_line};
use vellum_terminal::{Failure, Outcome, quoted};

use super::{progress, show};
use crate::args::Check;
use crate::copies::{self, Made};
use crate::info;

/// What only a pool at rest can be checked for.
const NOT_CHECKED: [&str; 3] = [
    "whether the pool's file or device holds the same bytes as the memory of the mount",
    "what a clean close saves: allocator state, live map and counters",
    "whether other datasets are where the pool's table says",
];

/// What `--json` prints.
#[derive(Serialize)]
struct Online<'r> {
    #[serde(flatten)]
    report: &'r Report,
    online: Beside,
}

/// How the check of a pool in use was made.
#[derive(Serialize)]
struct Beside {
    /// How long changes waited.
    paused_us: u64,
    not_checked: [&'static str; 3],
}

/// A copy of the metadata. Some of its blocks could not be read.
struct Metadata<'f> {
    file: &'f File,
    unreadable: &'f [u64],
}

impl Image for Metadata<'_> {
    fn len(&self) -> u64 {
        Image::len(self.file)
    }

    fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        let end = at.saturating_add(out.len() as u64);
        let mut lost = self.unreadable.iter();
        match lost.any(|block| at < block + BLOCK_BYTES && *block < end) {
            true => Err(io::Error::other("the memory of the mount is damaged here")),
            false => Image::read(self.file, at, out),
        }
    }
}

/// Checks a mounted pool.
pub(super) fn run(args: &Check) -> Outcome<ExitCode> {
    let mounted = info::live_mount_of(&args.pool).ok_or_else(|| {
        Failure::new(format!("{} is not mounted here", args.pool.display()))
            .advise("check it without --online")
    })?;
    let copy = temporary()?;
    let bar = progress(args.printing.hides_progress());
    bar.set_message("copying");
    let made = copies::copy(&mounted, CopyScope::Metadata, copy.file(), &bar)?;
    let bar = progress(args.printing.hides_progress());
    let image = Metadata {
        file: copy.file(),
        unreadable: &made.unreadable,
    };
    let left = Left {
        boot: vellum::boot_id(),
        ..Left::default()
    };
    let options = Options {
        strict_clean: false,
        progress: Some(&|stage, done, of| show(&bar, stage, done, of)),
    };
    let report = vellum_check::check_killed(&image, left, options).of_pool_in_use();
    bar.finish_and_clear();
    tell(args, &mounted.pool, &report, &made)?;
    Ok(super::exit_code(&report))
}

/// An empty file, in the directory for temporary files.
fn temporary() -> Outcome<NewFile> {
    let dir = std::env::temp_dir();
    let name = format!("vellum-check-{}", std::process::id());
    NewFile::create(&dir.join(name)).map_err(|error| {
        Failure::io(dir.display(), &error)
            .advise("TMPDIR names another directory for the copy of the metadata")
    })
}

fn tell(args: &Check, pool: &Path, report: &Report, made: &Made) -> Outcome {
    if args.printing.json {
        return print_json(&Online {
            report,
            online: Beside {
                paused_us: made.paused_us,
                not_checked: NOT_CHECKED,
            },
        });
    }
    for finding in &report.findings {
        say!("{finding}");
    }
    if args.printing.quiet {
        return Ok(());
    }
    if report.omitted > 0 {
        say!(
            "and {} more",
            vellum_check::counted(report.omitted, "finding")
        );
    }
    say!("{}", report.summary);
    say!(
        "the mounted pool is {}, at an instant for which changes waited {}.{:03} ms",
        report.verdict(),
        made.paused_us / 1000,
        made.paused_us % 1000
    );
    say!("not checked: {}", NOT_CHECKED.join("; "));
    if !report.is_sound() {
        let pool = quoted(pool);
        warn_line!("once it is unmounted, `vellum check {pool}` shows everything that is wrong");
    }
    Ok(())
}
