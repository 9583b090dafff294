//! The time and the memory that opening a pool of many files takes, after a clean close, a kill,
//! and a power cut.

use vellum::NamespaceKind;

use super::{NO_CLAIM, Setting, pool_of};
use crate::Result;
use crate::figure::{Axis, Scale};
use crate::left::{DIR_FILES, Left, Opening, State, logged_pool, metadata_bytes};
use crate::mapping::{Grid, Sample};
use crate::report::Outcome;
use crate::scratch::dir_in;
use crate::target::Target;

/// The side that sentences are about.
const DEFAULT: &str = "direct, in memory";
/// The states in which a pool is opened.
const LABELS: [&str; 4] = ["closed", "closed, not cached", "killed", "power cut"];
/// How many of them follow a clean close.
const CLOSED: usize = 2;
/// The most milliseconds that opening a closed pool may take, in memory and with a log.
const ASKED: [f64; 2] = [50.0, 3000.0];
/// Bytes of data of a pool in memory, of which nothing is used.
const DATA_BYTES: u64 = 16 << 20;
const MEDIA: [&str; 2] = ["in memory", "with a log"];

pub(super) fn measure(setting: &Setting<'_>) -> Result<Outcome> {
    let files = setting.options.files;
    let namespaces = setting.options.namespaces();
    let name = |kind: &NamespaceKind, medium: &str| format!("{}, {medium}", kind.name());
    let sides = MEDIA
        .iter()
        .flat_map(|medium| namespaces.iter().map(|one| name(one, medium)));
    let sides: Vec<String> = sides.collect();
    let grid = |part: &str, title: &str, y: Axis| {
        Grid::bars(part, title, "as it was left", &LABELS)
            .of(y)
            .named(sides.clone(), DEFAULT, DEFAULT)
            .claim(NO_CLAIM)
            .note(format!(
                "{files} empty files in directories of {DIR_FILES}. A pool in memory is not \
                 measured after a power cut, since nothing is left of it. After a power cut the \
                 log has records of up to 64 MiB. DRAM is private memory and the arena; the \
                 image of a pool with a log is not part of it."
            ))
    };
    let mut time = grid(
        "opening",
        "Opening a pool of many files",
        Axis::of("time until it can be used", "ms", Scale::Log),
    );
    let mut dram = grid(
        "opening-dram",
        "DRAM after opening a pool of many files",
        Axis::of("DRAM", "MiB", Scale::Log),
    );
    for (medium, _) in MEDIA.iter().enumerate() {
        for (at, &namespace) in namespaces.iter().enumerate() {
            let side = medium * namespaces.len() + at;
            let is_logged = medium == 1;
            measure_side(
                setting,
                (namespace, is_logged),
                &mut |round, label, opening| {
                    let ms = opening.time.as_secs_f64() * 1e3;
                    time.add(round, side, label, Sample::of(ms));
                    let mib = opening.dram_bytes as f64 / f64::from(1 << 20);
                    dram.add(round, side, label, Sample::of(mib));
                },
            )?;
        }
    }
    let mut targets = Vec::new();
    for (side, asked) in sides.iter().zip(
        ASKED
            .iter()
            .flat_map(|&asked| std::iter::repeat_n(asked, namespaces.len())),
    ) {
        let worst = LABELS[..CLOSED]
            .iter()
            .filter_map(|label| time.middle(side, label));
        let worst = worst.reduce(f64::max);
        let what = format!("{side}, ms to open, closed");
        targets.extend(worst.map(|worst| Target::at_most(what, worst, asked)));
    }
    Ok(Outcome::new(vec![time.figure(), dram.figure()], targets))
}

/// Measures a pool in each state, round by round.
fn measure_side(
    setting: &Setting<'_>,
    (namespace, is_logged): (NamespaceKind, bool),
    add: &mut dyn FnMut(usize, usize, Opening),
) -> Result<()> {
    let options = setting.options;
    let files = options.files;
    let parent = if is_logged {
        &options.disk
    } else {
        &options.pool_dir
    };
    let made = match is_logged {
        true => logged_pool(files).namespace(namespace),
        false => pool_of(namespace, metadata_bytes(files), DATA_BYTES),
    };
    let dir = dir_in(parent)?;
    let progress = setting.progress(namespace.name(), files);
    let tools = (setting.interrupt, &progress);
    let pool = Left::make(dir.path().join("pool"), &made, files, tools)?;
    progress.finish_and_clear();
    for round in setting.rounds() {
        setting.check()?;
        if is_logged {
            pool.leave(true)?;
            add(round, 3, pool.open(State::Cut)?);
        }
        add(round, 0, pool.open(State::Closed)?);
        if is_logged {
            pool.forget()?;
            add(round, 1, pool.open(State::Closed)?);
        }
        pool.leave(false)?;
        add(round, 2, pool.open(State::Killed)?);
    }
    Ok(())
}
