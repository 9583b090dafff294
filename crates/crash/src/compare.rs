//! What recovery may show of a sequence of steps: the tree before the step that was in flight, or
//! the tree after it.

use std::collections::BTreeMap;
use std::slice;

use vellum_model::{NodeSnapshot, Op, Snapshot, SnapshotBody, Times, diff};

use crate::closed::is_left_open;
use crate::memories::Shared;
use crate::oracle::{Oracle, Stage};
use crate::replica::has_whole_replica;
use crate::report::Kind;
use crate::space::judge_space;
use crate::tree::Tree;
use crate::workload::Step;

const WORD: usize = 8;

/// What is known of a sequence from its run without a crash.
#[derive(Default)]
pub(crate) struct Expected {
    /// The steps whose crashes are explored.
    pub(crate) explored: Vec<Step>,
    /// The model's trees before the first explored step and after each step.
    pub(crate) stages: Vec<Snapshot>,
    /// For each explored step that has two parts, the model's tree between them.
    pub(crate) between: Vec<Option<Snapshot>>,
    /// For each explored step that changes bytes until it finds the pool full: the model's tree as
    /// if there had been enough space, but with the old sizes.
    pub(crate) attempted: Vec<Vec<Snapshot>>,
    /// The engine's trees at the same moments as the stages; they carry the times.
    pub(crate) trees: Vec<Tree>,
    /// Whether each explored step executed a fence, in the thread of the operations.
    pub(crate) fences: Vec<bool>,
    /// The last steps of the setup, from the last one that executed a fence on.
    pub(crate) unsettled: Vec<Step>,
    /// For each explored step that consists of two (by its number): the expectations of the same
    /// sequence up to it, with the two steps in its place.
    pub(crate) halves: BTreeMap<usize, Expected>,
    /// Only syncs make anything durable.
    pub(crate) commits: bool,
}

impl Expected {
    /// The expectations of `explored`, where each step executes a fence, nothing before it is
    /// unsettled, and `trees` are the engine's trees before the first step and after each.
    pub(crate) fn of_steps(explored: &[Step], trees: Vec<Tree>) -> Self {
        Self {
            explored: explored.to_vec(),
            stages: trees.iter().map(|tree| tree.nodes.clone()).collect(),
            between: vec![None; explored.len()],
            attempted: vec![Vec::new(); explored.len()],
            trees,
            fences: vec![true; explored.len()],
            unsettled: Vec::new(),
            halves: BTreeMap::new(),
            commits: false,
        }
    }

    /// The same up to the explored step `number`, which is replaced by its two `halves`; `between`
    /// is the engine's tree between these.
    pub(crate) fn with_halves(&self, number: usize, halves: [Step; 2], between: Tree) -> Self {
        let with = |steps: &[bool]| [steps, &[true, true]].concat();
        let (before, after) = (number + 1, number + 2);
        Self {
            explored: [&self.explored[..number], &halves].concat(),
            stages: [
                &self.stages[..before],
                slice::from_ref(&between.nodes),
                &self.stages[before..after],
            ]
            .concat(),
            between: vec![None; after],
            attempted: vec![Vec::new(); after],
            trees: [
                &self.trees[..before],
                &[between],
                &self.trees[before..after],
            ]
            .concat(),
            fences: with(&self.fences[..number]),
            unsettled: self.unsettled.clone(),
            halves: BTreeMap::new(),
            commits: false,
        }
    }

    /// Whether `tree` shows `done` explored steps. What is under each name decides. Times decide
    /// too if the last step changes nothing else, or consists of two.
    pub(crate) fn is_shown_by(&self, tree: &Tree, done: usize) -> bool {
        let shows =
            |tree: &Tree| tree.nodes == self.stages[done] && tree.has_inodes_of(&self.trees[done]);
        let last = done.checked_sub(1);
        let is_known_by_times =
            last.is_some_and(|last| shows(&self.trees[last]) || self.halves.contains_key(&last));
        shows(tree) && (!is_known_by_times || judge_times(self, tree, done).is_ok())
    }

    /// The stage that requires everything that had returned by `stage`.
    pub(crate) fn all_of(&self, stage: Stage) -> Stage {
        let returned = returned_at(stage) as u64;
        Stage(returned << u32::BITS | returned)
    }

    /// What is wrong with `tree` if everything that was not synced by `stage` may be lost, and
    /// files may hold any bytes. Only a tree that never existed since then is wrong.
    pub(crate) fn judge_loss(&self, tree: &Tree, stage: Stage) -> Vec<(Kind, String)> {
        let (synced, returned) = ((stage.0 >> u32::BITS) as usize, returned_at(stage));
        let mut wrong = Vec::new();
        for done in (synced..=returned).rev() {
            for contents in self.stages[done..].iter().take(2) {
                wrong = self.judge_after(&tree.with_contents_of(contents), done);
                if wrong.is_empty() {
                    return wrong;
                }
            }
        }
        wrong
    }

    /// What is wrong with `tree` if `returned` explored steps had returned and the next one may
    /// have been in flight.
    fn judge_after(&self, tree: &Tree, returned: usize) -> Vec<(Kind, String)> {
        if let Some(halves) = self.halves.get(&returned) {
            let wrong = halves.judge_after(tree, returned);
            let is_in_second = || halves.judge_after(tree, returned + 1).is_empty();
            return match wrong.is_empty() || is_in_second() {
                true => Vec::new(),
                false => wrong,
            };
        }
        let undefined = match self.explored.get(returned) {
            Some(Step::Blocks(blocks)) => Some(tree.with_hole(blocks)),
            _ => None,
        };
        let tree = undefined.as_ref().unwrap_or(tree);
        let judged = judge_tree(self, &tree.nodes, returned).map_err(|what| (Kind::Tree, what));
        let judged = judged
            .and_then(|()| judge_times(self, tree, returned).map_err(|what| (Kind::Times, what)))
            .and_then(|()| judge_space(self, tree, returned).map_err(|what| (Kind::Space, what)));
        judged.err().into_iter().collect()
    }
}

/// The number of explored steps that had returned.
fn returned_at(stage: Stage) -> usize {
    stage.0 as u32 as usize
}

/// A stage's lower half is the number of explored steps that had returned, which markers count. On
/// a pool with a log, its upper half is the number of steps up to the last sync.
impl Oracle for Expected {
    fn after(&self, stage: Stage, marker: u64) -> Stage {
        let last = (marker as usize).checked_sub(1);
        match last.and_then(|last| self.explored.get(last)) {
            _ if !self.commits => Stage(marker),
            Some(step) if step.syncs() => Stage(marker << u32::BITS | marker),
            _ => Stage(stage.0 >> u32::BITS << u32::BITS | marker),
        }
    }

    fn judge(&self, tree: &Tree, stage: Stage) -> Vec<(Kind, String)> {
        let (synced, returned) = ((stage.0 >> u32::BITS) as usize, returned_at(stage));
        let first = if self.commits { synced } else { returned };
        let mut cuts = (first..returned).rev();
        let wrong = self.judge_after(tree, returned);
        if wrong.is_empty() || cuts.any(|cut| self.judge_after(tree, cut).is_empty()) {
            return Vec::new();
        }
        wrong
    }
    fn broken_promise(&self, stage: Stage, image: &[u8]) -> Option<(Kind, String)> {
        let last = returned_at(stage).checked_sub(1);
        let wrong = match last.and_then(|last| self.explored.get(last))? {
            Step::Close | Step::ExportReplica if is_left_open(image) => {
                "a close has returned, but the pool is not marked clean"
            }
            Step::ExportReplica if !has_whole_replica(&Shared::of(image.to_vec())) => {
                "the metadata replica is complete, but not marked so"
            }
            _ => return None,
        };
        Some((Kind::Unclean, wrong.to_owned()))
    }

    fn operation(&self, stage: Stage) -> &'static str {
        let steps = &self.explored;
        let step = steps.get(returned_at(stage)).or(steps.last());
        step.map_or("", Step::operation)
    }

    fn describe(&self, stage: Stage) -> String {
        let steps = &self.explored;
        match steps.get(returned_at(stage)) {
            Some(step) => format!(
                "{} of {} steps had returned, in flight: {step}",
                returned_at(stage),
                steps.len()
            ),
            None => "every step had returned".to_owned(),
        }
    }
}

/// Whether `tree` may be found when `returned` explored steps had returned; an error says why not.
fn judge_tree(expected: &Expected, tree: &Snapshot, returned: usize) -> Result<(), String> {
    let before = &expected.stages[returned];
    if tree == before {
        return Ok(());
    }
    let Some(after) = expected.stages.get(returned + 1) else {
        return Err(format!(
            "not as it was when the step returned: {}",
            text(before, tree)
        ));
    };
    if tree == after {
        return Ok(());
    }
    let may_tear = expected.explored[returned].changes_bytes();
    let between = expected.between[returned].as_ref();
    let torn = || is_torn(tree, &[between.unwrap_or(before), after]);
    let attempted = &expected.attempted[returned];
    let variants: Vec<&Snapshot> = std::iter::once(before).chain(attempted).collect();
    let taken_back = !attempted.is_empty() && is_torn(tree, &variants);
    if between == Some(tree) || may_tear && torn() || taken_back {
        return Ok(());
    }
    let (since_before, since_after) = (text(before, tree), text(after, tree));
    Err(format!(
        "neither as before the step ({since_before}) nor as after it ({since_after})"
    ))
}

fn text(expected: &Snapshot, found: &Snapshot) -> String {
    let mut lines = diff(expected, found);
    let more = lines.len().saturating_sub(6);
    lines.truncate(6);
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    format!("expected / found: {}", lines.join("; "))
}

/// Whether `tree` differs from `variants` only in bytes inside the old size, where each word is
/// that of one of the variants. The first variant has none of the calls on bytes, and the last has
/// all. A size that grew guarantees everything below it, so words of smaller variants do not count
/// any more.
pub(crate) fn is_torn(tree: &Snapshot, variants: &[&Snapshot]) -> bool {
    variants.iter().all(|variant| variant.len() == tree.len())
        && tree.iter().all(|(path, node)| {
            let variants: Option<Vec<_>> = variants.iter().map(|tree| tree.get(path)).collect();
            variants.is_some_and(|nodes| nodes.contains(&node) || is_torn_node(node, &nodes))
        })
}

fn is_torn_node(node: &NodeSnapshot, variants: &[&NodeSnapshot]) -> bool {
    let as_body = |of: &NodeSnapshot| NodeSnapshot {
        body: node.body.clone(),
        ..of.clone()
    };
    let Some((size, blocks)) = content(node) else {
        return false;
    };
    let size_of = |variant: &NodeSnapshot| content(variant).map_or(0, |(size, _)| size);
    let is_like = |variant: &&NodeSnapshot| *node == as_body(variant) && size_of(variant) == size;
    if !variants.iter().any(is_like) {
        return false;
    }
    let contents = variants.iter().filter_map(|variant| content(variant));
    let contents: Vec<_> = contents.filter(|(of, _)| *of >= size).collect();
    let zeros = vec![0; vellum_model::BLOCK_SIZE];
    let old = contents.iter().flat_map(|(_, blocks)| blocks.keys());
    blocks.keys().chain(old).all(|index| {
        let of = |blocks: &Blocks| blocks.get(index).unwrap_or(&zeros).clone();
        let start = index * vellum_model::BLOCK_SIZE as u64;
        let inside = size
            .saturating_sub(start)
            .min(vellum_model::BLOCK_SIZE as u64) as usize;
        let found = of(blocks);
        let old: Vec<_> = contents.iter().map(|(_, blocks)| of(blocks)).collect();
        (0..inside).step_by(WORD).all(|at| {
            let word = at..(at + WORD).min(inside);
            old.iter()
                .any(|old| old[word.clone()] == found[word.clone()])
        })
    })
}

/// Blocks of a file that are not all zeros, by number.
type Blocks = BTreeMap<u64, Vec<u8>>;

fn content(node: &NodeSnapshot) -> Option<(u64, &Blocks)> {
    match &node.body {
        SnapshotBody::File { size, blocks } => Some((*size, blocks)),
        _ => None,
    }
}

/// Checks the times of `tree`, which [`judge_tree`] allows; an error says what does not fit.
///
/// * Attributes of an inode change together with its times.
/// * Otherwise times may be newer than the tree, but not older, unless bytes inside the old size
///   changed. The change time of an inode whose names changed may be older: a lost or a new name
///   shows at once, while its trace in the inode follows by the next fence
///   (`docs/crash/operations.md`).
fn judge_times(expected: &Expected, tree: &Tree, returned: usize) -> Result<(), String> {
    let step = expected.explored.get(returned);
    if step.is_some_and(changes_attributes) {
        let fits = |stage: usize| Stages::only(expected, tree, returned, stage).judge();
        return match (fits(returned), fits(returned + 1)) {
            (Err(before), Err(after)) => Err(format!("{before}, and {after}")),
            _ => Ok(()),
        };
    }
    Stages::of(expected, tree, returned).judge()
}

/// A time's name, the first stage whose time is allowed, and the time.
type Field = (&'static str, usize, fn(&Times) -> i64);

/// The stages whose times are allowed.
struct Stages<'a> {
    expected: &'a Expected,
    tree: &'a Tree,
    returned: usize,
    first: usize,
    last: usize,
    /// The tree is the one after the step, so the times must be, too.
    is_after: bool,
}

impl<'a> Stages<'a> {
    fn of(expected: &'a Expected, tree: &'a Tree, returned: usize) -> Self {
        let last = (returned + 1).min(expected.stages.len() - 1);
        let [before, after] = [returned, last].map(|stage| &expected.stages[stage]);
        let is_after = before != after && tree.nodes == *after;
        Self {
            expected,
            tree,
            returned,
            first: returned,
            last,
            is_after,
        }
    }

    /// Allows only the tree and the times of a single stage.
    fn only(expected: &'a Expected, tree: &'a Tree, returned: usize, stage: usize) -> Self {
        let is_after = stage > returned;
        Self {
            expected,
            tree,
            returned,
            first: stage,
            last: stage,
            is_after,
        }
    }

    fn judge(&self) -> Result<(), String> {
        let Self {
            expected,
            tree,
            first,
            last,
            ..
        } = *self;
        if first == last && tree.nodes != expected.stages[first] {
            return Err("the tree and its times are of different moments".to_owned());
        }
        for (path, (ino, found)) in &tree.times {
            let fields: [Field; 3] = [
                ("access", self.first_accessed(), |times| times.atime),
                ("modification", self.first_modified(*ino), |times| {
                    times.mtime
                }),
                ("change", self.first_changed(*ino), |times| times.ctime),
            ];
            for (name, first, of) in fields {
                let first = if self.shifts() { self.returned } else { first };
                let trees = expected.trees[first.min(last)..=last].iter();
                let allowed: Vec<_> = trees.filter_map(|tree| tree.times_of(*ino)).collect();
                let unknown = self.is_unknown(name, *ino);
                let names_last = name == "change" && self.names_last(first);
                let fits = |times: &[Times]| match times {
                    [before, .., after] if self.is_of_parts() => {
                        (of(before)..=of(after)).contains(&of(found))
                    }
                    times => times.iter().any(|times| {
                        of(times) == of(found) || names_last && times.mtime == found.ctime
                    }),
                };
                if !unknown && !fits(&allowed) {
                    let expected: Vec<_> = allowed.iter().map(of).collect();
                    let (path, found) = (path.escape_ascii(), of(found));
                    return Err(format!(
                        "{path}: {name} time {found}, expected one of {expected:?}"
                    ));
                }
            }
        }
        Ok(())
    }

    fn at(&self, stage: usize, ino: u64) -> Option<&NodeSnapshot> {
        self.expected.trees.get(stage)?.find(ino)
    }

    /// Whether the step in flight has several parts, with times between them that no stage has.
    fn is_of_parts(&self) -> bool {
        let between = self.expected.between.get(self.returned);
        self.shifts() || between.is_some_and(Option::is_some)
    }

    /// Whether the step in flight moves bytes of a file. What it does last need not show.
    fn shifts(&self) -> bool {
        let step = self.expected.explored.get(self.returned);
        step.is_some_and(|step| step.shifted().is_some())
    }

    /// Whether a step since this stage gives a name to a file that has its bytes. Until that change
    /// of links is settled, the file was last changed when it got its bytes.
    fn names_last(&self, first: usize) -> bool {
        let steps = first.min(self.last)..self.last;
        let steps = self.expected.explored.get(steps).unwrap_or_default();
        steps.iter().any(|step| matches!(step, Step::Unnamed(_)))
    }

    fn first_modified(&self, ino: u64) -> usize {
        let size = |stage| self.at(stage, ino).map(|node| node.body.size());
        let step = self.expected.explored.get(self.returned);
        let overwrites =
            step.is_some_and(Step::changes_bytes) && size(self.first) == size(self.last);
        if self.is_after && !overwrites {
            self.last
        } else {
            self.first
        }
    }

    fn first_changed(&self, ino: u64) -> usize {
        let links = |stage| self.at(stage, ino).map(|node| node.nlink);
        let first = self.first_lagging(|step| links(step) != links(step + 1));
        let step = self.expected.explored.get(self.returned);
        if step.is_some_and(changes_names) || first < self.returned {
            return first;
        }
        self.first_modified(ino)
    }

    fn first_accessed(&self) -> usize {
        let explored = &self.expected.explored;
        let first = self.first_lagging(|step| explored[step].operation() == "read");
        if first < self.returned {
            first
        } else {
            self.first
        }
    }

    /// The first stage whose value may still show. A step that had returned may have flushed its
    /// change without a fence, and no later step executed one.
    fn first_lagging(&self, lags: impl Fn(usize) -> bool) -> usize {
        let fences = &self.expected.fences;
        let mut first = self.returned;
        for step in (0..self.returned).rev() {
            if lags(step) {
                first = step;
            }
            if fences[step] {
                break;
            }
        }
        first
    }

    /// Whether the setup's last steps left this time in the cache, so that no tree holds its
    /// earlier value.
    fn is_unknown(&self, name: &str, ino: u64) -> bool {
        let Expected {
            unsettled, fences, ..
        } = self.expected;
        let is_dir = |node: &NodeSnapshot| node.body == SnapshotBody::Dir;
        let lags: fn(&Step) -> bool = match name {
            "access" => |step| step.operation() == "read",
            "change" if !self.tree.find(ino).is_some_and(is_dir) => changes_names,
            _ => return false,
        };
        unsettled.iter().any(lags) && !fences[..self.returned].contains(&true)
    }
}

fn changes_attributes(step: &Step) -> bool {
    matches!(step, Step::Together(_))
        || matches!(
            step.op(),
            Some(
                Op::Chmod { .. }
                    | Op::Chown { .. }
                    | Op::Utimens { .. }
                    | Op::SetXattr { .. }
                    | Op::RemoveXattr { .. }
                    | Op::SetFlags { .. }
                    | Op::SetProject { .. }
            )
        )
}

fn changes_names(step: &Step) -> bool {
    matches!(
        step.op(),
        Some(Op::Link { .. } | Op::Unlink { .. } | Op::Rename { .. })
    ) || matches!(step, Step::Unnamed(_) | Step::Maintain | Step::Recover)
}
