//! `vellum repair`.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{BufRead, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use vellum::{Pool, PoolPath};
use vellum_check::{Class, Image, MemoryImage, Report, Severity, counted};
use vellum_repair::undo::{self, Undo};
use vellum_repair::{Action, LostBytes, Options, Plan, apply_watched, plan};
use vellum_terminal::output::{print, print_json, say, warn_line};
use vellum_terminal::{Failure, Outcome, quoted, status};

use crate::args::Repair;
use crate::bytes::Bytes;
use crate::check;
use crate::killed::{self, Left};
use crate::location;
use crate::units;

/// The output of `--json`.
#[derive(Serialize)]
struct Answer<'a> {
    pool: String,
    exit_code: i32,
    /// Whether the pool was changed.
    changed: bool,
    refused: Option<&'a str>,
    actions: &'a [Action],
    undo: Option<String>,
    /// Bytes of files that remain lost.
    lost: &'a [LostBytes],
    before: &'a Report,
    after: &'a Report,
}

/// The output of `--restore --json`.
#[derive(Serialize)]
struct Restored {
    pool: String,
    /// Bytes that were put back.
    bytes: u64,
}

/// Repairs a pool; the exit status is that of fsck(8).
pub(crate) fn run(args: &Repair) -> Outcome<ExitCode> {
    let done = match &args.restore {
        Some(file) => restore(args, file),
        None => location::refuse_later_release(&args.pool).and_then(|()| {
            if args.unless_clean && killed::is_closed_cleanly(&args.pool, &args.opening)? {
                if !args.printing.quiet {
                    say!("{}: closed cleanly, not checked", args.pool.display());
                }
                return Ok(ExitCode::SUCCESS);
            }
            match args.dry_run {
                true => dry_run(args),
                false => repair(args),
            }
        }),
    };
    done.map_err(|failure| match failure.status {
        status::CHECK_USAGE => failure,
        _ => failure.with_status(status::CHECK_OPERATION),
    })
}

/// Reports what a repair would do.
fn dry_run(args: &Repair) -> Outcome<ExitCode> {
    let image = Bytes::open(&args.pool, &args.opening.data)?;
    if let Left::Alive(_) = killed::left(&image, &args.pool)? {
        let pool = args.pool.display();
        return Err(Failure::new(format!(
            "{pool}: a killed process left changes in memory that the pool's file does not have"
        ))
        .advise(format!(
            "`vellum check {}` checks them too; a repair without --dry-run writes them to the pool \
             first",
            quoted(&args.pool)
        )));
    }
    finish(args, &planned(args, &image, &BTreeSet::new()), None)
}

fn planned(args: &Repair, image: &dyn Image, declined: &BTreeSet<Class>) -> Plan {
    let bar = check::progress(args.printing.hides_progress());
    let tell = |stage, done, of| check::show(&bar, stage, done, of);
    let made = plan(
        image,
        Options {
            declined: Some(declined),
            now_ns: now_ns(),
            progress: Some(&tell),
        },
    );
    bar.finish_and_clear();
    made
}

fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_nanos()).unwrap_or(0))
}

fn repair(args: &Repair) -> Outcome<ExitCode> {
    if args.force_data_device {
        let accepted = Pool::force_data_device(&args.pool, &args.opening.data);
        accepted.map_err(|error| location::refused(&args.pool, &error))?;
    }
    if args.discard_image {
        killed::settle(&args.pool, &args.opening, true)?;
    }
    let pool = location::open_as_it_is(&args.pool, &args.opening)?;
    let image = MemoryImage(&pool);
    let mut made = planned(args, &image, &BTreeSet::new());
    if made.is_empty() {
        return finish(args, &made, None);
    }
    if !args.yes {
        let declined = ask(args, &made)?;
        if !declined.is_empty() {
            made = planned(args, &image, &declined);
        }
    }
    if made.is_empty() {
        return finish(args, &made, None);
    }
    let saved = save(args, &made, &image)?;
    let done = check::writing(args.printing.hides_progress(), |tell| {
        apply_watched(&pool, &made, tell)
    });
    done.map_err(|error| {
        let failure = Failure::new(format!("{}: {error}", args.pool.display()));
        match &saved {
            Some(file) => failure.advise(format!(
                "`vellum repair {} --restore {}` puts the old contents back",
                quoted(&args.pool),
                quoted(file)
            )),
            None => failure,
        }
    })?;
    finish(args, &made, saved.as_deref())
}

/// Asks about each class of damage. Returns the declined classes.
fn ask(args: &Repair, made: &Plan) -> Outcome<BTreeSet<Class>> {
    if args.printing.json || !std::io::stdin().is_terminal() {
        return Err(usage("cannot ask what to repair: no terminal")
            .advise("use --yes to repair everything, or --dry-run to see what would be done"));
    }
    Ok(asked(made, &mut std::io::stdin().lock().lines()))
}

/// Asks, and reads the answers. Classes without an answer at the end of input are declined.
fn asked(
    made: &Plan,
    lines: &mut impl Iterator<Item = std::io::Result<String>>,
) -> BTreeSet<Class> {
    let mut declined = BTreeSet::new();
    let mut ended = false;
    for (class, count) in made.classes() {
        // No question about repairs that recovery would do too, or that follow from accepted ones.
        let damage = |found: &vellum_check::Finding| found.severity == Severity::Damage;
        if !made.before.of(class).any(damage) {
            continue;
        }
        if ended {
            declined.insert(class);
            continue;
        }
        for action in made
            .actions
            .iter()
            .filter(|action| action.class == class)
            .take(5)
        {
            say!("{action}");
        }
        if count > 5 {
            say!("and {} more of this class", count - 5);
        }
        match answer(lines, class) {
            Some(Answered::Yes) => {}
            Some(Answered::No) => {
                declined.insert(class);
            }
            Some(Answered::All) => break,
            None => {
                say!("");
                ended = true;
                declined.insert(class);
            }
        }
    }
    declined
}

enum Answered {
    Yes,
    No,
    All,
}

/// The answer for a class; `None` at the end of input.
fn answer(
    lines: &mut impl Iterator<Item = std::io::Result<String>>,
    class: Class,
) -> Option<Answered> {
    loop {
        // An error here is ignored: if the terminal is gone, the next read fails.
        let _ = print(format!("Repair this ({class})? [y]es, [n]o, [a]ll: "));
        let line = lines.next()?.ok()?;
        match line.trim() {
            "y" | "yes" => return Some(Answered::Yes),
            "n" | "no" => return Some(Answered::No),
            "a" | "all" => return Some(Answered::All),
            _ => {}
        }
    }
}

fn usage(message: &str) -> Failure {
    Failure::new(message).with_status(status::CHECK_USAGE)
}

/// Saves the bytes that the plan overwrites. Returns the file.
fn save(args: &Repair, made: &Plan, image: &dyn Image) -> Outcome<Option<PathBuf>> {
    if args.no_undo {
        return Ok(None);
    }
    let file = match &args.undo {
        Some(file) => file.clone(),
        None => beside(&args.pool)?,
    };
    undo::write(&file, made, image).map_err(|error| {
        Failure::io(file.display(), &error)
            .advise("nothing was changed; give another file with --undo, or use --no-undo")
    })?;
    Ok(Some(file))
}

/// `POOL.undo-DATE`.
fn beside(pool: &Path) -> Outcome<PathBuf> {
    let file = PoolPath::of(pool).pool;
    if !std::fs::metadata(file).is_ok_and(|found| found.is_file()) {
        return Err(
            usage("the repair of a device needs a place to save the overwritten bytes")
                .advise("give a file with --undo, or use --no-undo"),
        );
    }
    let date: String = units::time(now_ns())
        .chars()
        .filter(|c| !matches!(c, '-' | ':'))
        .map(|c| if c == ' ' { 'T' } else { c })
        .collect();
    let mut name = pool.as_os_str().to_owned();
    name.push(format!(".undo-{date}Z"));
    let numbered = (2..1000).map(|number| {
        let mut name = name.clone();
        name.push(format!("-{number}"));
        name
    });
    // There may be a file of the same second already.
    let mut names = std::iter::once(name.clone()).chain(numbered);
    let is_free = |name: &OsString| Path::new(name).symlink_metadata().is_err();
    Ok(names.find(is_free).unwrap_or(name).into())
}

/// Reports what was done, or would be done.
fn finish(args: &Repair, made: &Plan, saved: Option<&Path>) -> Outcome<ExitCode> {
    let code = made.exit_code();
    let changed = args.force_data_device || args.discard_image || !args.dry_run && !made.is_empty();
    if args.printing.json {
        let answer = Answer {
            pool: args.pool.display().to_string(),
            exit_code: code,
            changed,
            refused: made.refused.as_deref(),
            actions: &made.actions,
            undo: saved.map(|file| file.display().to_string()),
            lost: &made.lost,
            before: &made.before,
            after: &made.after,
        };
        print_json(&answer)?;
    } else {
        tell(args, made, saved);
    }
    Ok(ExitCode::from(
        u8::try_from(code).unwrap_or(status::CHECK_OPERATION),
    ))
}

fn tell(args: &Repair, made: &Plan, saved: Option<&Path>) {
    let pool = args.pool.display();
    for action in &made.actions {
        say!("{action}");
    }
    for lost in &made.lost {
        say!("lost: {lost}");
    }
    if !made.mends_all() {
        for found in &made.after.findings {
            say!("left: {found}");
        }
    }
    if let Some(why) = &made.refused {
        warn_line!("vellum: {pool} cannot be repaired: {why}");
        if let Some(error) = location::superblock_error(&args.pool) {
            warn_line!("  {}", location::advice_for(&args.pool, &error));
        }
        return;
    }
    if args.printing.quiet {
        return;
    }
    let given_up = made.actions.iter().filter(|action| action.loses).count();
    let count = made.actions.len();
    match (made.is_empty(), args.dry_run) {
        (true, _) if made.mends_all() => {
            let done = match (args.force_data_device, args.discard_image) {
                (true, true) => {
                    "its data device was accepted as it is, in the state of its last \
                                 commit"
                }
                (true, false) => "its data device was accepted as it is",
                (false, true) => "it is in the state of its last commit",
                (false, false) => "nothing was changed",
            };
            say!("{pool} is sound; {done}");
            if made.before.residue > 0 {
                let left = counted(made.before.residue, "leftover");
                say!("the next opening removes {left} of a crash");
            }
        }
        (true, _) => say!("{pool} is damaged; nothing was changed"),
        (false, true) => {
            let repairs = counted(count as u64, "repair");
            say!(
                "{pool}: {repairs} would be made, {given_up} of them with a loss of unreadable \
                  data"
            )
        }
        (false, false) => {
            let repairs = counted(count as u64, "repair");
            say!("{pool}: {repairs} made, {given_up} of them with a loss of unreadable data")
        }
    }
    if !made.is_empty() && !made.mends_all() {
        say!("{pool} is still damaged: it can be mounted read-only");
    }
    if let Some(file) = saved {
        say!(
            "the overwritten bytes are in {}; `vellum repair {} --restore {}` puts them back",
            file.display(),
            quoted(&args.pool),
            quoted(file)
        );
    }
}

/// Puts back the bytes that a repair overwrote.
fn restore(args: &Repair, file: &Path) -> Outcome<ExitCode> {
    let failed = |error| Failure::new(format!("{}: {error}", file.display()));
    let undo = Undo::read(file).map_err(failed)?;
    let pool = location::open_as_it_is(&args.pool, &args.opening)?;
    check::writing(args.printing.hides_progress(), |tell| {
        undo.restore_watched(&pool, tell)
    })
    .map_err(failed)?;
    let (pool, bytes) = (args.pool.display().to_string(), undo.bytes());
    if args.printing.json {
        print_json(&Restored { pool, bytes })?;
    } else if args.printing.has_summary() {
        say!("{pool}: {bytes} bytes restored to their state before the repair");
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A plan with one action for each of these classes.
    fn plan_about(classes: &[Class]) -> Plan {
        let mut made = plan(&vec![0; 10], Options::default());
        let actions = classes.iter().map(|&class| Action {
            class,
            place: "inode 3".into(),
            what: "mended".into(),
            loses: false,
        });
        made.actions = actions.collect();
        let found = made.before.findings[0].clone();
        let findings = classes.iter().map(|&class| vellum_check::Finding {
            class,
            ..found.clone()
        });
        made.before.findings = findings.collect();
        made
    }

    fn answers(made: &Plan, lines: &[&str]) -> Vec<Class> {
        let mut lines = lines.iter().map(|line| Ok((*line).to_owned()));
        asked(made, &mut lines).into_iter().collect()
    }

    #[test]
    fn each_class_is_asked_about() {
        let classes = [Class::Size, Class::Unnamed, Class::MapTwice];
        let mut made = plan_about(&classes);
        assert_eq!(answers(&made, &["y", "yes", " y "]), []);
        assert_eq!(
            answers(&made, &["n", "?", "", "no", "y"]),
            [Class::Size, Class::Unnamed]
        );
        assert_eq!(answers(&made, &["n", "a"]), [Class::Size]);
        assert_eq!(answers(&made, &["y", "y"]), [Class::MapTwice]);
        let mut all = classes.to_vec();
        all.sort_unstable();
        assert_eq!(answers(&made, &[]), all);
        // There is no question about repairs that follow from accepted ones, or that recovery would
        // do.
        made.before.findings.remove(0);
        made.before.findings[0].severity = Severity::Residue;
        assert_eq!(answers(&made, &["n"]), [Class::MapTwice]);
    }
}
