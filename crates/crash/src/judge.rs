//! Judging one image that a crash left: check, recover, read, use, close, check again.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};

use vellum_check::{MemoryImage, Options as CheckOptions, Severity, check};
use vellum_media::{Event, Memory};

use crate::exercise::exercise;
use crate::memories::Shared;
use crate::report::Kind;
use crate::session::{CLOCK_AFTER, CLOCK_START, ExploredFs, mount};
use crate::tree::{Tree, read_tree};

/// What was found about an image, whatever the moment of the crash.
#[derive(Clone, Debug, Default)]
pub(crate) struct Verdict {
    /// Names the recovered tree but for its times.
    pub(crate) meaning: u64,
    /// Names the recovered tree with its times, if it could be read.
    pub(crate) tree: Option<u64>,
    /// What is wrong.
    pub(crate) failures: Vec<(Kind, String)>,
}

/// An image, judged.
pub(crate) struct Judged {
    pub(crate) verdict: Verdict,
    /// The recovered tree, if it could be read: whether it is allowed is an oracle's to say.
    pub(crate) tree: Option<Tree>,
    /// Everything that recovery did to the pool, up to the moment it was open.
    pub(crate) recovery: Vec<Event>,
}

/// Judges what `pool` holds, and leaves it as it was. Trees that are not `known` are also looked at
/// after the close.
pub(crate) fn judge(pool: &mut Shared, cache_entries: u64, known: &HashSet<u64>) -> Judged {
    let mut verdict = Verdict::default();
    let mut recovery = Vec::new();
    let mut tree = None;
    check_crashed(pool, &mut verdict);
    pool.0.start_recording();
    let run = || {
        let mut trial = Trial {
            cache_entries,
            pool,
            known,
            verdict: &mut verdict,
            recovery: &mut recovery,
        };
        if let Some((fs, read)) = trial.recover() {
            trial.use_up(fs, tree.insert(read));
        }
    };
    let outcome = catch_unwind(AssertUnwindSafe(run));
    let rest = pool.0.take_log();
    pool.undo(&rest);
    pool.undo(&recovery);
    if let Err(panic) = outcome {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied());
        let text = text.unwrap_or("a panic without a message").to_owned();
        verdict.failures.push((Kind::Panic, text));
    }
    if let Some(at) = pool.damaged() {
        let text = format!("an access outside the pool, at {at:#x}");
        verdict.failures.push((Kind::Panic, text));
        *pool = Shared::of(pool.0.image());
    }
    Judged {
        verdict,
        tree,
        recovery,
    }
}

/// The tree that recovery makes of what `pool` holds, which is left as it was.
pub(crate) fn recovered_tree(pool: &Shared, cache_entries: u64) -> Option<Tree> {
    pool.0.start_recording();
    let read = || read_tree(&mount(pool, cache_entries, CLOCK_AFTER).ok()?).ok();
    let tree = catch_unwind(AssertUnwindSafe(read));
    pool.undo(&pool.0.take_log());
    tree.ok().flatten()
}

fn check_crashed(pool: &Shared, verdict: &mut Verdict) {
    let report = check(&MemoryImage(&*pool.0), CheckOptions::default());
    let damage = report
        .findings
        .iter()
        .filter(|finding| finding.severity == Severity::Damage);
    let lines: Vec<_> = damage.take(3).map(ToString::to_string).collect();
    if !lines.is_empty() {
        verdict.failures.push((Kind::Damage, lines.join("; ")));
    }
}

struct Trial<'a> {
    cache_entries: u64,
    pool: &'a Shared,
    known: &'a HashSet<u64>,
    verdict: &'a mut Verdict,
    recovery: &'a mut Vec<Event>,
}

impl Trial<'_> {
    fn fail(&mut self, kind: Kind, what: impl ToString) {
        self.verdict.failures.push((kind, what.to_string()));
    }

    /// Opens the pool and reads what is there.
    fn recover(&mut self) -> Option<(ExploredFs, Tree)> {
        let fs = mount(self.pool, self.cache_entries, CLOCK_AFTER)
            .map_err(|error| self.fail(Kind::Recovery, error))
            .ok()?;
        *self.recovery = self.pool.0.take_log();
        self.pool.0.start_recording();
        let tree = read_tree(&fs)
            .map_err(|error| self.fail(Kind::Reading, error))
            .ok()?;
        self.verdict.meaning = meaning(&tree);
        self.verdict.tree = Some(identity(&tree));
        Some((fs, tree))
    }

    /// Uses what was recovered, closes it and looks at it again.
    fn use_up(&mut self, fs: ExploredFs, tree: &Tree) {
        if let Err(error) = exercise(&fs, tree) {
            return self.fail(Kind::Use, error);
        }
        match read_tree(&fs) {
            Ok(after) if after.nodes == tree.nodes => {}
            Ok(after) => {
                let lines = vellum_model::diff(&tree.nodes, &after.nodes).join("; ");
                return self.fail(Kind::Use, format!("use changed the tree: {lines}"));
            }
            Err(error) => return self.fail(Kind::Use, error),
        }
        if let Err(error) = fs.close() {
            return self.fail(Kind::Close, error);
        }
        let report = check(&MemoryImage(&*self.pool.0), CheckOptions::default());
        let lines: Vec<_> = report
            .findings
            .iter()
            .take(3)
            .map(ToString::to_string)
            .collect();
        if !lines.is_empty() {
            return self.fail(Kind::Unclean, lines.join("; "));
        }
        drop(fs);
        if !self.known.contains(&self.verdict.meaning) {
            self.reopen(tree);
        }
    }

    /// A clean pool opens as it was closed.
    fn reopen(&mut self, tree: &Tree) {
        let opened = mount(self.pool, self.cache_entries, 2 * CLOCK_AFTER - CLOCK_START);
        match opened.and_then(|fs| read_tree(&fs)) {
            Ok(found) if found.nodes == tree.nodes => {}
            Ok(found) => {
                let lines = vellum_model::diff(&tree.nodes, &found.nodes).join("; ");
                self.fail(
                    Kind::Unclean,
                    format!("another tree after reopening: {lines}"),
                );
            }
            Err(error) => self.fail(Kind::Unclean, format!("reopening: {error}")),
        }
    }
}

/// A number for a tree without its times.
fn meaning(tree: &Tree) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (path, node) in &tree.nodes {
        (
            path,
            node.mode,
            node.nlink,
            node.uid,
            node.gid,
            &node.identity,
        )
            .hash(&mut hasher);
        match &node.body {
            vellum_model::SnapshotBody::File { size, blocks } => {
                (0, size, blocks).hash(&mut hasher)
            }
            vellum_model::SnapshotBody::Dir => 1.hash(&mut hasher),
            vellum_model::SnapshotBody::Symlink(target) => (2, target).hash(&mut hasher),
        }
    }
    hasher.finish()
}

/// A number for a tree with its times.
fn identity(tree: &Tree) -> u64 {
    let mut hasher = DefaultHasher::new();
    meaning(tree).hash(&mut hasher);
    for (path, (ino, times)) in &tree.times {
        (path, ino, times.atime, times.mtime, times.ctime).hash(&mut hasher);
    }
    hasher.finish()
}
