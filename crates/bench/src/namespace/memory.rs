//! The DRAM that a pool's file system takes after a `stat` of each of its files.

use vellum::{CreateOptions, NamespaceKind, PoolOptions};

use super::subjects::{ADAM, BASELINE, DEFAULT, Setting, pool_path};
use crate::Result;
use crate::figure::{Axis, Scale};
use crate::library::Library;
use crate::mapping::{Grid, Sample};
use crate::memory::SmallPages;
use crate::order::names;
use crate::report::Outcome;
use crate::side::Side;
use crate::target::Target;

/// Files of a directory.
const IN_ONE: usize = 100;
/// The target: the DRAM of ADAM's namespace over that of the default one.
const RATIO: f64 = 0.15;
/// Bytes of metadata per file, and bytes of the pool per byte of metadata.
const METADATA_BYTES: u64 = 512;
const POOL_PER_METADATA: u64 = 4;
const POOL_MIN_BYTES: u64 = 64 << 20;

pub(super) fn measure(setting: &Setting<'_>) -> Result<Outcome> {
    let _small = SmallPages::only()?;
    let dirs = setting.options.files.div_ceil(IN_ONE);
    let files = (dirs * IN_ONE).to_string();
    let sides = NamespaceKind::ALL.map(|namespace| namespace.name().to_owned());
    let mut grid = Grid::bars(
        "memory",
        "DRAM after a stat of each file",
        "files",
        &[&files],
    )
    .of(Axis::of("DRAM of a file", "bytes", Scale::Linear))
    .named(sides.into(), DEFAULT, BASELINE)
    .claim(
        "ADAM keeps its hash tables in persistent memory, while NOVA has a tree for each \
         directory in DRAM.",
    )
    .note(format!(
        "Memory in use after a stat of each file ({IN_ONE} in a directory, none of them open), \
         minus that before the pool was opened; in pages of 4 KiB."
    ));
    for (side, namespace) in NamespaceKind::ALL.into_iter().enumerate() {
        setting.check()?;
        let taken = taken(setting, namespace, dirs)?;
        // The memory in use does not vary between rounds.
        grid.add(1, side, 0, taken);
    }
    let ratio = grid.over(ADAM, DEFAULT, &files);
    let what = format!("DRAM of {ADAM} over that of {DEFAULT}");
    let target = ratio.map(|ratio| Target::at_most(what, ratio, RATIO));
    Ok(Outcome::new(
        vec![grid.figure()],
        target.into_iter().collect(),
    ))
}

fn dir_name(number: usize) -> String {
    format!("dir-{number}")
}

/// Bytes of DRAM per file.
fn taken(setting: &Setting<'_>, namespace: NamespaceKind, dirs: usize) -> Result<Sample> {
    let dir = setting.dir()?;
    let files = (dirs * IN_ONE) as u64;
    let metadata = (files * METADATA_BYTES).max(POOL_MIN_BYTES / POOL_PER_METADATA);
    let options = CreateOptions::new(metadata * POOL_PER_METADATA)
        .namespace(namespace)
        .metadata_bytes(Some(metadata));
    let mut library =
        Library::create_with(pool_path(dir.path()), &options, PoolOptions::default())?;
    let names = names("file-", IN_ONE);
    for number in 0..dirs {
        setting.check()?;
        let path = dir_name(number);
        library.make_dir(&path)?;
        let dir = library.dir(&path)?;
        names
            .iter()
            .try_for_each(|name| library.create(&dir, name))?;
    }
    library.close()?;
    let before = Library::resident_bytes()?;
    library.reopen()?;
    for number in 0..dirs {
        setting.check()?;
        let dir = library.dir(&dir_name(number))?;
        for name in &names {
            library.stat(&dir, name)?;
        }
    }
    let taken = Library::resident_bytes()?.saturating_sub(before);
    Ok(Sample {
        value: taken as f64 / files as f64,
        ops: files,
        counts: vellum::media::count::Counts::default(),
    })
}
