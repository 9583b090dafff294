//! Judging one image that a crash left: check, recover, compare, use, close, check again.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};

use vellum_check::{MemoryImage, Options as CheckOptions, Severity, check};
use vellum_media::{Event, Memory};

use crate::compare::{judge_times, judge_tree};
use crate::exercise::exercise;
use crate::memories::Shared;
use crate::record::Recorded;
use crate::report::Kind;
use crate::session::{CLOCK_AFTER, CLOCK_START, mount};
use crate::tree::{Tree, read_tree};

/// What was found about an image. Whether its tree is allowed depends on the moment of the crash.
#[derive(Clone, Debug, Default)]
pub(crate) struct Verdict {
    /// Names the recovered tree.
    pub(crate) meaning: u64,
    /// What is wrong whatever the moment.
    pub(crate) failures: Vec<(Kind, String)>,
    /// For each number of steps that had returned: what is wrong then.
    pub(crate) by_stage: Vec<Vec<(Kind, String)>>,
}

/// What recovery did, for exploring crashes of it.
pub(crate) struct Judged {
    pub(crate) verdict: Verdict,
    /// Everything that recovery did to the pool, up to the moment it was open.
    pub(crate) recovery: Vec<Event>,
}

/// Judges what `pool` holds, and leaves it as it was. Trees that are not `known` are also looked at
/// after the close.
pub(crate) fn judge(recorded: &Recorded, pool: &mut Shared, known: &HashSet<u64>) -> Judged {
    let mut verdict = Verdict::default();
    let mut recovery = Vec::new();
    check_crashed(pool, &mut verdict);
    pool.0.start_recording();
    let run = || {
        let mut trial = Trial {
            recorded,
            pool,
            known,
            verdict: &mut verdict,
            recovery: &mut recovery,
        };
        trial.run();
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
    Judged { verdict, recovery }
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
    recorded: &'a Recorded,
    pool: &'a Shared,
    known: &'a HashSet<u64>,
    verdict: &'a mut Verdict,
    recovery: &'a mut Vec<Event>,
}

impl Trial<'_> {
    fn fail(&mut self, kind: Kind, what: impl ToString) {
        self.verdict.failures.push((kind, what.to_string()));
    }

    fn run(&mut self) {
        let fs = match mount(self.pool, self.recorded.cache_entries, CLOCK_AFTER) {
            Ok(fs) => fs,
            Err(error) => return self.fail(Kind::Recovery, error),
        };
        *self.recovery = self.pool.0.take_log();
        self.pool.0.start_recording();
        let tree = match read_tree(&fs) {
            Ok(tree) => tree,
            Err(error) => return self.fail(Kind::Reading, error),
        };
        self.verdict.meaning = meaning(&tree);
        self.compare(&tree);
        if let Err(error) = exercise(&fs, &tree) {
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
            self.reopen(&tree);
        }
    }

    /// A clean pool opens as it was closed.
    fn reopen(&mut self, tree: &Tree) {
        let opened = mount(
            self.pool,
            self.recorded.cache_entries,
            2 * CLOCK_AFTER - CLOCK_START,
        );
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

    fn compare(&mut self, tree: &Tree) {
        for returned in 0..self.recorded.stages.len() {
            let mut wrong = Vec::new();
            if let Err(what) = judge_tree(self.recorded, &tree.nodes, returned) {
                wrong.push((Kind::Tree, what));
            } else if let Err(what) = judge_times(self.recorded, tree, returned) {
                wrong.push((Kind::Times, what));
            }
            self.verdict.by_stage.push(wrong);
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
