//! Judges an image that a crash left: checks it, recovers it, reads and uses it, crashes it again,
//! closes it, and checks it again.

use std::collections::{BTreeSet, HashMap};
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};

use vellum_check::{MemoryImage, Options as CheckOptions, Severity, check};
use vellum_media::{Event, HeapMemory, Memory};
use xxhash_rust::xxh3::Xxh3;

use crate::exercise::exercise;
use crate::memories::{Explored, Shared};
use crate::name::Names;
use crate::replica::{has_replica, replica_tree};
use crate::report::Kind;
use crate::session::{CLOCK_AFTER, CLOCK_START, ExploredFs, Result, mount, mount_with_arena};
use crate::tree::{Tree, read_tree};

/// The findings about an image, at whatever moment the crash happened.
#[derive(Clone, Debug, Default)]
pub(crate) struct Verdict {
    /// Identifies the recovered tree without its times.
    pub(crate) meaning: u64,
    /// Identifies the recovered tree with its times, if it could be read.
    pub(crate) tree: Option<u64>,
    /// What is wrong.
    pub(crate) failures: Vec<(Kind, String)>,
}

/// A judged image.
#[derive(Debug, Default)]
pub(crate) struct Judged {
    pub(crate) verdict: Verdict,
    /// The recovered tree, if it could be read, and was not read before from the same recovered
    /// image. Only an oracle knows whether it is allowed.
    pub(crate) tree: Option<Tree>,
    /// All events of recovery, up to the moment at which the pool was open.
    pub(crate) recovery: Vec<Event>,
}

/// Judges images, one after the other, in the same bytes.
///
/// What follows recovery is executed only once for each pair of a recovered image and an arena.
/// Together these are the whole state of a file system (except for void undo records, which nothing
/// reads), so it behaves the same from there on.
pub(crate) struct Judge {
    /// Holds the image that is judged.
    pub(crate) pool: Shared,
    /// Names images.
    pub(crate) names: Names,
    /// The number of names and files that the arena can hold.
    cache_entries: u64,
    /// Verdicts on what followed recovery, by the recovered image and the arena.
    afterwards: HashMap<(u128, u64), Verdict>,
}

impl Judge {
    /// A judge of images like `base`.
    pub(crate) fn new(base: Vec<u8>, cache_entries: u64) -> Self {
        Self {
            names: Names::of(&base),
            pool: Shared::of(base),
            cache_entries,
            afterwards: HashMap::new(),
        }
    }

    /// The number of recovered images whose further verdict is known.
    #[cfg(test)]
    pub(crate) fn recovered_images(&self) -> usize {
        self.afterwards.len()
    }

    /// Judges the image in the pool, whose name is `name`, and leaves it unchanged.
    pub(crate) fn judge(&mut self, name: u128) -> Judged {
        let mut judged = Judged::default();
        let mut arena = None;
        if let Err(wrong) = check_sound(&self.pool, Kind::Damage, false) {
            judged.verdict.failures.push(wrong);
        }
        if let Err(wrong) = self.check_replica() {
            judged.verdict.failures.push(wrong);
        }
        self.pool.0.start_recording();
        let open = || {
            mount_with_arena::<Explored>(
                &self.pool,
                None,
                (self.cache_entries, CLOCK_AFTER),
                |bytes| {
                    let new = HeapMemory::new(bytes);
                    arena.insert(Shared(new.into())).clone()
                },
            )
        };
        let opened = catch_unwind(AssertUnwindSafe(open));
        judged.recovery = self.pool.0.take_log();
        match (opened, arena) {
            (Ok(Ok(fs)), Some(arena)) => {
                let image = self.names.recovered(name, &judged.recovery);
                let recovered = (image, arena.hash());
                self.look_afterwards(fs, recovered, &mut judged);
            }
            (Ok(Err(error)), _) => judged.verdict.fail(Kind::Recovery, error),
            (Ok(Ok(_)), None) => judged
                .verdict
                .fail(Kind::Recovery, "no arena was requested"),
            (Err(panic), _) => judged.verdict.fail(Kind::Panic, text_of(&*panic)),
        }
        self.pool.undo(&judged.recovery);
        if let Some(at) = self.pool.damaged() {
            let text = format!("an access outside the pool, at {at:#x}");
            judged.verdict.fail(Kind::Panic, text);
            self.pool = Shared::of(self.pool.0.image());
        }
        judged
    }

    /// The tree that recovery makes of the image in the pool, which is left unchanged.
    pub(crate) fn recovered_tree(&self) -> Option<Tree> {
        self.pool.0.remember();
        let read = || {
            let fs = mount(&self.pool, self.cache_entries, CLOCK_AFTER).ok()?;
            read_tree(&fs).ok()
        };
        let tree = catch_unwind(AssertUnwindSafe(read));
        self.pool.0.revert();
        tree.ok().flatten()
    }

    /// The lines of the image in the pool that the checker, recovery and reading the tree access.
    /// The image is left unchanged.
    pub(crate) fn lines_read(&self) -> BTreeSet<u64> {
        self.pool.0.remember();
        self.pool.0.track_reads(true);
        let read = || {
            check(&MemoryImage(&*self.pool.0), CheckOptions::default());
            let fs = mount(&self.pool, self.cache_entries, CLOCK_AFTER);
            // If opening or reading fails, the lines up to there count.
            fs.and_then(|fs| read_tree(&fs)).ok()
        };
        let _ = catch_unwind(AssertUnwindSafe(read));
        self.pool.0.track_reads(false);
        self.pool.0.revert();
        self.pool.0.lines_read().into_iter().collect()
    }

    /// Compares the tree of a complete metadata replica with the tree that recovery finds.
    fn check_replica(&self) -> std::result::Result<(), Wrong> {
        let read = || replica_tree(&self.pool, self.cache_entries);
        let Some(replica) = catch_unwind(AssertUnwindSafe(read))
            .map_err(|panic| (Kind::Panic, text_of(&*panic)))?
        else {
            return Ok(());
        };
        match self.recovered_tree() {
            Some(tree) => expect_same(&tree, replica, Kind::Replica, "on the medium alone"),
            // Recovery reports what is wrong.
            None => Ok(()),
        }
    }

    fn look_afterwards(&mut self, fs: ExploredFs, recovered: (u128, u64), judged: &mut Judged) {
        if let Some(known) = self.afterwards.get(&recovered) {
            let Verdict { meaning, tree, .. } = *known;
            (judged.verdict.meaning, judged.verdict.tree) = (meaning, tree);
            judged.verdict.failures.extend_from_slice(&known.failures);
            return;
        }
        let mut verdict = Verdict::default();
        self.pool.0.remember();
        let mut trial = Trial {
            pool: &self.pool,
            cache_entries: self.cache_entries,
        };
        let run = || {
            if let Some(tree) = trial.read(&fs, &mut verdict) {
                let tree = judged.tree.insert(tree);
                let used = trial.use_up(fs, tree);
                self.pool.0.revert();
                self.pool.0.remember();
                if let Err((kind, what)) = used.and_then(|()| trial.export_replica(tree)) {
                    verdict.fail(kind, what);
                }
            }
        };
        let outcome = catch_unwind(AssertUnwindSafe(run));
        self.pool.0.revert();
        if let Err(panic) = outcome {
            verdict.fail(Kind::Panic, text_of(&*panic));
        }
        judged.verdict.meaning = verdict.meaning;
        judged.verdict.tree = verdict.tree;
        judged.verdict.failures.extend_from_slice(&verdict.failures);
        self.afterwards.insert(recovered, verdict);
    }
}

impl Verdict {
    fn fail(&mut self, kind: Kind, what: impl ToString) {
        self.failures.push((kind, what.to_string()));
    }
}

/// The message of a panic.
pub(crate) fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or(panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a message").to_owned()
}

/// What follows recovery.
struct Trial<'a> {
    pool: &'a Shared,
    cache_entries: u64,
}

/// A violation: its kind and detail.
pub(crate) type Wrong = (Kind, String);

/// The violation that a crash of recovery leads to another tree than recovery does.
pub(crate) fn other_than_recovery() -> Wrong {
    let what = "another tree than without the second crash";
    (Kind::Nested, what.to_owned())
}

impl Trial<'_> {
    fn read(&mut self, fs: &ExploredFs, verdict: &mut Verdict) -> Option<Tree> {
        match read_tree(fs) {
            Ok(tree) => {
                verdict.meaning = meaning(&tree);
                verdict.tree = Some(identity(&tree));
                Some(tree)
            }
            Err(error) => {
                verdict.fail(Kind::Reading, error);
                None
            }
        }
    }

    /// Uses the recovered file system, recovers it again without a close, closes it, and looks at
    /// it again. The tree must stay `tree`, or what the use left.
    fn use_up(&mut self, fs: ExploredFs, tree: &Tree) -> std::result::Result<(), Wrong> {
        let left = exercise(&fs, tree).map_err(|error| (Kind::Use, error.to_string()))?;
        let tree = left.as_ref().unwrap_or(tree);
        expect_same(tree, read_tree(&fs), Kind::Use, "after use")?;
        fs.sync().map_err(|error| (Kind::Use, error.to_string()))?;
        drop(fs);
        check_sound(self.pool, Kind::Use, false)?;
        let fs = mount(self.pool, self.cache_entries, later(1));
        let fs = fs.map_err(|error| (Kind::Use, format!("recovering again: {error}")))?;
        expect_same(tree, read_tree(&fs), Kind::Use, "after another recovery")?;
        fs.close()
            .map_err(|error| (Kind::Close, error.to_string()))?;
        drop(fs);
        check_sound(self.pool, Kind::Unclean, true)?;
        let fs = mount::<Explored>(self.pool, self.cache_entries, later(2));
        let found = fs.and_then(|fs| read_tree(&fs));
        expect_same(tree, found, Kind::Unclean, "after reopening")
    }
}

impl Trial<'_> {
    /// Recovers again, and completes the metadata replica, if there is one. The replica must have
    /// the tree, too.
    fn export_replica(&self, tree: &Tree) -> std::result::Result<(), Wrong> {
        if !has_replica(self.pool) {
            return Ok(());
        }
        let failed = |error: vellum::Error| (Kind::Replica, error.to_string());
        let fs = mount::<Explored>(self.pool, self.cache_entries, later(1)).map_err(failed)?;
        fs.close_and_export(false, &|_, _| {}).map_err(failed)?;
        drop(fs);
        let replica = replica_tree(self.pool, self.cache_entries);
        let none = || (Kind::Replica, "no metadata replica".to_owned());
        let replica = replica.ok_or_else(none)?;
        expect_same(tree, replica, Kind::Replica, "on the medium alone")
    }
}

/// The clock of an opening that many openings after recovery.
fn later(openings: i64) -> i64 {
    CLOCK_AFTER + openings * (CLOCK_AFTER - CLOCK_START)
}

fn expect_same(
    tree: &Tree,
    found: Result<Tree>,
    kind: Kind,
    when: &str,
) -> std::result::Result<(), Wrong> {
    match found {
        Ok(found) if found.nodes == tree.nodes => Ok(()),
        Ok(found) => {
            let lines = vellum_model::diff(&tree.nodes, &found.nodes).join("; ");
            Err((kind, format!("another tree {when}: {lines}")))
        }
        Err(error) => Err((kind, format!("{when}: {error}"))),
    }
}

/// Checks that the checker finds no damage, or nothing at all.
fn check_sound(pool: &Shared, kind: Kind, is_closed: bool) -> std::result::Result<(), Wrong> {
    let report = check(&MemoryImage(&*pool.0), CheckOptions::default());
    let findings = report.findings.iter();
    let wrong = findings.filter(|finding| is_closed || finding.severity == Severity::Damage);
    let lines: Vec<_> = wrong.take(3).map(ToString::to_string).collect();
    if lines.is_empty() {
        Ok(())
    } else {
        Err((kind, lines.join("; ")))
    }
}

/// A hash of a tree without its times.
fn meaning(tree: &Tree) -> u64 {
    let mut hasher = Xxh3::new();
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
            vellum_model::SnapshotBody::Special { kind, device } => {
                (3, kind.to_string(), device).hash(&mut hasher);
            }
        }
    }
    hasher.finish()
}

/// A hash of a tree with its times.
fn identity(tree: &Tree) -> u64 {
    let mut hasher = Xxh3::new();
    meaning(tree).hash(&mut hasher);
    for (path, (ino, times)) in &tree.times {
        (path, ino, times.atime, times.mtime, times.ctime).hash(&mut hasher);
    }
    tree.space.hash(&mut hasher);
    hasher.finish()
}
