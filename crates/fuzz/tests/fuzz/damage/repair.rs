//! Repairs of pools that the engine made and that were damaged at random: the checker finds nothing
//! afterwards, the engine opens and uses them, and everything undamaged is there.

use std::collections::BTreeSet;

use crate::support::{self, assert_survived, plan_of, strictly, write};
use vellum_check::Class;
use vellum_fuzz::{Input, Sample, StructureKind, change, judge, mount, samples};
use vellum_layout::{BLOCK_BYTES, PoolState, StateWord};
use vellum_media::{CrashPoints, SimPool};
use vellum_testing::{own_source, slice};

/// The number of cases in a run of the tests; `VELLUM_CASES` sets another for a long run.
const CASES: u64 = 400;

fn cases() -> u64 {
    let set = std::env::var("VELLUM_CASES").ok();
    set.and_then(|set| set.parse().ok()).unwrap_or(CASES)
}

/// Random numbers by splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let words = std::iter::repeat_with(|| self.next().to_le_bytes());
        words.take(len.div_ceil(8)).flatten().take(len).collect()
    }
}

/// Repairs `damaged`; returns the classes of damage that were found. What cannot be repaired stays
/// as it is.
fn hold(sound: &Sample, damaged: &[u8]) -> BTreeSet<Class> {
    let plan = plan_of(damaged);
    let classes = plan
        .before
        .findings
        .iter()
        .map(|found| found.class)
        .collect();
    if plan.refused.is_some() {
        assert!(plan.is_empty());
        return classes;
    }
    let actions = plan.actions.iter().map(|action| format!("\n  {action}"));
    assert!(
        plan.mends_all(),
        "before: {}\nafter: {}\nactions:{}",
        plan.before,
        plan.after,
        actions.collect::<String>()
    );
    let mut after = damaged.to_vec();
    write(&plan, &mut after);
    if !plan.is_empty() {
        let report = strictly(&after);
        assert!(report.is_sound(), "{report}");
    }
    assert!(plan_of(&after).is_empty());
    assert_survived(&sound.image, damaged, &after, &plan);
    judge(after, false);
    classes
}

/// Runs all cases, each determined by its number, and reports which failed.
fn run(name: &str, case: impl Fn(&mut Random) -> BTreeSet<Class>) -> BTreeSet<Class> {
    run_one_in(1, name, case)
}

/// A short run tries one case in `of`.
fn run_one_in(
    of: usize,
    name: &str,
    case: impl Fn(&mut Random) -> BTreeSet<Class>,
) -> BTreeSet<Class> {
    let mut met = BTreeSet::new();
    let source = own_source!();
    for number in slice(of, 0..cases(), |number| format!("{name} {number} {source}")) {
        let result =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| case(&mut Random(number))));
        match result {
            Ok(classes) => met.extend(classes),
            Err(_) => panic!("{name}: case {number}"),
        }
    }
    met
}

fn pick(random: &mut Random) -> Sample {
    samples()[random.below(samples().len() as u64) as usize].clone()
}

/// Damaged bits, words, lines and blocks.
#[test]
fn any_bytes() {
    run("any bytes", |random| {
        let sound = pick(random);
        let mut damaged = sound.image.clone();
        let end = match random.below(4) {
            0 => sound.image.len() as u64,
            _ => sound.geometry.saved_state_at,
        };
        for _ in 0..=random.below(4) {
            let bytes = [1, 8, 64, 4096][random.below(4) as usize];
            let at = (random.below(end) / bytes * bytes) as usize;
            let part = &mut damaged[at..at + bytes as usize];
            match random.below(3) {
                0 => part[0] ^= 1 << random.below(8),
                1 => part.fill(0),
                _ => part.copy_from_slice(&random.bytes(part.len())),
            }
        }
        hold(&sound, &damaged)
    });
}

/// An image with some unreadable blocks.
struct Holed {
    bytes: Vec<u8>,
    lost: BTreeSet<u64>,
}

impl vellum_check::Image for Holed {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read(&self, at: u64, out: &mut [u8]) -> std::io::Result<()> {
        let first = at / BLOCK_BYTES * BLOCK_BYTES;
        if self
            .lost
            .range(first..at + out.len() as u64)
            .next()
            .is_some()
        {
            return Err(std::io::Error::other("gone"));
        }
        self.bytes.read(at, out)
    }
}

/// Unreadable blocks, some of them together with other damage.
#[test]
fn lost_blocks() {
    let met = run("lost blocks", |random| {
        let sound = pick(random);
        let mut damaged = sound.clone();
        if random.below(4) == 0 {
            change_some(&mut damaged, random);
        }
        let blocks = sound.geometry.data_at / BLOCK_BYTES;
        let lost: BTreeSet<u64> = (0..=random.below(3))
            .map(|_| random.below(blocks) * BLOCK_BYTES)
            .collect();
        for &at in &lost {
            damaged.image[at as usize..(at + BLOCK_BYTES) as usize].fill(0);
        }
        let holed = Holed {
            bytes: damaged.image.clone(),
            lost,
        };
        let options = vellum_repair::Options {
            now_ns: support::LATER,
            ..vellum_repair::Options::default()
        };
        let plan = vellum_repair::plan(&holed, options);
        let classes = plan.classes().into_keys().collect();
        if plan.refused.is_some() {
            assert!(plan.is_empty());
            return classes;
        }
        assert!(plan.mends_all(), "{:#?} {}", plan.actions, plan.after);
        let mut after = holed.bytes;
        write(&plan, &mut after);
        if !plan.is_empty() {
            let report = strictly(&after);
            assert!(report.is_sound(), "{report}");
        }
        assert_survived(&sound.image, &damaged.image, &after, &plan);
        judge(after, false);
        classes
    });
    assert!(met.contains(&Class::Unreadable) && met.len() > 5, "{met:?}");
}

/// Structures that hold files, without the state block, which records how the pool was left.
const PARTS: [StructureKind; 14] = [
    StructureKind::State,
    StructureKind::Journal,
    StructureKind::Chunk,
    StructureKind::LiveMap,
    StructureKind::Inode,
    StructureKind::Entry,
    StructureKind::Extent,
    StructureKind::LogWord,
    StructureKind::Text,
    StructureKind::Map,
    StructureKind::Area,
    StructureKind::AreaExtent,
    StructureKind::States,
    StructureKind::MoveList,
];

/// Changes structures in use.
fn change_some(damaged: &mut Sample, random: &mut Random) {
    let most = if random.below(8) == 0 { 40 } else { 4 };
    let parts = PARTS
        .into_iter()
        .filter(|&part| !damaged.structures(part).is_empty());
    let parts: Vec<StructureKind> = parts.collect();
    for _ in 0..=random.below(most) {
        let bytes = random.bytes(64);
        let part = parts[random.below(parts.len() as u64) as usize];
        change(damaged, part, &mut Input::new(&bytes));
    }
}

/// Fields of structures in use are changed, most with a checksum that fits.
#[test]
fn structures() {
    let met = run("structures", |random| {
        let sound = pick(random);
        let mut damaged = sound.clone();
        change_some(&mut damaged, random);
        hold(&sound, &damaged.image)
    });
    assert!(met.len() > 25, "{met:?}");
}

/// A power cut somewhere in a repair: another repair finishes it, and everything undamaged is
/// there.
#[test]
fn cuts() {
    run_one_in(4, "cuts", |random| {
        let sound = pick(random);
        let mut damaged = sound.clone();
        change_some(&mut damaged, random);
        let plan = plan_of(&damaged.image);
        if plan.is_empty() {
            return BTreeSet::new();
        }
        let pool = SimPool::from_image(damaged.image.clone());
        pool.start_recording();
        vellum_repair::apply(&pool, &plan).expect("a simulated pool takes it");
        let log = pool.take_log();
        let mut points = CrashPoints::new(damaged.image.clone(), &log);
        let stop = random.below(log.len() as u64) as usize;
        while let Some(point) = points.next_point() {
            if point.events_done() < stop {
                continue;
            }
            for state in point.states(3, random.next()) {
                let cut = point.image(&state);
                hold(&sound, &cut);
                let (mut after, again) = (cut.clone(), plan_of(&cut));
                write(&again, &mut after);
                let mut both = plan.clone();
                both.actions.extend(again.actions);
                assert_survived(&sound.image, &damaged.image, &after, &both);
            }
            break;
        }
        BTreeSet::new()
    });
}

/// Arbitrary superblocks: repair refuses, or mends what it finds.
#[test]
fn superblocks() {
    run("superblocks", |random| {
        let mut damaged = pick(random);
        let bytes = random.bytes(64);
        change(
            &mut damaged,
            StructureKind::Superblock,
            &mut Input::new(&bytes),
        );
        let plan = plan_of(&damaged.image);
        assert!(plan.refused.is_none() || plan.is_empty());
        BTreeSet::new()
    });
}

/// After an unfinished repair, a pool can be read, but not opened for writing.
#[test]
fn a_pool_under_repair_is_for_reading() {
    for (was_clean, sample) in [(true, 0), (false, 2)] {
        let mut sample = samples()[sample].clone();
        let at = sample.geometry.state_at + PoolState::WORD;
        sample.set_word(at, StateWord::repairing(was_clean, 1).0);
        let refused = mount(sample.image.clone(), false);
        let refused = refused
            .map(|_| ())
            .expect_err("it is not opened for writing");
        let said = refused.to_string();
        assert!(said.contains("a repair was not finished"), "{said}");
        assert!(said.contains("vellum repair"), "{said}");
        assert!(mount(sample.image.clone(), true).is_ok());
        hold(&samples()[0], &sample.image);
    }
}
