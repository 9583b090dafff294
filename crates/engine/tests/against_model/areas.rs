//! Areas that come and go during other operations, which must not notice.

use std::sync::Arc;

use vellum::{Cred, Error, FileKind, Fs, ListPosition, Node};

use super::fixture::Backend;
use super::random::Random;

/// Makes a directory on a random path the root of an area, or ends its area. Nothing changes if the
/// namespace has no areas, if there is no room, or if the directory is removed meanwhile.
pub(crate) fn change_one<M: Backend>(fs: &Arc<Fs<M>>, random: &mut Random) {
    let mut dir = fs.root();
    for _ in 0..=random.below(3) {
        match below(fs, &dir, random) {
            Some(next) => dir = next,
            None => break,
        }
    }
    let changed = match random.below(2) {
        0 => fs.split(&dir),
        _ => fs.merge(&dir),
    };
    let is_expected = matches!(
        changed,
        Ok(_)
            | Err(Error::Unsupported(_)
                | Error::Invalid(_)
                | Error::NotDirectory
                | Error::NotFound
                | Error::NoSpace(_)
                | Error::OutOfMemory(_))
    );
    assert!(is_expected, "{changed:?}");
}

/// One of the directories in `dir`.
fn below<M: Backend>(fs: &Arc<Fs<M>>, dir: &Node<M>, random: &mut Random) -> Option<Node<M>> {
    let mut names = Vec::new();
    fs.list(dir, 0, &mut ListPosition::default(), &mut |entry| {
        if entry.kind == FileKind::Directory {
            names.push(entry.name.to_vec());
        }
        true
    })
    .ok()?;
    let chosen = random.below(names.len().max(1) as u64) as usize;
    fs.lookup(&Cred::root(), dir, names.get(chosen)?).ok()
}
