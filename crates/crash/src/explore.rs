//! Explores one recorded workload: every crash point, its states, each different image once.

use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::time::Instant;

use vellum_media::{CrashPoint, CrashPoints, CrashState, Event, LINE_BYTES, LineBytes, Memory, Op};
use xxhash_rust::xxh3::Xxh3;

use crate::id::{Cut, Mode};
use crate::judge::{Judge, Verdict, Wrong, other_than_recovery};
use crate::memories::Shared;
use crate::name::Names;
use crate::oracle::{Stage, stage_after};
use crate::plan::{Plan, plan, plan_every_point};
use crate::report::{Counts, Kind, RECOVERY, WorkloadReport};
use crate::run::{Change, NESTED_DEPTH, Progress};
use crate::tree::Tree;
use crate::{Options, Subject};

/// The most violations of a workload that are kept.
const VIOLATIONS_MAX: usize = 16;

/// Explores the log of `subject`.
pub(crate) fn explore(
    subject: &Subject<'_>,
    options: &Options,
    progress: &Progress,
) -> WorkloadReport {
    let mut explorer = Explorer::new(subject, options, progress);
    explorer.explore(&subject.name, subject.log);
    explorer.finish()
}

/// Explores logs that begin with the same image. Results of one log are reused for the next.
pub(crate) struct Explorer<'a> {
    pub(crate) subject: &'a Subject<'a>,
    /// The log's name in identifiers.
    pub(crate) name: String,
    pub(crate) options: &'a Options,
    progress: &'a Progress,
    /// Its pool holds the durable bytes of the current point.
    pub(crate) judge: Judge,
    /// Judged images by name; values are indices into `verdicts`.
    seen: HashMap<u128, usize>,
    verdicts: Vec<Verdict>,
    /// What the oracle objects to in a tree at a stage.
    allowed: HashMap<(u64, Stage), Vec<(Kind, String)>>,
    meanings: HashSet<u64>,
    /// Recoveries whose crashes were explored, by hash of the locations that they store to; one set
    /// for each depth.
    recoveries: [HashSet<u64>; NESTED_DEPTH],
    /// Violations by kind and by detail without numbers; values are indices into the report's.
    known: HashMap<(Kind, String), Option<usize>>,
    /// States that showed a violation.
    wrong: u64,
    /// Counts since the last call of `sum`.
    now: Counts,
    since: Instant,
    report: WorkloadReport,
}

/// The parameters of a walk.
pub(crate) struct Scope {
    /// Points after at most this many events are not explored.
    skip: usize,
    /// Upper bound of the states tried at a point.
    bound: usize,
    /// The crashes that led to this log.
    pub(crate) cuts: Vec<Cut>,
    /// For crashes of recovery: the stage of the crash before it, and the tree that recovery makes.
    within: Option<(Stage, u64)>,
}

/// The current position of a walk.
pub(crate) struct At<'a> {
    pub(crate) point: &'a CrashPoint<'a>,
    /// The steps that have returned.
    pub(crate) stage: Stage,
    /// Name of the durable image, which the pool holds.
    durable: u128,
}

impl At<'_> {
    /// Makes the pool hold `state`.
    pub(crate) fn enter(&self, pool: &Shared, state: &CrashState) {
        for (line, bytes) in self.point.arrived(state) {
            pool.write(line, bytes);
        }
    }

    /// Makes the pool hold the durable image again.
    pub(crate) fn leave(&self, pool: &Shared, state: &CrashState) {
        for (line, _) in self.point.arrived(state) {
            let durable = &self.point.durable()[line as usize..(line + LINE_BYTES) as usize];
            pool.write(line, durable);
        }
    }
}

impl<'a> Explorer<'a> {
    /// An explorer of logs that begin as the log of `subject` does.
    pub(crate) fn new(
        subject: &'a Subject<'a>,
        options: &'a Options,
        progress: &'a Progress,
    ) -> Self {
        Self {
            subject,
            name: String::new(),
            options,
            progress,
            judge: Judge::new(subject.base.clone(), subject.cache_entries),
            seen: HashMap::new(),
            verdicts: Vec::new(),
            allowed: HashMap::new(),
            meanings: HashSet::new(),
            recoveries: Default::default(),
            known: HashMap::new(),
            wrong: 0,
            now: Counts::default(),
            since: Instant::now(),
            report: WorkloadReport {
                workload: subject.name.clone(),
                mode: subject.mode.name().to_owned(),
                exhaustive: true,
                ..WorkloadReport::default()
            },
        }
    }

    /// Explores a log that identifiers call `name`.
    pub(crate) fn explore(&mut self, name: &str, log: &[Event]) {
        let change = self.subject.change;
        let changed = change.of(log);
        let skip = change.of(&log[..self.subject.skip]).len();
        let skip = skip.max(self.as_without_mutant(log, &changed));
        self.explore_changed(name, &changed, skip);
    }

    /// The number of events at the beginning of a log that a mutant leaves unchanged. A crash
    /// before the first changed event cannot show the mutant, unless recoveries are crashed too:
    /// the mutant changes these as well.
    fn as_without_mutant(&self, log: &[Event], changed: &[Event]) -> usize {
        let is_in_recoveries = self.options.nested_recoveries[0] > 0;
        if is_in_recoveries || !matches!(self.subject.change, Change::Mutant(_)) {
            return 0;
        }
        log.iter().zip(changed).take_while(|(a, b)| a == b).count()
    }

    /// Explores a log that already went through the subject's change. Points within its first
    /// `skip` events are not explored.
    pub(crate) fn explore_changed(&mut self, name: &str, log: &[Event], skip: usize) {
        name.clone_into(&mut self.name);
        let bound = match self.subject.mode {
            Mode::Lazy => self.options.lazy_states,
            Mode::Kill => self.options.kill_states,
            Mode::IgnoredFlushes => self.options.ignored_flush_states,
            Mode::X86 | Mode::Eadr => self.options.states_per_point,
        };
        let scope = Scope {
            skip,
            bound,
            cuts: Vec::new(),
            within: None,
        };
        self.judge.pool = Shared::of(self.subject.base.clone());
        self.report.exhaustive &= self.walk(&self.subject.base, 0, log, &scope);
    }

    /// The number of violations found so far.
    pub(crate) fn violations(&self) -> usize {
        self.known.len()
    }

    /// Whether a violation of this kind was found so far.
    pub(crate) fn has_found(&self, kind: Kind) -> bool {
        self.known.keys().any(|(of, _)| *of == kind)
    }

    /// Walks through `log` from `base`, which the pool holds and `name` names. Returns whether
    /// every state was tried. Leaves the pool in another state.
    fn walk(&mut self, base: &[u8], name: u128, log: &[Event], scope: &Scope) -> bool {
        let eadr = self.subject.mode == Mode::Eadr;
        let points = || crash_points(base, log, self.subject.mode);
        let Plan { quotas, exhaustive } = if eadr {
            plan_every_point(points(), scope.skip, self.options.points_in_order)
        } else {
            plan(points(), log, scope.skip, scope.bound)
        };
        let mut walk = points();
        let mut durable = Durable {
            name,
            suspects: Vec::new(),
            events: 0,
        };
        let mut stage = Stage::default();
        let mut next = quotas.iter();
        // Points since the last fence at which not every state is tried.
        let mut beyond = 0;
        while let (Some(point), Some(&quota)) = (walk.next_point(), next.next()) {
            if self.options.is_over() {
                self.report.cut_short = true;
                return false;
            }
            let passed = &log[durable.events..point.events_done()];
            stage = stage_after(self.subject.oracle, stage, passed);
            durable.follow(&self.judge, &point, log);
            if point.events_done() <= scope.skip {
                continue;
            }
            let at = At {
                point: &point,
                stage: scope.within.map_or(stage, |(stage, _)| stage),
                durable: durable.name,
            };
            self.now.points += 1;
            let mut is_tracked = false;
            if quota.states > 0 && self.wrong < self.options.wrong_states {
                let samples = !quota.is_exhaustive && quota.is_last && !eadr;
                is_tracked = samples && self.visit_tracked(&at, quota.states / 2, scope);
                self.visit(&at, quota.states, scope);
            }
            self.hold_to_promise(&at, log, scope);
            beyond += u64::from(!quota.is_exhaustive);
            self.now.points_exhaustive += u64::from(quota.is_exhaustive);
            if quota.is_last {
                let beyond = std::mem::take(&mut beyond);
                let way = if is_tracked {
                    &mut self.now.points_tracked
                } else {
                    &mut self.now.points_sampled
                };
                *way += beyond;
            }
            self.sum(&at, scope);
        }
        exhaustive
    }

    /// Where a step has returned, checks its promises beyond the tree.
    fn hold_to_promise(&mut self, at: &At<'_>, log: &[Event], scope: &Scope) {
        let returned = matches!(log[at.point.events_done() - 1].op, Op::Marker(_));
        if !returned || scope.within.is_some() {
            return;
        }
        let oracle = self.subject.oracle;
        let wrong = oracle.broken_promise(at.stage, at.point.durable());
        let nothing_arrived = CrashState {
            choice: vec![0; at.point.in_flight().len()],
        };
        self.report_on(wrong.into_iter().collect(), at, &nothing_arrived, scope);
    }

    /// Adds the latest counts to those of the operation in flight.
    fn sum(&mut self, at: &At<'_>, scope: &Scope) {
        let mut done = std::mem::take(&mut self.now);
        done.seconds += self.lap();
        self.progress.add(&done);
        self.report.counts += done;
        let operation = self.operation(at, scope);
        *self
            .report
            .operations
            .entry(operation.to_owned())
            .or_default() += done;
    }

    pub(crate) fn operation(&self, at: &At<'_>, scope: &Scope) -> &'static str {
        match scope.within {
            Some(_) => RECOVERY,
            None => self.subject.oracle.operation(at.stage),
        }
    }

    /// Seconds since the last call.
    fn lap(&mut self) -> f64 {
        let now = Instant::now();
        (now - std::mem::replace(&mut self.since, now)).as_secs_f64()
    }

    fn visit(&mut self, at: &At<'_>, quota: usize, scope: &Scope) {
        let point = at.point;
        let seed = self.options.seed ^ point.events_done() as u64;
        let states = point.states(quota, seed);
        let names = LineNames::of(&self.judge.names, point);
        for state in states {
            let name = names.name(at.durable, &state);
            self.try_named(at, &state, name, scope);
        }
    }

    /// Tries one state.
    pub(crate) fn try_state(&mut self, at: &At<'_>, state: &CrashState, scope: &Scope) {
        let name = LineNames::of(&self.judge.names, at.point).name(at.durable, state);
        self.try_named(at, state, name, scope);
    }

    fn try_named(&mut self, at: &At<'_>, state: &CrashState, name: u128, scope: &Scope) {
        self.now.generated += 1;
        let verdict = match self.seen.get(&name) {
            Some(&known) => known,
            None => self.try_image(at, state, name, scope),
        };
        self.ask_oracle(verdict, at, state);
        self.report_on(self.wrong_at(verdict, at, scope), at, state, scope);
    }

    /// Judges an image if it was not seen before, and perhaps the crashes of its recovery.
    fn try_image(&mut self, at: &At<'_>, state: &CrashState, name: u128, scope: &Scope) -> usize {
        at.enter(&self.judge.pool, state);
        let (index, recovery) = self.judge_image(at, name);
        let verdict = &self.verdicts[index];
        let (sound, meaning) = (verdict.failures.is_empty(), verdict.meaning);
        if sound && self.may_show_more(&recovery) && self.is_crashed_too(&recovery, scope) {
            self.crash_recovery(at, state, (name, meaning), &recovery, scope);
        }
        at.leave(&self.judge.pool, state);
        index
    }

    /// Judges the image that the pool holds.
    fn judge_image(&mut self, at: &At<'_>, name: u128) -> (usize, Vec<Event>) {
        let judged = self.judge.judge(name);
        let verdict = judged.verdict;
        self.now.distinct += 1;
        self.now.checked += 1;
        self.now.meanings += u64::from(self.meanings.insert(verdict.meaning));
        if let (Some(name), Some(tree)) = (verdict.tree, &judged.tree) {
            self.judge_tree(name, tree, at.stage);
        }
        let index = self.verdicts.len();
        self.verdicts.push(verdict);
        self.seen.insert(name, index);
        (index, judged.recovery)
    }

    /// What is wrong with a state of this point.
    pub(crate) fn wrong_with(
        &mut self,
        at: &At<'_>,
        state: &CrashState,
        scope: &Scope,
    ) -> Vec<Wrong> {
        let name = LineNames::of(&self.judge.names, at.point).name(at.durable, state);
        let verdict = match self.seen.get(&name) {
            Some(&known) => known,
            None => {
                at.enter(&self.judge.pool, state);
                let (index, _) = self.judge_image(at, name);
                at.leave(&self.judge.pool, state);
                index
            }
        };
        self.ask_oracle(verdict, at, state);
        self.wrong_at(verdict, at, scope)
    }

    /// Explores the crashes of `recovery`, which made the tree `meaning` of the image `name`.
    fn crash_recovery(
        &mut self,
        at: &At<'_>,
        state: &CrashState,
        (name, meaning): (u128, u64),
        recovery: &[Event],
        scope: &Scope,
    ) {
        self.now.recoveries_crashed += 1;
        self.now.seconds += self.lap();
        let outer = std::mem::take(&mut self.now);
        let mut cuts = scope.cuts.clone();
        cuts.push(cut(at.point, state));
        let inner = Scope {
            skip: 0,
            bound: self.options.nested_states,
            cuts,
            within: Some((at.stage, meaning)),
        };
        let log = self.subject.change.of(recovery);
        // With a bound of 0 the caller only wanted to see the recovery.
        if inner.bound > 0 {
            let image = self.judge.pool.0.image();
            self.report.exhaustive &= self.walk(&image, name, &log, &inner);
            put_back(&self.judge.pool, &image, recovery);
        }
        self.now = outer;
    }

    fn judge_tree(&mut self, name: u64, tree: &Tree, stage: Stage) {
        let oracle = self.subject.oracle;
        let judged = self.allowed.entry((name, stage));
        judged.or_insert_with(|| oracle.judge(tree, stage));
    }

    /// Asks the oracle about an image's tree at this stage, if the tree was judged only at other
    /// stages. The tree is recovered again, because trees are too large to be kept.
    fn ask_oracle(&mut self, verdict: usize, at: &At<'_>, state: &CrashState) {
        let Some(name) = self.verdicts[verdict].tree else {
            return;
        };
        if self.allowed.contains_key(&(name, at.stage)) {
            return;
        }
        at.enter(&self.judge.pool, state);
        if let Some(tree) = self.judge.recovered_tree() {
            self.judge_tree(name, &tree, at.stage);
        }
        at.leave(&self.judge.pool, state);
    }

    /// Whether crashes of this recovery can show anything new. If a mutant leaves the recovery
    /// unchanged, its crashes show nothing of the mutant.
    fn may_show_more(&self, recovery: &[Event]) -> bool {
        match self.subject.change {
            Change::Mutant(mutant) => mutant.rewrite(recovery) != recovery,
            Change::None | Change::By(_) => true,
        }
    }

    /// Whether crashes of this recovery are explored. Each depth has a few, and only those that
    /// store to other locations than the earlier ones.
    fn is_crashed_too(&mut self, recovery: &[Event], scope: &Scope) -> bool {
        let depth = scope.cuts.len();
        let (Some(known), Some(&most), Some(&elsewhere)) = (
            self.recoveries.get_mut(depth),
            self.options.nested_recoveries.get(depth),
            self.options.nested_elsewhere.get(depth),
        ) else {
            return false;
        };
        let most = match self.subject.mode {
            Mode::X86 | Mode::Eadr => most,
            Mode::Lazy | Mode::Kill | Mode::IgnoredFlushes => most.min(elsewhere),
        };
        if known.len() >= most {
            return false;
        }
        let mut hasher = Xxh3::new();
        for event in recovery {
            match event.op {
                Op::Store { at, .. } => at.hash(&mut hasher),
                Op::Flush { line } => (1, line).hash(&mut hasher),
                Op::Fence => 2.hash(&mut hasher),
                Op::Marker(_) | Op::Behind { .. } | Op::Release { .. } => {}
            }
        }
        known.insert(hasher.finish())
    }

    /// What is wrong at this stage with an image whose tree the oracle has judged.
    fn wrong_at(&self, verdict: usize, at: &At<'_>, scope: &Scope) -> Vec<Wrong> {
        let verdict = &self.verdicts[verdict];
        let allowed = verdict.tree.map(|tree| (tree, at.stage));
        let at_stage = allowed.and_then(|of| self.allowed.get(&of));
        let at_stage = at_stage.map_or(&[][..], Vec::as_slice);
        let other = scope
            .within
            .is_some_and(|(_, meaning)| meaning != verdict.meaning && verdict.failures.is_empty());
        // Recovery itself loses nothing.
        let may_lose = scope.within.is_none();
        let is_told = |wrong: &&Wrong| may_lose && self.subject.oracle.is_told(wrong, at.stage);
        let failures = verdict.failures.iter().filter(|wrong| !is_told(wrong));
        let wrong = failures.chain(at_stage);
        wrong
            .cloned()
            .chain(other.then(other_than_recovery))
            .collect()
    }

    fn report_on(&mut self, wrong: Vec<Wrong>, at: &At<'_>, state: &CrashState, scope: &Scope) {
        if wrong.is_empty() {
            return;
        }
        self.wrong += 1;
        for (kind, detail) in wrong {
            let plain = detail.chars().filter(|c| !c.is_ascii_digit());
            let key = (kind, plain.take(200).collect());
            let place = match self.known.get(&key) {
                Some(&place) => place,
                None => {
                    self.now.violations += 1;
                    let violations = self.report.violations.len();
                    let place = (violations < VIOLATIONS_MAX).then_some(violations);
                    if place.is_some() {
                        let violation = self.diagnose(at, state, scope, (kind, detail));
                        self.report.violations.push(violation);
                    }
                    self.known.insert(key, place);
                    place
                }
            };
            if let Some(violation) = place.and_then(|at| self.report.violations.get_mut(at)) {
                violation.states += 1;
            }
        }
    }

    /// Returns the report.
    pub(crate) fn finish(mut self) -> WorkloadReport {
        self.report.counts.workloads = 1;
        for counts in self.report.operations.values_mut() {
            counts.workloads = 1;
        }
        self.report
    }
}

/// The crash points that a log beginning with `base` has under a crash model.
pub(crate) fn crash_points<'l>(base: &[u8], log: &'l [Event], mode: Mode) -> CrashPoints<'l> {
    let points = CrashPoints::new(base.to_vec(), log);
    match mode {
        Mode::Eadr => points.eadr(),
        Mode::X86 | Mode::Lazy | Mode::Kill | Mode::IgnoredFlushes => points,
    }
}

pub(crate) fn cut(point: &CrashPoint<'_>, state: &CrashState) -> Cut {
    Cut {
        events: point.events_done(),
        choice: state.choice.clone(),
    }
}

/// Restores in the pool the bytes of `image` that `log` changed.
fn put_back(pool: &Shared, image: &[u8], log: &[Event]) {
    for event in log {
        if let Op::Store { at, .. } = event.op {
            pool.write(at, &image[at as usize..at as usize + 8]);
        }
    }
}

/// How an image's name changes with each content of each line in flight.
struct LineNames(Vec<Vec<u128>>);

impl LineNames {
    fn of(names: &Names, point: &CrashPoint<'_>) -> Self {
        let lines = point.in_flight().iter().map(|line| {
            let old = &line.contents[0];
            let changes = line.contents.iter();
            changes
                .map(|new| names.of_change(line.line, old, new))
                .collect()
        });
        Self(lines.collect())
    }

    /// The name of a state whose durable image is named `durable`.
    fn name(&self, durable: u128, state: &CrashState) -> u128 {
        let chosen = self.0.iter().zip(&state.choice);
        chosen.fold(durable, |name, (line, &choice)| name ^ line[choice])
    }
}

/// Tracks the durable image from point to point, in the pool and in its name.
struct Durable {
    name: u128,
    /// Lines that may have become durable since.
    suspects: Vec<u64>,
    events: usize,
}

impl Durable {
    fn follow(&mut self, judge: &Judge, point: &CrashPoint<'_>, log: &[Event]) {
        for event in &log[self.events..point.events_done()] {
            match event.op {
                Op::Store { at, .. } => self.suspects.push(at - at % LINE_BYTES),
                Op::Fence => self.settle(judge, point),
                _ => {}
            }
        }
        self.events = point.events_done();
        let is_nothing_in_flight = point.combinations() == 1;
        if is_nothing_in_flight {
            self.settle(judge, point);
        }
    }

    /// Compares the suspects with what is durable now. Lines that are still in flight stay
    /// suspects.
    fn settle(&mut self, judge: &Judge, point: &CrashPoint<'_>) {
        let durable = point.durable();
        self.suspects.sort_unstable();
        self.suspects.dedup();
        for &line in &self.suspects {
            let mut old = [0; LINE_BYTES as usize];
            judge.pool.read(line, &mut old);
            let new = &durable[line as usize..(line + LINE_BYTES) as usize];
            if let Ok(new) = <&LineBytes>::try_from(new)
                && old != *new
            {
                self.name ^= judge.names.of_change(line, &old, new);
                judge.pool.write(line, new);
            }
        }
        let in_flight = point.in_flight();
        let waits = |line: &u64| {
            in_flight
                .binary_search_by_key(line, |state| state.line)
                .is_ok()
        };
        self.suspects.retain(waits);
    }
}
