//! Work on a source tree: unpack it, find its files, sum up their sizes, rename it, remove it.

use std::ffi::CString;

use super::subjects::{
    ADAM, BASELINE, DEFAULT, PoolKind, Room, Setting, Work, names as names_of, timed,
};
use crate::Result;
use crate::mapping::{Grid, Sample};
use crate::report::Outcome;
use crate::side::{For, Side};
use crate::tree::Tree;

const LABELS: [&str; 6] = ["unpack", "find", "du", "first rename", "rename", "delete"];
/// The name of the tree, and the one that it is renamed to.
const ROOT: &str = "sources";
const OTHER: &str = "sources.old";
/// Renames of a round after the first one, back and forth, which end with the original name.
const RENAMES: usize = 19;
/// The byte that fills files.
const FILL: u8 = b'v';

pub(super) fn measure(setting: &Setting<'_>) -> Result<Outcome> {
    let options = setting.options;
    let tree = Tree::of(options.tree.as_deref(), options.files)?;
    let room = Room::for_names(tree.names()).and_files(tree.bytes());
    let subjects = setting.subjects(room, &PoolKind::each())?;
    let mut grid = Grid::bars("source-tree", "A source tree", "operation", &LABELS)
        .named(names_of(&subjects), DEFAULT, BASELINE)
        .claim(
            "The paper does not measure this; by its Section 3, what lies together in a tree lies \
             together in an area.",
        )
        .note(tree.note(options.tree.as_deref()))
        .note(format!(
            "The time per name of unpacking with its bytes, listing, listing with its size, and \
             removing; and the time of the first rename of the whole tree, and of each of \
             {RENAMES} renames after it. Nothing is synced."
        ));
    setting.measure(&mut grid, &subjects, &Sources(tree))?;
    let mut figure = grid.figure();
    figure.notes.push(format!(
        "The whole tree is renamed as one large directory, which {ADAM} makes the root of an area \
         at the first rename."
    ));
    Ok(Outcome::new(vec![figure], Vec::new()))
}

struct Sources(Tree);

impl Work for Sources {
    fn fill<S: Side>(&self, _side: &S) -> Result<()> {
        Ok(())
    }

    fn round<S: Side>(&self, side: &S) -> Result<Vec<Sample>> {
        let tree = &self.0;
        let root = side.dir("")?;
        let [here, there] = [ROOT, OTHER].map(|name| CString::new(name).unwrap_or_default());
        Ok(vec![
            timed(side, tree.names(), || unpack(tree, side))?,
            timed(side, tree.names(), || {
                let found = find(tree, side)?;
                side.expect("names found", found, tree.names() as u64 - 1)
            })?,
            timed(side, tree.names(), || {
                let bytes = sum_up(tree, side)?;
                let expected = tree.files().map(|file| file.bytes as u64).sum();
                side.expect("bytes summed up", bytes, expected)
            })?,
            timed(side, 1, || side.rename(&root, &here, &root, &there))?,
            timed(side, RENAMES, || {
                for number in 0..RENAMES {
                    let (from, to) = match number % 2 {
                        0 => (&there, &here),
                        _ => (&here, &there),
                    };
                    side.rename(&root, from, &root, to)?;
                }
                Ok(())
            })?,
            timed(side, tree.names(), || delete(tree, side))?,
        ])
    }
}

/// Creates every directory, then every file with its bytes.
fn unpack<S: Side>(tree: &Tree, side: &S) -> Result<()> {
    let most = tree.files().map(|file| file.bytes).max();
    let bytes = vec![FILL; most.unwrap_or(0)];
    for dir in &tree.dirs {
        side.make_dir(&dir.path(ROOT))?;
    }
    for dir in &tree.dirs {
        let opened = side.dir(&dir.path(ROOT))?;
        for file in &dir.files {
            side.create(&opened, &file.name)?;
            let to = side.open(&opened, &file.name, For::Appending)?;
            let written = side.append(&to, &bytes[..file.bytes])?;
            side.expect("bytes written", written, file.bytes)?;
        }
    }
    Ok(())
}

/// Lists every directory.
fn find<S: Side>(tree: &Tree, side: &S) -> Result<u64> {
    let dirs = tree.dirs.iter();
    dirs.map(|dir| side.list_owned(&side.dir(&dir.path(ROOT))?))
        .sum()
}

/// Lists every directory, and gets the size of each file in it.
fn sum_up<S: Side>(tree: &Tree, side: &S) -> Result<u64> {
    let mut bytes = 0;
    for dir in &tree.dirs {
        let opened = side.dir(&dir.path(ROOT))?;
        side.list_owned(&opened)?;
        for file in &dir.files {
            bytes += side.size(&opened, &file.name)?;
        }
    }
    Ok(bytes)
}

/// Removes every file, and each directory after its content.
fn delete<S: Side>(tree: &Tree, side: &S) -> Result<()> {
    for dir in tree.dirs.iter().rev() {
        let path = dir.path(ROOT);
        let opened = side.dir(&path)?;
        let mut files = dir.files.iter();
        files.try_for_each(|file| side.unlink(&opened, &file.name))?;
        let (above, name) = path.rsplit_once('/').unwrap_or(("", &path));
        let name = CString::new(name).unwrap_or_default();
        side.rmdir(&side.dir(above)?, &name)?;
    }
    Ok(())
}
