//! Areas that come and go during other operations, which must not notice.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use vellum::media::Real;
use vellum::{Cred, Error, FileKind, Fs, ListPosition, NamespaceKind, Node};

use super::fixture::{Backend, Shape};
use vellum_testing::Random;

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

/// Lookups of absent names wait for a directory that is moved, and may have all thread slots.
#[test]
fn a_directory_is_moved_while_lookups_have_all_thread_slots() {
    const SLOTS: u32 = 2;
    let shape = Shape::new(8 << 20, SLOTS, 1 << 20).with(NamespaceKind::Adaptive);
    let fs = <Real as Backend>::make(&shape);
    let cred = Cred::root();
    let dir = fs.mkdir(&cred, &fs.root(), b"d", 0o755).expect("made");
    for number in 0..600 {
        let name = format!("{number}");
        fs.mknod(&cred, &dir, name.as_bytes(), FileKind::File, 0o644, 0)
            .expect("made");
    }
    let stop = Arc::new(AtomicBool::new(false));
    for _ in 0..2 * SLOTS {
        let (fs, stop) = (Arc::clone(&fs), Arc::clone(&stop));
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let absent = fs.stat_from_root(&Cred::root(), b"/d/absent", true);
                assert!(matches!(absent, Err(Error::NotFound)), "{absent:?}");
            }
        });
    }
    let (moved, is_moved) = mpsc::channel();
    std::thread::spawn(move || {
        for _ in 0..10 {
            assert!(fs.split(&dir).expect("split"));
            assert!(fs.merge(&dir).expect("merged"));
        }
        moved.send(()).expect("somebody waits");
    });
    let ended = is_moved.recv_timeout(Duration::from_secs(60));
    stop.store(true, Ordering::Relaxed);
    ended.expect("a move waits for a thread slot");
}
