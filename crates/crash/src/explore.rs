//! Exploring one recorded workload: every crash point, its states, each different image once.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Instant;

use vellum_media::{CrashPoint, CrashPoints, CrashState, Event, LINE_BYTES, Memory, Op};
use xxhash_rust::xxh3::xxh3_128_with_seed;

use crate::id::{CrashId, Cut, Mode};
use crate::judge::{Judged, Verdict, judge};
use crate::memories::Shared;
use crate::plan::{Plan, plan, plan_every_point, returned_at};
use crate::record::Recorded;
use crate::report::{Kind, Violation, WorkloadReport};
use crate::{Options, Subject};

/// Violations of a workload that are kept.
const VIOLATIONS_MAX: usize = 16;

/// Explores `log`, which a run of `recorded` left (or something like it).
pub(crate) fn explore(
    recorded: &Recorded,
    subject: &Subject<'_>,
    options: &Options,
) -> WorkloadReport {
    let start = Instant::now();
    let mut explorer = Explorer {
        recorded,
        options,
        mode: subject.mode,
        pool: Shared::of(subject.base.clone()),
        seen: HashMap::new(),
        verdicts: Vec::new(),
        meanings: HashSet::new(),
        recoveries: HashSet::new(),
        known: HashMap::new(),
        wrong: 0,
        report: WorkloadReport {
            workload: recorded.workload.name.clone(),
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
    let plan = explorer.walk(&subject.base, 0, subject.log, &scope);
    explorer.report.exhaustive = plan;
    explorer.report.counts.meanings = explorer.meanings.len() as u64;
    explorer.report.counts.violations = explorer.known.len() as u64;
    explorer.report.seconds = start.elapsed().as_secs_f64();
    explorer.report
}

struct Explorer<'a> {
    recorded: &'a Recorded,
    options: &'a Options,
    mode: Mode,
    /// Holds what is durable at the point that the walk stands at.
    pool: Shared,
    /// Images judged, by hash; indices into `verdicts`.
    seen: HashMap<u128, usize>,
    verdicts: Vec<Verdict>,
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
    /// For crashes of recovery: steps that had returned, and the tree that recovery makes.
    within: Option<(usize, u64)>,
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
        let mut next = quotas.iter();
        while let (Some(point), Some(&quota)) = (walk.next_point(), next.next()) {
            durable.follow(&self.pool, &point, log);
            if point.events_done() <= scope.skip {
                continue;
            }
            self.report.counts.points += 1;
            if quota > 0 && self.wrong < self.options.wrong_states {
                self.visit(&point, quota, durable.hash, scope);
            }
        }
        exhaustive
    }

    fn visit(&mut self, point: &CrashPoint<'_>, quota: usize, durable: u128, scope: &Scope) {
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
            let hash = chosen.fold(durable, |hash, (line, &choice)| hash ^ line[choice]);
            let verdict = match self.seen.get(&hash) {
                Some(&known) => known,
                None => self.try_image(point, &state, hash, scope),
            };
            self.report_on(verdict, point, &state, scope);
        }
    }

    /// Judges an image that was not seen before.
    fn try_image(
        &mut self,
        point: &CrashPoint<'_>,
        state: &CrashState,
        hash: u128,
        scope: &Scope,
    ) -> usize {
        for (line, bytes) in point.arrived(state) {
            self.pool.write(line, bytes);
        }
        let Judged { verdict, recovery } = judge(self.recorded, &mut self.pool, &self.meanings);
        self.report.counts.distinct += 1;
        self.report.counts.checked += 1;
        self.meanings.insert(verdict.meaning);
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
                within: Some((returned_at(point), meaning)),
            };
            self.report.counts.recoveries_crashed += 1;
            let image = self.pool.0.image();
            self.walk(&image, hash, &recovery, &inner);
            put_back(&self.pool, &image, &recovery);
        }
        for (line, _) in point.arrived(state) {
            let durable = &point.durable()[line as usize..(line + LINE_BYTES) as usize];
            self.pool.write(line, durable);
        }
        index
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

    fn report_on(
        &mut self,
        verdict: usize,
        point: &CrashPoint<'_>,
        state: &CrashState,
        scope: &Scope,
    ) {
        let returned = scope
            .within
            .map_or_else(|| returned_at(point), |(returned, _)| returned);
        let verdict = &self.verdicts[verdict];
        let by_stage = verdict
            .by_stage
            .get(returned)
            .map_or(&[][..], Vec::as_slice);
        let other = scope
            .within
            .is_some_and(|(_, meaning)| meaning != verdict.meaning && verdict.failures.is_empty());
        let nested = (
            Kind::Nested,
            "another tree than without the second crash".to_owned(),
        );
        let wrong = verdict.failures.iter().chain(by_stage);
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
                cuts.push(cut(point, state));
                let workload = self.recorded.workload.name.clone();
                let id = CrashId {
                    mode: self.mode,
                    workload,
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
