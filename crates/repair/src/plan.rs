//! The plan of a repair: pure data, created in memory and proved by the checker.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use vellum_check::survey::{self, Survey};
use vellum_check::{Class, Image, Progress, Report, check};
use vellum_layout::{
    BLOCK_BYTES, Geometry, NamespaceKind, PoolPhase, PoolState, SLOT_BYTES, StateWord, Superblock,
};

use crate::draft::{Draft, Overlay, SlotSet};
use crate::lost::{self, LostBytes};
use crate::{areas, blocks, header, inodes, logs, redo, tree, xattrs};

/// A change of the pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Action {
    /// What was wrong.
    pub class: Class,
    /// The location, in the checker's words.
    pub place: String,
    /// The change.
    pub what: String,
    /// Whether unreadable contents are lost by it.
    pub loses: bool,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            class, place, what, ..
        } = self;
        write!(f, "{place}: {class}: {what}")
    }
}

/// Words that are written together: in any order, and durable before those of the next stage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stage {
    /// Its description, for people.
    pub name: &'static str,
    /// Unreadable blocks, replaced by zeros before any word is written.
    pub renewed: Vec<u64>,
    /// Pool offset and new value of each word.
    pub words: Vec<(u64, u64)>,
}

/// A repair that is ready to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The checker's report on the pool.
    pub before: Report,
    /// The strict report on the pool after the plan; equal to `before` if there is nothing to do.
    pub after: Report,
    /// The changes, in order.
    pub actions: Vec<Action>,
    /// Why nothing can be done.
    pub refused: Option<String>,
    /// The stages of writing, in order.
    pub stages: Vec<Stage>,
    /// Bytes of files that are lost and that no repair restores.
    pub lost: Vec<LostBytes>,
    /// The uuid of the pool.
    pub uuid: [u8; 16],
}

impl Plan {
    /// Whether nothing is written.
    pub fn is_empty(&self) -> bool {
        let nothing = |stage: &Stage| stage.words.is_empty() && stage.renewed.is_empty();
        self.stages.iter().all(nothing)
    }

    /// Whether the pool is sound once the plan is applied.
    pub fn mends_all(&self) -> bool {
        self.refused.is_none() && self.after.is_sound()
    }

    /// Whether some bytes of files are unreadable and stay so.
    pub fn leaves_unreadable(&self) -> bool {
        self.lost.iter().any(|lost| lost.is_certain)
    }

    /// The exit status of fsck(8) once the plan is applied: 0 nothing was wrong, 1 all is mended, 4
    /// damage is left, 8 the pool cannot be repaired because not all of it is readable; sums are
    /// possible.
    pub fn exit_code(&self) -> i32 {
        let unreadable = if self.before.complete || self.refused.is_none() {
            0
        } else {
            8
        };
        let left = if self.mends_all() && !self.leaves_unreadable() {
            0
        } else {
            4
        };
        i32::from(!self.is_empty()) | left | unreadable
    }

    /// The number of changes for each class of damage.
    pub fn classes(&self) -> BTreeMap<Class, u64> {
        let mut classes = BTreeMap::new();
        for action in &self.actions {
            *classes.entry(action.class).or_default() += 1;
        }
        classes
    }
}

/// How to plan.
#[derive(Clone, Copy, Default)]
pub struct Options<'a> {
    /// Classes of damage that are left alone.
    pub declined: Option<&'a BTreeSet<Class>>,
    /// Time of the created structures, nanoseconds since 1970.
    pub now_ns: i64,
    /// Called now and then by the two checks.
    pub progress: Option<Progress<'a>>,
}

impl fmt::Debug for Options<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("declined", &self.declined)
            .field("now_ns", &self.now_ns)
            .finish_non_exhaustive()
    }
}

/// Most rounds: each one mends damage that hides other damage, and a repair needs only a few.
const ROUNDS_MAX: usize = 200;

type Step = fn(&mut Draft, &Survey);

/// In this order because each step relies on those before it: chunks give the location of
/// everything, the root that of names; logs and areas give the names, names the lost inodes, and
/// both together all paths.
const STEPS: &[Step] = &[
    header::chunks,
    inodes::root,
    areas::table,
    logs::faults,
    logs::order,
    logs::restore,
    inodes::broken,
    blocks::ownerless,
    inodes::reserved,
    areas::states,
    tree::directories,
    tree::duplicates,
    inodes::texts,
    inodes::shared,
    tree::unnamed,
    xattrs::unsound,
    xattrs::shared,
    xattrs::flags,
    areas::paths,
    areas::lines,
    areas::places,
    areas::logs,
    tree::counts,
    blocks::files,
    blocks::table,
];

/// Plans the repair of the pool in `image`, which is only read.
pub fn plan(image: &dyn Image, options: Options) -> Plan {
    let before = check(image, options.checking(false));
    let mut plan = Plan {
        after: before.clone(),
        before,
        actions: Vec::new(),
        refused: None,
        stages: Vec::new(),
        lost: Vec::new(),
        uuid: [0; 16],
    };
    if plan.before.is_sound() {
        return plan;
    }
    let superblock = match usable(image, &plan.before) {
        Ok(superblock) => superblock,
        Err(reason) => {
            plan.refused = Some(reason);
            return plan;
        }
    };
    plan.uuid = superblock.uuid;
    let none = BTreeSet::new();
    let declined = options.declined.unwrap_or(&none);
    let lost = match plan.before.complete {
        true => BTreeSet::new(),
        false => lost::blocks(image, &superblock.geometry()),
    };
    if header::is_ahead(image, &superblock, &lost) {
        plan.refused = Some(AHEAD.to_owned());
        return plan;
    }
    let is_logged = superblock.geometry().is_logged();
    if !lost.is_empty() && (is_logged || declined.contains(&Class::Unreadable)) {
        plan.refused = Some(format!("{} blocks cannot be read: {COPY}", lost.len()));
        return plan;
    }
    let making = Making {
        superblock: &superblock,
        declined,
        lost,
        options,
    };
    let made = match is_logged {
        true => making.on_log(image, &mut plan),
        false => making.on(image, &mut plan),
    };
    plan.refused = made.err();
    plan
}

/// Why nothing is done while the metadata contain uncommitted changes.
const AHEAD: &str = "its metadata contain uncommitted changes, which must be rolled back first; \
                     nothing was changed: repair it without --dry-run, or open it once";

/// Advice if a medium is unreliable.
const COPY: &str = "copy what can be read to a sound medium, and repair the copy";

/// Why nothing is done if the log is unreadable.
pub(crate) const NO_LOG: &str = "both anchors of its log are unsound: it is unknown what was \
     committed last; mount it with -o ro to copy what can be read";

/// The same reason, if the readable files are unreachable too.
const NO_LOG_AND_ROOT: &str = "both anchors of its log are unsound, and its root directory is \
     lost: only a copy of the pool helps";

/// Why nothing is done if home differs from its sum and that is declined.
const NO_SUM: &str = "the metadata under the log are not those that were written, and any repair \
     accepts them as they are";

/// Why nothing is done if there is no slot for a lost file.
const NO_ROOM: &str = "a file has lost its name, and no metadata slot is free to name \
                       it in lost+found; nothing was changed: what can be read still can be, from \
                       a mount for reading only";

impl<'a> Options<'a> {
    fn checking(self, strict_clean: bool) -> vellum_check::Options<'a> {
        vellum_check::Options {
            strict_clean,
            progress: self.progress,
        }
    }
}

/// The shared state of all passes of a plan.
struct Making<'a> {
    superblock: &'a Superblock,
    declined: &'a BTreeSet<Class>,
    /// Unreadable blocks outside those of files.
    lost: BTreeSet<u64>,
    options: Options<'a>,
}

/// One pass of a repair, on top of the passes before it.
struct Pass {
    actions: Vec<Action>,
    stages: Vec<Stage>,
    /// The checker's report after it, if it changes anything.
    after: Option<Report>,
    /// Whether it had to leave something for lack of space.
    lacks_room: bool,
    lost: Vec<LostBytes>,
}

impl Pass {
    fn add_to(self, plan: &mut Plan) {
        plan.actions.extend(self.actions);
        plan.stages.extend(self.stages);
        plan.after = self.after.unwrap_or_else(|| plan.after.clone());
        plan.lost = self.lost;
    }

    fn met_more_losses(&self) -> bool {
        let after = self.after.as_ref();
        after.is_some_and(|after| after.has(Class::Unreadable))
    }
}

impl Making<'_> {
    /// Plans the repair of a pool.
    ///
    /// # Errors
    /// Returns why nothing can be done: the plan is then unchanged.
    fn on(&self, image: &dyn Image, plan: &mut Plan) -> Result<(), String> {
        let word = state_word(image, self.superblock);
        if word.is_some_and(|word| word.conversion().is_some()) {
            return Err("a conversion was not finished: `vellum convert` finishes it".to_owned());
        }
        let before = plan.after.clone();
        let passes = self.passes(image, &before).ok_or(NO_ROOM)?;
        if passes.iter().any(Pass::met_more_losses) {
            return Err(format!("more blocks became unreadable meanwhile: {COPY}"));
        }
        passes.into_iter().for_each(|pass| pass.add_to(plan));
        Ok(())
    }

    /// As [`Self::on`], for a logged pool, which is mended by an epoch.
    ///
    /// # Errors
    /// As for [`Self::on`].
    fn on_log(&self, image: &dyn Image, plan: &mut Plan) -> Result<(), String> {
        let no_log = match plan.before.has(Class::Root) {
            true => NO_LOG_AND_ROOT,
            false => NO_LOG,
        };
        let log = survey::redo_log(image, self.superblock).ok_or(no_log)?;
        let wrong = plan.before.of(Class::HomeSum).next();
        if wrong.is_some() && self.declined.contains(&Class::HomeSum) {
            return Err(NO_SUM.to_owned());
        }
        let taken = wrong.map(|found| Action {
            class: Class::HomeSum,
            place: found.place.clone(),
            what: "the present contents are accepted".to_owned(),
            loses: true,
        });
        let home = Overlay::new(image, &self.lost);
        let emptied = redo::take_home(&home, &log, self.superblock);
        let mut made = Plan {
            after: check(&home, self.options.checking(false)),
            actions: taken.into_iter().collect(),
            ..plan.clone()
        };
        let is_taken = !made.actions.is_empty();
        self.on(&home, &mut made)?;
        let (outside, epoch) = redo::as_epoch(&home, &log, self.superblock, made.stages);
        made.stages = match is_taken || epoch.is_some() {
            true => emptied.into_iter().chain(outside).chain(epoch).collect(),
            false => outside,
        };
        *plan = made;
        Ok(())
    }

    /// Plans one pass or, if there is no space for lost files, two: after the first one long
    /// removed entries are gone, and the second one uses their space, because new structures never
    /// overwrite what is still referred to. Between them the pool is under repair. `None`: there is
    /// not enough space even so.
    fn passes(&self, image: &dyn Image, before: &Report) -> Option<Vec<Pass>> {
        let pass = self.pass(&Overlay::new(image, &self.lost), before, false);
        if !pass.lacks_room {
            return Some(vec![pass]);
        }
        let roomier = Overlay::new(image, &self.lost);
        let first = self.pass(&roomier, before, true);
        let none = BTreeSet::new();
        let second = self.pass(&Overlay::new(&roomier, &none), first.after.as_ref()?, false);
        (!second.lacks_room).then(|| vec![first, second])
    }

    /// Mends the contents of `overlay`, on which the checker reported `before`, and overlays the
    /// changes. If `drops_dead` is set, removed entries free their space.
    fn pass(&self, overlay: &Overlay, before: &Report, drops_dead: bool) -> Pass {
        let Making {
            superblock,
            declined,
            lost,
            options,
        } = self;
        let mut draft = Draft::new(overlay, superblock, declined, options.now_ns);
        let state = State::read(&draft);
        let fresh = overlay.lost();
        lost::give_up(&mut draft, fresh);
        let used = mend(&mut draft, state, before);
        if drops_dead {
            logs::drop_dead(&mut draft);
        }
        let touched = finish(&mut draft, state, before);
        let losses = lost::of_files(&draft, lost, before);
        let (actions, lacked_room) = (std::mem::take(&mut draft.actions), draft.lacked_room);
        let (mut last, mut after) = (None, None);
        let state_at = superblock.state_at + PoolState::WORD;
        if touched {
            let report = check(overlay, options.checking(true));
            if !report.is_sound() {
                // An opening now would mistake the remaining damage for what a crash leaves.
                let left = StateWord::repairing(state.was_clean, state.epoch).0;
                overlay.set(state_at, left);
            }
            last = Some(overlay.word(state_at));
            after = Some(report);
        } else if !overlay.is_empty() {
            after = Some(check(overlay, options.checking(false)));
        }
        let is_left = after.as_ref().unwrap_or(before);
        Pass {
            lacks_room: lacked_room && !is_left.is_sound(),
            stages: stages(overlay, superblock, state, &used, last),
            actions,
            after,
            lost: losses,
        }
    }
}

/// The superblock, if the pool can be repaired.
fn usable(image: &dyn Image, before: &Report) -> Result<Superblock, String> {
    let superblock = survey::superblock(image).ok_or_else(|| {
        let mut reasons = before.of(Class::NotAPool).chain(before.of(Class::Geometry));
        let reason = reasons.next().map(|found| found.detail.clone());
        reason.unwrap_or_else(|| "it has no superblock that can be used".to_owned())
    })?;
    superblock
        .check_writable()
        .map_err(|error| error.to_string())?;
    Ok(superblock)
}

/// The state word, if it is readable.
pub(crate) fn state_word(image: &dyn Image, superblock: &Superblock) -> Option<StateWord> {
    let mut word = [0; 8];
    let at = superblock.geometry().state_at + PoolState::WORD;
    image.read(at, &mut word).ok()?;
    Some(StateWord(u64::from_le_bytes(word)))
}

/// The state word, as far as it can be used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State {
    /// Closed cleanly: journals are not replayed, and no inode may lack a name.
    pub(crate) was_clean: bool,
    /// The word is sound and says that the pool is clean or dirty.
    sound: bool,
    /// An earlier repair was not finished.
    resumed: bool,
    pub(crate) epoch: u32,
}

impl State {
    fn read(draft: &Draft) -> Self {
        let word = StateWord(draft.word(draft.geometry.state_at + PoolState::WORD));
        if let Some((was_clean, epoch)) = word.repair() {
            return Self {
                was_clean,
                sound: false,
                resumed: true,
                epoch,
            };
        }
        match word.get() {
            Some((phase, epoch)) => Self {
                was_clean: phase == PoolPhase::Clean,
                sound: true,
                resumed: false,
                epoch,
            },
            None => Self {
                was_clean: false,
                sound: false,
                resumed: false,
                epoch: header::unused_epoch(draft),
            },
        }
    }
}

/// Overlays the repair of everything inside the pool. Returns the slots that were in use before.
fn mend(draft: &mut Draft, state: State, before: &Report) -> SlotSet {
    header::superblocks(draft);
    let doubtful = header::versions(draft, state.was_clean);
    // Voiding saved state and mending copies of the superblock needs no look inside.
    let outside = [
        Class::SuperblockCopy,
        Class::StateWord,
        Class::LiveMap,
        Class::SavedCounters,
        Class::SavedState,
        Class::AreaCounts,
        Class::AreaTable,
    ];
    let mut damage = before.findings.iter();
    let inside = state.resumed || damage.any(|found| !outside.contains(&found.class));
    let mut used = None;
    if inside {
        header::journals(draft, !state.was_clean);
        areas::moves(draft, !state.was_clean);
        draft.lossy = state.resumed || !draft.overlay.lost().is_empty();
        draft.hidden = state.was_clean || !state.sound || draft.lossy;
        for _ in 0..ROUNDS_MAX {
            let survey = Survey::of(draft.overlay, draft.superblock);
            draft.begin_round(&survey);
            if used.is_none() {
                draft.named = logs::named(&survey);
                used = Some(draft.reserved.clone());
            }
            if !round(draft, &survey) {
                break;
            }
        }
    }
    lost::doubtful_files(draft, &doubtful);
    used.unwrap_or_default()
}

/// Does the first step that finds something to do; returns whether there was one.
fn round(draft: &mut Draft, survey: &Survey) -> bool {
    let version = draft.overlay.version();
    STEPS.iter().any(|step| {
        step(draft, survey);
        draft.overlay.version() != version
    })
}

/// Overlays the state word *not closed cleanly*, which voids everything that a close saved. Returns
/// whether the word, or anything inside the pool, must be written.
fn finish(draft: &mut Draft, state: State, before: &Report) -> bool {
    let at = draft.geometry.state_at + PoolState::WORD;
    let saved = [
        Class::LiveMap,
        Class::SavedCounters,
        Class::SavedState,
        Class::AreaCounts,
        Class::AreaTable,
    ];
    let mut voided = false;
    for class in saved {
        if let Some(found) = before.of(class).next() {
            let what = "void: the next opening recomputes it";
            voided |= draft.mend(class, &found.place, what);
        }
    }
    let inside = |at| copy_of(draft.superblock, at).is_none();
    let inside = draft.overlay.touches(inside) || draft.overlay.lost().iter().any(|&at| inside(at));
    let mut unsound = false;
    if !state.sound {
        let what = if state.resumed {
            "the repair is finished"
        } else {
            "not closed cleanly, and an epoch that no inode carries"
        };
        unsound = draft.mend(Class::StateWord, "state block", what);
    }
    if !(voided || inside || unsound) {
        return false;
    }
    if state.sound || draft.wants(Class::StateWord) {
        draft.set(at, StateWord::new(PoolPhase::Dirty, state.epoch).0);
    }
    true
}

/// Sorts the words into stages (`docs/crash/damage.md` has the argument); `last` is the final state
/// word, if more than copies of the superblock change.
fn stages(
    overlay: &Overlay,
    superblock: &Superblock,
    state: State,
    used: &SlotSet,
    last: Option<u64>,
) -> Vec<Stage> {
    let geometry = superblock.geometry();
    let state_at = geometry.state_at + PoolState::WORD;
    let data_end = geometry.data_at + geometry.data_bytes();
    let mut fresh = Stage::named("new structures, in unused slots");
    let mut inside = Stage::named("references to them, and all other changes");
    let mut journals = Stage::named("journals retired, and lists of moves");
    let has_areas = geometry.namespace == NamespaceKind::Adaptive;
    let moving_at = has_areas.then(|| areas::moving_at(&geometry));
    let mut copies = [0, 1, 2].map(|_| Stage::named("a copy of the superblock"));
    let mut begin = Stage::named("a repair is running");
    let mut end = Stage::named("the state word");
    if let Some(last) = last {
        let word = StateWord::repairing(state.was_clean, state.epoch).0;
        begin.words.push((state_at, word));
        end.words.push((state_at, last));
    }
    let state_block = state_at / BLOCK_BYTES * BLOCK_BYTES;
    let mut first = Stage::named("the state block, which cannot be read");
    let mut others = Stage::named("other blocks that cannot be read");
    for &at in overlay.lost() {
        let stage = if at == state_block {
            &mut first
        } else {
            &mut others
        };
        stage.renewed.push(at);
    }
    for (&at, &value) in overlay.words().iter() {
        let stage = match at {
            _ if at == state_at => continue,
            _ if Some(at) == moving_at => &mut journals,
            _ if in_metadata(&geometry, at) => {
                match used.has((at - geometry.meta_at) / SLOT_BYTES) {
                    true => &mut inside,
                    false => &mut fresh,
                }
            }
            // Bytes only go into blocks without a file.
            _ if (geometry.data_at..data_end).contains(&at) => &mut fresh,
            _ if (geometry.slots_at..geometry.chunk_table_at).contains(&at) => &mut journals,
            _ => match copy_of(superblock, at) {
                Some(copy) => &mut copies[copy],
                None => &mut inside,
            },
        };
        stage.words.push((at, value));
    }
    let [one, two, three] = copies;
    [
        first, begin, others, fresh, inside, journals, one, two, three, end,
    ]
    .into_iter()
    .filter(|stage| !stage.words.is_empty() || !stage.renewed.is_empty())
    .collect()
}

pub(crate) fn in_metadata(geometry: &Geometry, at: u64) -> bool {
    geometry.is_of_metadata(at)
}

/// The copy of the superblock that contains pool offset `at`.
pub(crate) fn copy_of(superblock: &Superblock, at: u64) -> Option<usize> {
    let copies = [0, BLOCK_BYTES, superblock.last_copy_at];
    let inside = |&copy: &u64| (copy..copy + BLOCK_BYTES).contains(&at);
    copies.iter().position(inside)
}

impl Stage {
    pub(crate) fn named(name: &'static str) -> Self {
        Self {
            name,
            renewed: Vec::new(),
            words: Vec::new(),
        }
    }
}
