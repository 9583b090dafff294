//! Crashes of adding a dataset to a pool, and of removing one. The table has either its old content
//! or the new one, every dataset in it exists, and the first dataset is unchanged.

use vellum::experiments::{remove_dataset, settle_cut, settle_table, write_table};
use vellum::{FormatOptions, disk_sites, format};
use vellum_check::{Class, Finding, Left, Options, Report, Severity, check_killed};
use vellum_layout::{BLOCK_BYTES, DATASET_ALIGN, FsRecord, Superblock};
use vellum_media::{CrashPoints, Event, Op};
use vellum_testing::{own_source, slice};
use xxhash_rust::xxh3::xxh3_64;

use crate::memories::{Explored, Shared, image_after};
use crate::mkfs::{noise, old_pool};
use crate::mutant::Mutant;
use crate::session::{CLOCK_AFTER, CLOCK_START, POOL_BYTES, mount};
use crate::tree::{Tree, read_tree};
use crate::workload::PoolKind;

const NAME: &str = "more";
const UUID: [u8; 16] = [0x9A; 16];
/// The offset of the dataset, and its size.
const AT: u64 = DATASET_ALIGN;
const BYTES: u64 = DATASET_ALIGN;
const _: () = assert!(POOL_BYTES <= AT);

/// A change of the table, and of the dataset that it concerns.
struct Change {
    base: Vec<u8>,
    log: Vec<Event>,
    /// The trees of the first dataset and of the other one.
    trees: (Tree, Tree),
    /// Whether the table has the other dataset in the end.
    adds: bool,
    /// Whether the dataset's superblock is wiped in the end.
    wipes: bool,
}

/// A pool with a file.
fn pool() -> Vec<u8> {
    old_pool(PoolKind::Memory).unwrap()
}

/// Arbitrary bytes, the log of formatting a dataset in them, and the result.
fn part() -> (Vec<u8>, Vec<Event>, Vec<u8>) {
    let base = noise(BYTES);
    let pool = Shared::of(base.clone());
    pool.0.start_recording();
    let options = FormatOptions {
        thread_slots: Some(2),
        uuid: UUID,
        hash_seed: 0x5EED,
        now_ns: CLOCK_START,
        ..FormatOptions::default()
    };
    format(&*pool.0, &options).unwrap();
    let log = pool.0.take_log();
    let made = image_after(&base, &log);
    (base, log, made)
}

/// Moves an event of the dataset to its offset `AT` in the pool's file.
fn in_dataset(event: Event) -> Event {
    let op = match event.op {
        Op::Store {
            at,
            before,
            after,
            non_temporal,
        } => Op::Store {
            at: at + AT,
            before,
            after,
            non_temporal,
        },
        Op::Flush { line } => Op::Flush { line: line + AT },
        Op::Behind { at, cells } => Op::Behind { at: at + AT, cells },
        Op::Release { at, len } => Op::Release { at: at + AT, len },
        op @ (Op::Fence | Op::Marker(_)) => op,
    };
    Event { op, ..event }
}

/// A pool, and a dataset behind it, in one file.
fn file_of(pool: &[u8], part: &[u8]) -> Vec<u8> {
    let mut file = pool.to_vec();
    file.resize(AT as usize, 0);
    file.extend(part);
    file
}

/// Whether the point is before a fence, where the most is in flight.
fn is_before_a_fence(log: &[Event], done: usize) -> bool {
    log.get(done).is_some_and(|event| event.op == Op::Fence)
}

fn is_of_table(event: &Event) -> bool {
    disk_sites::name(event.site).starts_with("parts/")
}

fn counting(image: &[u8]) -> Option<Superblock> {
    let fs = mount::<Explored>(&Shared::of(image.to_vec()), 64, CLOCK_AFTER);
    fs.ok().map(|fs| fs.superblock().clone())
}

/// The checker's report on a pool, including what lies behind it.
fn checked(image: &[u8]) -> Report {
    let file = image.to_vec();
    let left = Left {
        file: Some(&file),
        ..Left::default()
    };
    check_killed(&file, left, Options::default())
}

fn tree_of(image: &[u8]) -> Result<Tree, String> {
    let mounted = mount::<Explored>(&Shared::of(image.to_vec()), 64, CLOCK_AFTER);
    let tree = mounted.and_then(|fs| read_tree(&fs));
    tree.map_err(|error| error.to_string())
}

impl Change {
    /// Formats a dataset, then adds it to the table.
    fn adding() -> Self {
        let (noise, log, made) = part();
        let base = file_of(&pool(), &noise);
        let mut log: Vec<Event> = log.into_iter().map(in_dataset).collect();
        let before = file_of(&pool(), &made);
        let table = counting(&before)
            .unwrap()
            .with_dataset(NAME, AT, BYTES, UUID);
        let trees = (tree_of(&before).unwrap(), tree_of(&made).unwrap());
        let pool = Shared::of(before);
        pool.0.start_recording();
        write_table(&*pool.0, &table.unwrap()).unwrap();
        log.extend(pool.0.take_log());
        Self {
            base,
            log,
            trees,
            adds: true,
            wipes: false,
        }
    }

    /// Removes a dataset from the table, and wipes it.
    fn removing() -> Self {
        let added = Self::adding();
        let base = image_after(&added.base, &added.log);
        let superblock = counting(&base).unwrap();
        let record = *superblock.dataset(NAME).unwrap();
        let pool = Shared::of(base.clone());
        pool.0.start_recording();
        remove_dataset(&*pool.0, &superblock, &record).unwrap();
        Self {
            base,
            log: pool.0.take_log(),
            adds: false,
            wipes: true,
            ..added
        }
    }

    /// Whether a crash left the table with the dataset; an error says what is wrong with the image.
    fn judge(&self, image: &[u8], has_returned: bool) -> Result<bool, String> {
        if tree_of(image)?.nodes != self.trees.0.nodes {
            return Err("the first dataset has changed".to_owned());
        }
        let superblock = counting(image).ok_or("no superblock")?;
        let report = checked(image);
        // A copy may be torn until the table is written.
        let counts = |of: &&Finding| {
            of.severity == Severity::Damage || (has_returned && of.class == Class::SuperblockCopy)
        };
        if let Some(damage) = report.findings.iter().find(counts) {
            return Err(damage.to_string());
        }
        let record = superblock.dataset(NAME);
        if has_returned && record.is_some() != self.adds {
            return Err("the change has returned, but the table does not show it".to_owned());
        }
        let own = &image[AT as usize..][..BYTES as usize];
        match record {
            Some(record) => self.judge_dataset(record, own).map(|()| true),
            None if has_returned && self.wipes && own.starts_with(&vellum_layout::MAGIC) => {
                Err("its superblock is left".to_owned())
            }
            None => Ok(false),
        }
    }

    fn judge_dataset(&self, record: &FsRecord, own: &[u8]) -> Result<(), String> {
        if (record.at, record.bytes, record.uuid) != (AT, BYTES, UUID) {
            return Err("another location".to_owned());
        }
        if counting(own).ok_or("no dataset")?.uuid != UUID {
            return Err("another dataset".to_owned());
        }
        if tree_of(own)?.nodes != self.trees.1.nodes {
            return Err("the other dataset has changed".to_owned());
        }
        Ok(())
    }

    /// Explores every point near the steps of the table, and some of those before. Returns the
    /// numbers of states with the dataset and without it.
    fn explore(&self, log: &[Event]) -> Result<(u32, u32), String> {
        let mut points = CrashPoints::new(self.base.clone(), log);
        let (mut with, mut without) = (0, 0);
        let mut count = |has_part| match has_part {
            true => with += 1,
            false => without += 1,
        };
        let first = log.iter().position(is_of_table).unwrap_or(log.len());
        while let Some(point) = points.next_point() {
            let done = point.events_done();
            let is_near = is_before_a_fence(log, done) && done >= first;
            let stride = if done < first { 997 } else { 131 };
            if !is_near && !done.is_multiple_of(stride) {
                continue;
            }
            for state in point.states(if is_near { 24 } else { 4 }, done as u64) {
                count(self.judge(&point.image(&state), false)?);
            }
        }
        for state in points.here().states(8, 1) {
            count(self.judge(&points.here().image(&state), true)?);
        }
        Ok((with, without))
    }

    /// Makes the same change after a crash of it, or the opposite one where it was complete.
    fn again(&self, image: Vec<u8>) -> Self {
        let made = image_after(&self.base, &self.log);
        let mut base = image;
        base[AT as usize..].copy_from_slice(&made[AT as usize..]);
        let superblock = counting(&base).unwrap();
        let adds = superblock.dataset(NAME).is_none();
        let table = match adds {
            true => superblock.with_dataset(NAME, AT, BYTES, UUID).unwrap(),
            false => superblock.without_dataset(NAME),
        };
        let pool = Shared::of(base.clone());
        pool.0.start_recording();
        settle_table(&*pool.0, &superblock).unwrap();
        write_table(&*pool.0, &table).unwrap();
        Self {
            base,
            log: pool.0.take_log(),
            trees: self.trees.clone(),
            adds,
            wipes: false,
        }
    }

    /// The next opening for writing after a crash, which settles the table.
    fn opened(&self, image: Vec<u8>) -> Self {
        let superblock = counting(&image).unwrap();
        let pool = Shared::of(image.clone());
        pool.0.start_recording();
        settle_cut(&*pool.0, &superblock).unwrap();
        Self {
            base: image,
            log: pool.0.take_log(),
            trees: self.trees.clone(),
            adds: superblock.dataset(NAME).is_some(),
            wipes: false,
        }
    }

    fn without(&self, site: vellum_media::Site) -> Vec<Event> {
        let without = Mutant::Omit(site.into()).rewrite(&self.log);
        assert!(without != self.log);
        without
    }
}

/// A change of the settings takes the steps of the table.
#[test]
fn a_power_cut_leaves_the_old_settings_or_the_new_ones() {
    let base = pool();
    let old = counting(&base).unwrap();
    let mut settings = old.settings();
    settings.label = "a label of several words".into();
    settings.uuid = [0x5a; 16];
    settings.mount_options = "noatime,commit=30".into();
    let new = old.with_settings(&settings).unwrap();
    let tree = tree_of(&base).unwrap();
    let recorded = Shared::of(base.clone());
    recorded.0.start_recording();
    settle_table(&*recorded.0, &old).unwrap();
    write_table(&*recorded.0, &new).unwrap();
    let log = recorded.0.take_log();
    let judge = |image: &[u8], has_returned: bool| {
        let found = counting(image).unwrap();
        assert!(found == new || (found == old && !has_returned));
        assert_eq!(tree_of(image).unwrap().nodes, tree.nodes);
        let report = checked(image);
        let counts = |of: &&Finding| {
            of.severity == Severity::Damage || (has_returned && of.class == Class::SuperblockCopy)
        };
        assert_eq!(report.findings.iter().find(counts), None);
        // The next opening for writing makes all copies equal.
        let opened = Shared::of(image.to_vec());
        opened.0.start_recording();
        settle_cut(&*opened.0, &found).unwrap();
        let settled = checked(&image_after(image, &opened.0.take_log()));
        assert!(
            settled
                .findings
                .iter()
                .all(|of| of.class != Class::SuperblockCopy)
        );
        found == new
    };
    let mut points = CrashPoints::new(base, &log);
    let (mut with, mut without) = (0, 0);
    while let Some(point) = points.next_point() {
        let done = point.events_done();
        let many = is_before_a_fence(&log, done);
        for state in point.states(if many { 24 } else { 2 }, done as u64) {
            match judge(&point.image(&state), false) {
                true => with += 1,
                false => without += 1,
            }
        }
    }
    for state in points.here().states(8, 1) {
        judge(&points.here().image(&state), true);
    }
    assert!(with > 4 && without > 4, "{with} with, {without} without");
}

#[test]
fn a_power_cut_leaves_a_table_of_datasets_that_exist() {
    for change in [Change::adding(), Change::removing()] {
        let (with, without) = change.explore(&change.log).unwrap();
        assert!(with > 4 && without > 4, "{with} with, {without} without");
    }
}

#[test]
fn each_step_is_needed() {
    let (adding, removing) = (Change::adding(), Change::removing());
    let source = own_source!();
    let steps = [
        (&adding, disk_sites::PARTS_TABLE),
        (&adding, disk_sites::PARTS_TABLE_DURABLE),
        (&removing, disk_sites::PARTS_TABLE),
        (&removing, disk_sites::PARTS_TABLE_DURABLE),
        (&removing, disk_sites::PARTS_WIPE),
        (&removing, disk_sites::PARTS_WIPE_DURABLE),
    ];
    let key = |(change, site): &(&Change, _)| {
        format!("{} {} {source}", change.log.len(), disk_sites::name(*site))
    };
    for (change, site) in slice(3, steps, key) {
        let is_caught = change.explore(&change.without(site)).is_err();
        assert!(is_caught, "without {}", disk_sites::name(site));
    }
    // Removes each of the two fences alone.
    let fences = adding.log.iter().enumerate();
    let fences = fences.filter(|(_, event)| event.site == disk_sites::PARTS_TABLE_DURABLE);
    for (at, _) in fences {
        let mut log = adding.log.clone();
        log.remove(at);
        assert!(adding.explore(&log).is_err(), "without the fence at {at}");
    }
}

/// The table must not name a dataset that is not formatted yet, nor one whose bytes are already
/// free.
#[test]
fn the_table_comes_last_and_goes_first() {
    let adding = Change::adding();
    let (table, making): (Vec<Event>, Vec<Event>) =
        adding.log.iter().partition(|&event| is_of_table(event));
    assert!(adding.explore(&[table, making].concat()).is_err());
    let removing = Change::removing();
    let is_wipe = |event: &&Event| disk_sites::name(event.site).starts_with("parts/wipe");
    let (wipe, table): (Vec<Event>, Vec<Event>) = removing.log.iter().partition(is_wipe);
    assert!(removing.explore(&[wipe, table].concat()).is_err());
}

/// A change that was cut short is made again, from whatever state it left, and however often it is
/// cut short.
#[test]
fn a_change_that_was_cut_short_can_be_made_again() {
    let adding = Change::adding();
    let first = adding.log.iter().position(is_of_table).unwrap();
    let mut points = CrashPoints::new(adding.base.clone(), &adding.log);
    let mut cut = Vec::new();
    while let Some(point) = points.next_point() {
        let done = point.events_done();
        if !is_before_a_fence(&adding.log, done) || done < first {
            continue;
        }
        let states = point.states(12, 7).into_iter();
        cut.extend(states.map(|state| (done, point.image(&state))));
    }
    assert!(cut.len() > 12);
    let source = own_source!();
    for (_, image) in slice(3, cut, |(done, image)| {
        format!("{done} {} {source}", xxh3_64(image))
    }) {
        let repeated = adding.again(image);
        repeated.explore(&repeated.log).unwrap();
    }
}

/// Without the step that settles the table first, a copy that one crash has torn leaves only a
/// single copy before the next crash.
#[test]
fn a_table_is_settled_before_it_is_written() {
    let adding = Change::adding();
    let mut torn = image_after(&adding.base, &adding.log);
    let behind = 700..BLOCK_BYTES as usize;
    torn[behind.clone()].copy_from_slice(&adding.base[behind]);
    let repeated = adding.again(torn);
    repeated.explore(&repeated.log).unwrap();
    let is_table = |event: &Event| event.site == disk_sites::PARTS_TABLE;
    let first = repeated.log.iter().position(is_table).unwrap();
    let settled = BLOCK_BYTES as usize / 8;
    assert!(repeated.log[first..][..settled].iter().all(is_table));
    let without = [&repeated.log[..first], &repeated.log[first + settled..]].concat();
    assert!(repeated.explore(&without).is_err());
}

/// An opening for writing settles a change that was cut short, whichever copy is current, and
/// however often the opening itself is cut short.
#[test]
fn an_opening_settles_the_table() {
    for change in [Change::adding(), Change::removing()] {
        let first = change.log.iter().position(is_of_table).unwrap();
        let mut points = CrashPoints::new(change.base.clone(), &change.log);
        let (mut settled, mut left) = (0, 0);
        while let Some(point) = points.next_point() {
            let done = point.events_done();
            if !is_before_a_fence(&change.log, done) || done < first {
                continue;
            }
            for state in point.states(12, 7) {
                let opened = change.opened(point.image(&state));
                left += u32::from(!opened.log.is_empty());
                // Its last state is judged as one where nothing may be left to do.
                let (with, without) = opened.explore(&opened.log).unwrap();
                assert!(with.min(without) == 0, "the table is what it was");
                settled += 1;
            }
        }
        assert!(settled > 12 && left > 4, "{settled} settled, {left} left");
    }
}

/// An opening does not repair any other damage of a copy.
#[test]
fn an_opening_mends_no_damage() {
    let adding = Change::adding();
    let mut image = image_after(&adding.base, &adding.log);
    image[100] ^= 1;
    let opened = adding.opened(image.clone());
    assert!(opened.log.is_empty());
    assert!(!checked(&image).is_sound());
}
