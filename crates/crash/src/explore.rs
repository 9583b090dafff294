//! Exploring one recorded workload: every crash point, its states, each different image once.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Instant;

use vellum_media::{CrashPoint, CrashPoints, CrashState, Event, LINE_BYTES, Memory, Op};
use xxhash_rust::xxh3::xxh3_128_with_seed;

use crate::id::{CrashId, Cut, Mode};
use crate::judge::{Judged, Verdict, judge, recovered_tree};
use crate::memories::Shared;
use crate::oracle::{Stage, stage_after};
use crate::plan::{Plan, plan, plan_every_point};
use crate::report::{Kind, Violation, WorkloadReport};
use crate::tree::Tree;
use crate::{Options, Subject};

/// Violations of a workload that are kept.
const VIOLATIONS_MAX: usize = 16;

/// Explores what `subject` did.
pub(crate) fn explore(subject: &Subject<'_>, options: &Options) -> WorkloadReport {
    let start = Instant::now();
    let mut explorer = Explorer {
        subject,
        options,
        mode: subject.mode,
        pool: Shared::of(subject.base.clone()),
        seen: HashMap::new(),
        verdicts: Vec::new(),
        allowed: HashMap::new(),
        meanings: HashSet::new(),
        recoveries: HashSet::new(),
        known: HashMap::new(),
        wrong: 0,
        report: WorkloadReport {
            workload: subject.name.clone(),
            mode: subject.mode.name().to_owned(),
            ..WorkloadReport::default()
        },
    };
    let bound = match subject.mode {
        Mode::Lazy => options.lazy_states,
        _ => options.states_per_point,
    };
    let scope = Scope {
        skip: subject.skip,
        bound,
        cuts: Vec::new(),
        within: None,
    };
    let log = subject.rewritten(subject.log);
    explorer.report.exhaustive = explorer.walk(&subject.base, 0, &log, &scope);
    explorer.report.counts.meanings = explorer.meanings.len() as u64;
    explorer.report.counts.violations = explorer.known.len() as u64;
    explorer.report.seconds = start.elapsed().as_secs_f64();
    explorer.report
}

struct Explorer<'a> {
    subject: &'a Subject<'a>,
    options: &'a Options,
    mode: Mode,
    /// Holds what is durable at the point that the walk stands at.
    pool: Shared,
    /// Images judged, by hash; indices into `verdicts`.
    seen: HashMap<u128, usize>,
    verdicts: Vec<Verdict>,
    /// What the oracle finds wrong with a tree at a stage.
    allowed: HashMap<(u64, Stage), Vec<(Kind, String)>>,
    meanings: HashSet<u64>,
    /// Recoveries whose crashes were explored, by what they stored where.
    recoveries: HashSet<u64>,
    /// Violations by kind and by detail without numbers; indices into the report's.
    known: HashMap<(Kind, String), Option<usize>>,
    /// States that showed a violation.
    wrong: u64,
    report: WorkloadReport,
}

/// What a walk is about.
struct Scope {
    /// Points after at most so many events are not explored.
    skip: usize,
    /// States a point, at most.
    bound: usize,
    /// The crashes before.
    cuts: Vec<Cut>,
    /// For crashes of recovery: the stage of the crash before, and the tree that recovery makes.
    within: Option<(Stage, u64)>,
}

/// Where a walk stands.
struct At<'a> {
    point: &'a CrashPoint<'a>,
    /// What had returned.
    stage: Stage,
    /// Names what is durable, which is what the pool holds.
    durable: u128,
}

impl At<'_> {
    /// Makes the pool hold `state`.
    fn enter(&self, pool: &Shared, state: &CrashState) {
        for (line, bytes) in self.point.arrived(state) {
            pool.write(line, bytes);
        }
    }

    /// Makes the pool hold what is durable again.
    fn leave(&self, pool: &Shared, state: &CrashState) {
        for (line, _) in self.point.arrived(state) {
            let durable = &self.point.durable()[line as usize..(line + LINE_BYTES) as usize];
            pool.write(line, durable);
        }
    }
}

impl Explorer<'_> {
    /// Walks through `log` from `base`, which the pool holds and `base_hash` names; whether every
    /// state was tried. Leaves the pool in another state.
    fn walk(&mut self, base: &[u8], base_hash: u128, log: &[Event], scope: &Scope) -> bool {
        let points = || {
            let points = CrashPoints::new(base.to_vec(), log);
            if self.mode == Mode::Eadr {
                points.eadr()
            } else {
                points
            }
        };
        let Plan { quotas, exhaustive } = match self.mode {
            Mode::Eadr => plan_every_point(points(), scope.skip, 16 * scope.bound),
            _ => plan(points(), log, scope.skip, scope.bound),
        };
        let mut walk = points();
        let mut durable = Durable {
            hash: base_hash,
            suspects: Vec::new(),
            events: 0,
        };
        let mut stage = Stage::default();
        let mut next = quotas.iter();
        while let (Some(point), Some(&quota)) = (walk.next_point(), next.next()) {
            let passed = &log[durable.events..point.events_done()];
            stage = stage_after(self.subject.oracle, stage, passed);
            durable.follow(&self.pool, &point, log);
            if point.events_done() <= scope.skip {
                continue;
            }
            self.report.counts.points += 1;
            if quota > 0 && self.wrong < self.options.wrong_states {
                let stage = scope.within.map_or(stage, |(stage, _)| stage);
                let at = At {
                    point: &point,
                    stage,
                    durable: durable.hash,
                };
                self.visit(&at, quota, scope);
            }
        }
        exhaustive
    }

    fn visit(&mut self, at: &At<'_>, quota: usize, scope: &Scope) {
        let point = at.point;
        let seed = self.options.seed ^ point.events_done() as u64;
        let states = point.states(quota, seed);
        let deltas: Vec<Vec<u128>> = point
            .in_flight()
            .iter()
            .map(|line| {
                let of = |bytes| xxh3_128_with_seed(bytes, line.line);
                let old = of(&line.contents[0]);
                line.contents.iter().map(|bytes| old ^ of(bytes)).collect()
            })
            .collect();
        for state in states {
            self.report.counts.generated += 1;
            let chosen = deltas.iter().zip(&state.choice);
            let hash = chosen.fold(at.durable, |hash, (line, &choice)| hash ^ line[choice]);
            let verdict = match self.seen.get(&hash) {
                Some(&known) => known,
                None => self.try_image(at, &state, hash, scope),
            };
            self.ask_oracle(verdict, at, &state);
            self.report_on(verdict, at, &state, scope);
        }
    }

    /// Judges an image that was not seen before.
    fn try_image(&mut self, at: &At<'_>, state: &CrashState, hash: u128, scope: &Scope) -> usize {
        let point = at.point;
        at.enter(&self.pool, state);
        let cache_entries = self.subject.cache_entries;
        let Judged {
            verdict,
            tree,
            recovery,
        } = judge(&mut self.pool, cache_entries, &self.meanings);
        self.report.counts.distinct += 1;
        self.report.counts.checked += 1;
        self.meanings.insert(verdict.meaning);
        if let (Some(name), Some(tree)) = (verdict.tree, &tree) {
            self.judge_tree(name, tree, at.stage);
        }
        let sound = verdict.failures.is_empty();
        let meaning = verdict.meaning;
        let index = self.verdicts.len();
        self.verdicts.push(verdict);
        self.seen.insert(hash, index);
        let is_outer = scope.within.is_none();
        if is_outer && sound && self.may_crash_recovery() && self.is_new_recovery(&recovery) {
            let mut cuts = scope.cuts.clone();
            cuts.push(cut(point, state));
            let inner = Scope {
                skip: 0,
                bound: self.options.nested_states,
                cuts,
                within: Some((at.stage, meaning)),
            };
            self.report.counts.recoveries_crashed += 1;
            let image = self.pool.0.image();
            let log = self.subject.rewritten(&recovery);
            self.walk(&image, hash, &log, &inner);
            put_back(&self.pool, &image, &recovery);
        }
        at.leave(&self.pool, state);
        index
    }

    fn judge_tree(&mut self, name: u64, tree: &Tree, stage: Stage) {
        let oracle = self.subject.oracle;
        let judged = self.allowed.entry((name, stage));
        judged.or_insert_with(|| oracle.judge(tree, stage));
    }

    /// Asks the oracle about an image's tree at this stage, if it was only judged at others: the
    /// tree is recovered again, because trees are too large to be kept.
    fn ask_oracle(&mut self, verdict: usize, at: &At<'_>, state: &CrashState) {
        let Some(name) = self.verdicts[verdict].tree else {
            return;
        };
        if self.allowed.contains_key(&(name, at.stage)) {
            return;
        }
        at.enter(&self.pool, state);
        if let Some(tree) = recovered_tree(&self.pool, self.subject.cache_entries) {
            self.judge_tree(name, &tree, at.stage);
        }
        at.leave(&self.pool, state);
    }

    fn may_crash_recovery(&self) -> bool {
        self.mode == Mode::X86 && self.recoveries.len() < self.options.nested_recoveries
    }

    fn is_new_recovery(&mut self, recovery: &[Event]) -> bool {
        let mut hasher = DefaultHasher::new();
        for event in recovery {
            match event.op {
                Op::Store { at, .. } => at.hash(&mut hasher),
                Op::Flush { line } => (1, line).hash(&mut hasher),
                Op::Fence => 2.hash(&mut hasher),
                Op::Marker(_) => {}
            }
        }
        self.recoveries.insert(hasher.finish())
    }

    fn report_on(&mut self, verdict: usize, at: &At<'_>, state: &CrashState, scope: &Scope) {
        let verdict = &self.verdicts[verdict];
        let allowed = verdict.tree.map(|tree| (tree, at.stage));
        let at_stage = allowed.and_then(|of| self.allowed.get(&of));
        let at_stage = at_stage.map_or(&[][..], Vec::as_slice);
        let other = scope
            .within
            .is_some_and(|(_, meaning)| meaning != verdict.meaning && verdict.failures.is_empty());
        let nested = (
            Kind::Nested,
            "another tree than without the second crash".to_owned(),
        );
        let wrong = verdict.failures.iter().chain(at_stage);
        let wrong: Vec<_> = wrong.cloned().chain(other.then_some(nested)).collect();
        if wrong.is_empty() {
            return;
        }
        self.wrong += 1;
        for (kind, detail) in wrong {
            let plain: String = detail
                .chars()
                .filter(|c| !c.is_ascii_digit())
                .take(200)
                .collect();
            let violations = &mut self.report.violations;
            let place = self.known.entry((kind, plain)).or_insert_with(|| {
                let mut cuts = scope.cuts.clone();
                cuts.push(cut(at.point, state));
                let id = CrashId {
                    mode: self.mode,
                    workload: self.subject.name.clone(),
                    cuts,
                };
                let violation = Violation {
                    id: id.to_string(),
                    kind,
                    detail,
                    states: 0,
                };
                (violations.len() < VIOLATIONS_MAX).then(|| {
                    violations.push(violation);
                    violations.len() - 1
                })
            });
            if let Some(violation) = place.and_then(|at| violations.get_mut(at)) {
                violation.states += 1;
            }
        }
    }
}

fn cut(point: &CrashPoint<'_>, state: &CrashState) -> Cut {
    Cut {
        events: point.events_done(),
        choice: state.choice.clone(),
    }
}

/// Makes the pool hold `image` again where `log` changed it.
fn put_back(pool: &Shared, image: &[u8], log: &[Event]) {
    for event in log {
        if let Op::Store { at, .. } = event.op {
            pool.write(at, &image[at as usize..at as usize + 8]);
        }
    }
}

/// Follows what is durable from point to point, in the pool and in a hash.
struct Durable {
    hash: u128,
    /// Lines that may have become durable since.
    suspects: Vec<u64>,
    events: usize,
}

impl Durable {
    fn follow(&mut self, pool: &Shared, point: &CrashPoint<'_>, log: &[Event]) {
        for event in &log[self.events..point.events_done()] {
            match event.op {
                Op::Store { at, .. } => self.suspects.push(at - at % LINE_BYTES),
                Op::Fence => self.settle(pool, point),
                _ => {}
            }
        }
        self.events = point.events_done();
        if point.in_flight().is_empty() {
            self.settle(pool, point);
        }
    }

    /// Compares the suspects with what is durable now; those that are not durable stay suspects.
    fn settle(&mut self, pool: &Shared, point: &CrashPoint<'_>) {
        let durable = point.durable();
        self.suspects.sort_unstable();
        self.suspects.dedup();
        for &line in &self.suspects {
            let mut old = [0; LINE_BYTES as usize];
            pool.read(line, &mut old);
            let new = &durable[line as usize..(line + LINE_BYTES) as usize];
            if old[..] != *new {
                let of = |bytes: &[u8]| xxh3_128_with_seed(bytes, line);
                self.hash ^= of(&old) ^ of(new);
                pool.write(line, new);
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
