//! Crashes of mkfs: what they leave is either no pool or a complete one.

use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use vellum::{Error, FormatOptions, MappingKind, NamespaceKind, format};
use vellum_check::{Class, Finding, MemoryImage, Options as CheckOptions, Severity, check};
use vellum_layout::SuperblockError;
use vellum_media::{CrashPoint, CrashState, Event, Op};
use xxhash_rust::xxh3::xxh3_128;

use crate::Options;
use crate::diagnose::missing;
use crate::explore::{crash_points, cut};
use crate::id::{CrashId, Mode};
use crate::jobs::{Family, Job};
use crate::judge::Wrong;
use crate::memories::{Explored, Shared};
use crate::mutant::Mutant;
use crate::plan::{Plan, Quota, plan, plan_every_point};
use crate::replay::{Replay, ReplayError, crash_at, events_around};
use crate::report::{Counts, Kind, Violation, WorkloadReport};
use crate::run::{Change, Progress};
use crate::session::{
    CLOCK_AFTER, CLOCK_START, EXTERNAL_DATA, POOL_BYTES, Result, Session, blank_image, mount,
};
use crate::tree::{Tree, read_tree};
use crate::workload::{PoolKind, Step};

const OLD: [u8; 16] = [7; 16];
const NEW: [u8; 16] = [8; 16];

/// Runs of mkfs: their names, and what was there before.
pub const MAKINGS: [(&str, &str); 7] = [
    ("mkfs/in-zeros", "zeros"),
    ("mkfs/over-noise", "bytes of anything"),
    ("mkfs/over-pool", "a pool that was closed"),
    ("mkfs/over-logged-pool", "a pool with a log that was closed"),
    ("mkfs/with-level-table", "zeros"),
    ("mkfs/with-areas", "zeros"),
    ("mkfs/with-external-data", "zeros"),
];
/// The operation in flight in all of them.
const OPERATION: &str = "mkfs";
/// The most violations that are kept.
const VIOLATIONS_MAX: usize = 16;

/// A pool that is being formatted.
pub(crate) struct Making {
    pub(crate) name: &'static str,
    /// The bytes that were there before.
    pub(crate) base: Vec<u8>,
    /// The tree of the pool that was there before.
    old: Option<Tree>,
    /// Ends with a marker: mkfs has returned.
    pub(crate) log: Vec<Event>,
}

/// What an interrupted mkfs may leave.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Left {
    Nothing,
    OldPool,
    NewPool,
}

/// The verdicts on images, each for a crash before or after mkfs returned: what the image is, or
/// what is wrong with it.
type Judged = HashMap<(u128, bool), std::result::Result<Left, Wrong>>;

/// Every run of mkfs.
///
/// # Errors
/// The engine fails even without a crash.
pub(crate) fn makings() -> Result<Vec<Making>> {
    MAKINGS.iter().map(|&(name, _)| making(name)).collect()
}

/// A pool that is formatted over zeros, over an old pool, or over arbitrary bytes.
fn making(name: &'static str) -> Result<Making> {
    let zeros = || vec![0; POOL_BYTES as usize];
    let (namespace, mapping) = (NamespaceKind::Adaptive, MappingKind::Level);
    let usual = Choice::default;
    match name {
        "mkfs/in-zeros" => Making::record(name, zeros(), usual()),
        "mkfs/with-level-table" => Making::record(name, zeros(), Choice { mapping, ..usual() }),
        "mkfs/with-areas" => Making::record(
            name,
            zeros(),
            Choice {
                namespace,
                ..usual()
            },
        ),
        "mkfs/with-external-data" => Making::record(
            name,
            vec![0; PoolKind::Split.pool_bytes() as usize],
            Choice {
                pool_kind: PoolKind::Split,
                ..usual()
            },
        ),
        "mkfs/over-pool" => Making::record(name, old_pool(PoolKind::Memory)?, usual()),
        "mkfs/over-logged-pool" => Making::record(
            name,
            old_pool(PoolKind::Logged)?,
            Choice {
                pool_kind: PoolKind::Logged,
                ..usual()
            },
        ),
        _ => Making::record(name, noise(POOL_BYTES), usual()),
    }
}

/// The options of mkfs.
#[derive(Clone, Copy, Default)]
struct Choice {
    namespace: NamespaceKind,
    mapping: MappingKind,
    pool_kind: PoolKind,
}

/// As many bytes that belong to no pool.
pub(crate) fn noise(bytes: u64) -> Vec<u8> {
    let words = 0..bytes / 8;
    words
        .flat_map(|word| (word | 0xDEAD_BEEF << 32).to_le_bytes())
        .collect()
}

/// A pool with a file.
pub(crate) fn old_pool(pool_kind: PoolKind) -> Result<Vec<u8>> {
    let pool = Shared::of(blank_image(
        2,
        MappingKind::default(),
        NamespaceKind::default(),
        pool_kind,
    ));
    let mut session: Session = Session::new(pool.clone(), 64);
    for line in [
        "open-pool",
        "create f 644 -",
        "append f 5 5000",
        "close-pool",
    ] {
        session.step(&Step::parse(line))?;
    }
    Ok(pool.0.image())
}

/// The runs of mkfs, explored under the crash models that matter for them: nothing precedes mkfs,
/// and after a kill it is run again.
pub(crate) fn of_makings<'a>(options: &'a Options, progress: &'a Progress) -> Family<'a> {
    let explore = |name: &'static str| match making(name) {
        Ok(making) => {
            let modes = options.modes.iter();
            let modes = modes.filter(|mode| matches!(mode, Mode::X86 | Mode::Eadr));
            let reports = modes.map(|&mode| making.explore(mode, None, options));
            let reports: Vec<_> = reports.collect();
            reports
                .iter()
                .for_each(|report| progress.add(&report.counts));
            reports
        }
        Err(error) => vec![WorkloadReport::not_run(name, &error, OPERATION)],
    };
    let jobs = MAKINGS.iter().map(|&(name, _)| Job {
        name,
        operations: [OPERATION].into(),
        explore: Box::new(move || explore(name)),
    });
    Family {
        jobs: jobs.collect(),
        until: options.until,
    }
}

/// Repeats the crash of mkfs that `id` names; `None` if it names no run of mkfs.
pub(crate) fn replay_making(id: &CrashId) -> Option<std::result::Result<Replay, ReplayError>> {
    let &(name, _) = MAKINGS.iter().find(|(name, _)| *name == id.workload)?;
    Some(match making(name) {
        Ok(making) => making.replay(id),
        Err(error) => Err(ReplayError::Making(error.to_string())),
    })
}

/// The exploration of the crashes of one run of mkfs.
struct Exploring<'a> {
    making: &'a Making,
    mode: Mode,
    mutant: Option<&'a Mutant>,
    start: Instant,
    judged: Judged,
    counts: Counts,
    violations: Vec<Violation>,
    wrong_states: u64,
}

impl Exploring<'_> {
    /// Judges what a crash at `point` may leave, unless too many states were wrong already.
    fn point(&mut self, point: &CrashPoint<'_>, quota: Quota, options: &Options) {
        self.counts.points += 1;
        self.counts.points_exhaustive += u64::from(quota.is_exhaustive);
        self.counts.points_sampled += u64::from(!quota.is_exhaustive);
        if self.wrong_states >= options.wrong_states || quota.states == 0 {
            return;
        }
        let seed = options.seed ^ point.events_done() as u64;
        for state in point.states(quota.states, seed) {
            self.state(point, &state);
        }
    }

    fn state(&mut self, point: &CrashPoint<'_>, state: &CrashState) {
        self.counts.generated += 1;
        let image = point.image(state);
        let made = point.marker().is_some();
        let judge = || {
            self.counts.distinct += 1;
            self.making.judge(&image, made)
        };
        let judged = self.judged.entry((xxh3_128(&image), made));
        let Err(wrong) = judged.or_insert_with(judge).clone() else {
            return;
        };
        self.wrong_states += 1;
        let same = |of: &&mut Violation| of.kind == wrong.0 && of.detail == wrong.1;
        match self.violations.iter_mut().find(same) {
            Some(known) => known.states += 1,
            None => self.violations.push(self.violation((point, state), &wrong)),
        }
    }

    fn violation(
        &self,
        (point, state): (&CrashPoint<'_>, &CrashState),
        (kind, detail): &Wrong,
    ) -> Violation {
        let id = CrashId {
            mode: self.mode,
            workload: self.making.name.to_owned(),
            mutant: self.mutant.cloned(),
            cuts: vec![cut(point, state)],
        };
        Violation {
            states: 1,
            moment: moment(point.marker().is_some()),
            missing: missing(point, state),
            ..Violation::of_run(&id.to_string(), *kind, detail.clone(), OPERATION)
        }
    }

    fn report(mut self, exhaustive: bool, cut_short: bool) -> WorkloadReport {
        let left = self.judged.values().filter_map(|of| of.clone().ok());
        let left: HashSet<Left> = left.collect();
        let mut counts = self.counts;
        counts.checked = counts.distinct;
        counts.meanings = left.len() as u64;
        counts.violations = self.violations.len() as u64;
        counts.seconds = self.start.elapsed().as_secs_f64();
        self.violations.truncate(VIOLATIONS_MAX);
        WorkloadReport {
            workload: self.making.name.to_owned(),
            mode: self.mode.name().to_owned(),
            counts,
            operations: [(OPERATION.to_owned(), counts)].into(),
            exhaustive: exhaustive && !cut_short,
            cut_short,
            violations: self.violations,
        }
    }
}

impl Making {
    fn record(name: &'static str, base: Vec<u8>, choice: Choice) -> Result<Self> {
        let known_zero = base.iter().all(|&byte| byte == 0);
        let old = look(&base).ok().map(|(_, tree)| tree);
        let pool = Shared::of(base.clone());
        pool.0.start_recording();
        let options = FormatOptions {
            thread_slots: Some(2),
            uuid: NEW,
            hash_seed: 0x5EED,
            now_ns: CLOCK_START,
            known_zero,
            namespace: choice.namespace,
            mapping: choice.mapping,
            is_logged: choice.pool_kind.is_logged(),
            external: choice.pool_kind.is_external().then_some(EXTERNAL_DATA),
            metadata_bytes: choice.pool_kind.metadata_bytes(),
            ..FormatOptions::default()
        };
        format(&*pool.0, &options)?;
        pool.0.marker(1);
        Ok(Self {
            name,
            base,
            old,
            log: pool.0.take_log(),
        })
    }

    /// Explores the crashes, until too many states are wrong.
    pub(crate) fn explore(
        &self,
        mode: Mode,
        mutant: Option<&Mutant>,
        options: &Options,
    ) -> WorkloadReport {
        let log = Change::from(mutant).of(&self.log);
        let points = || crash_points(&self.base, &log, mode);
        let Plan { quotas, exhaustive } = match mode {
            Mode::Eadr => plan_every_point(points(), 0, options.points_in_order),
            _ => plan(points(), &log, 0, options.states_per_point),
        };
        let mut exploring = Exploring {
            making: self,
            mode,
            mutant,
            start: Instant::now(),
            judged: Judged::new(),
            counts: Counts {
                workloads: 1,
                ..Counts::default()
            },
            violations: Vec::new(),
            wrong_states: 0,
        };
        let (mut walk, mut cut_short) = (points(), false);
        for quota in &quotas {
            let Some(point) = walk.next_point() else {
                break;
            };
            cut_short = options.is_over();
            if cut_short {
                break;
            }
            exploring.point(&point, *quota, options);
        }
        exploring.report(exhaustive, cut_short)
    }

    fn replay(&self, id: &CrashId) -> std::result::Result<Replay, ReplayError> {
        let log = Change::from(id.mutant.as_ref()).of(&self.log);
        let mut replay = Replay::of(id);
        replay.image.clone_from(&self.base);
        let [cut] = &id.cuts[..] else {
            return match id.cuts.get(1) {
                Some(again) => Err(ReplayError::NoSuchPoint(again.events)),
                None => Ok(replay),
            };
        };
        let crash = crash_at(&self.base, &log, id.mode, cut)?;
        let made = log[..cut.events]
            .iter()
            .any(|event| matches!(event.op, Op::Marker(_)));
        replay.moment = moment(made);
        replay.events = events_around(&log, cut, false);
        replay.lines = crash.lines;
        replay.image = crash.image;
        replay.wrong.extend(self.judge(&replay.image, made).err());
        Ok(replay)
    }

    /// Whether a crash left the complete new pool.
    pub(crate) fn leaves_new_pool(&self, image: &[u8]) -> bool {
        self.judge(image, false) == Ok(Left::NewPool)
    }

    /// Classifies what a crash left before or after mkfs returned; an error says what is wrong with
    /// it.
    fn judge(&self, image: &[u8], made: bool) -> std::result::Result<Left, Wrong> {
        let looked = catch_unwind(AssertUnwindSafe(|| look(image)));
        let looked = looked.map_err(|_| (Kind::Panic, "opening panics".to_owned()))?;
        let (uuid, tree) = match looked {
            Ok(found) => found,
            Err(Error::Superblock(SuperblockError::NotVellum | SuperblockError::Damaged))
                if !made =>
            {
                return Ok(Left::Nothing);
            }
            Err(error) => return Err((Kind::Recovery, error.to_string())),
        };
        if let Some(old) = self.old.as_ref().filter(|_| uuid == OLD && !made) {
            let part = "part of the pool that was there";
            let is_whole = tree.nodes == old.nodes;
            return if is_whole {
                Ok(Left::OldPool)
            } else {
                Err((Kind::Tree, part.to_owned()))
            };
        }
        if uuid != NEW || tree.nodes.len() != 1 {
            return Err((Kind::Tree, "not the new pool".to_owned()));
        }
        let report = check(
            &MemoryImage(&*Shared::of(image.to_vec()).0),
            CheckOptions::default(),
        );
        // Until mkfs returns, a copy of the superblock may be torn.
        let counts = |finding: &&Finding| {
            finding.severity == Severity::Damage && (made || finding.class != Class::SuperblockCopy)
        };
        let damage = report.findings.iter().find(counts);
        match damage {
            Some(finding) => Err((Kind::Damage, finding.to_string())),
            None => Ok(Left::NewPool),
        }
    }
}

/// Describes the moment.
fn moment(made: bool) -> String {
    let moment = match made {
        true => "the pool had been formatted",
        false => "the pool was being formatted",
    };
    moment.to_owned()
}

/// The UUID of the pool that an image holds, and its tree.
fn look(image: &[u8]) -> Result<([u8; 16], Tree)> {
    let fs = mount::<Explored>(&Shared::of(image.to_vec()), 64, CLOCK_AFTER)?;
    Ok((fs.superblock().uuid, read_tree(&fs)?))
}

#[cfg(test)]
mod tests {
    use vellum_testing::{own_source, slice};

    use super::*;
    use crate::jobs::run_families;

    #[test]
    fn an_interrupted_mkfs_leaves_no_pool_or_a_whole_one() {
        let source = own_source!();
        let makings = MAKINGS.map(|(name, _)| name.to_owned());
        let makings = slice(3, makings, |name| format!("{name} {source}"));
        let options = Options {
            states_per_point: 64,
            only: makings.clone(),
            ..Options::default()
        };
        let progress = Progress::default();
        let report = run_families(vec![of_makings(&options, &progress)], &options, &progress);
        assert_eq!(report.violations().next(), None, "{report}");
        assert_eq!(report.workloads.len(), 2 * makings.len());
        for of in &report.workloads {
            let Counts {
                checked, meanings, ..
            } = of.counts;
            // No pool, the new one, and in some runs the old one.
            let expected = 2 + u64::from(of.workload.ends_with("-pool"));
            assert!(checked > 20 && meanings == expected, "{of:?}");
        }
    }
}
