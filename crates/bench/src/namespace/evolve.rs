//! One directory after the other is filled, renamed and emptied while it is used, and areas are
//! split and merged for it. Measures what evolving costs concurrent lookups, and what it costs a
//! pool where nothing happens.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::CString;
use std::hint::black_box;
use std::time::{Duration, Instant};

use vellum::media::count::Counts;

use super::subjects::{
    ADAM, BASELINE, DEFAULT, PoolKind, Room, STILL, Setting, Subject, Visit, names as names_of,
};
use crate::Result;
use crate::error::doing;
use crate::figure::{Axis, Mark, Scale};
use crate::library::Library;
use crate::mapping::{Grid, Sample};
use crate::order::{Numbers, names};
use crate::report::Outcome;
use crate::side::Side;
use crate::target::Target;

/// The number of directories; one at a time is in use.
const DIRS: usize = 4;
/// A directory in use has this many times as many names as the others: it is large, they are small.
const LEAST_PART: usize = 100;
/// Intervals of a round, the same number for each directory.
const INTERVALS: usize = 32;
/// Rounds of evolving in the time that one directory is in use. An area whose root was not renamed
/// in 64 of them may be merged.
const EVOLVED: u32 = 192;
/// One in this many operations renames; up to `CHANGES` others create or remove a name, and as many
/// look into another directory.
const MIX: u64 = 1024;
const CHANGES: u64 = 64;
/// Operations between two looks at the clock.
const OPERATIONS: usize = 16;
const PERCENTILES: [(&str, f64); 4] = [
    ("median", 0.5),
    ("99 %", 0.99),
    ("99.9 %", 0.999),
    ("99.99 %", 0.9999),
];
/// The percentile that evolving may make worse, and the most by which it may.
const LATE: &str = "99.9 %";
const LATE_RATIO: f64 = 2.0;
/// The target for the evolving thread: its share of a core on a quiet pool.
const QUIET_PART: f64 = 0.03;
const QUIET: &str = "quiet";
const BUSY: &str = "busy";
/// The directory above all others, and the prefix of files.
const ABOVE: &str = "used";
const FILE: &str = "file-";
/// The name of the evolving thread.
const THREAD: &str = "vellum-evolver";

/// The names, and the duration of a round.
struct Plan {
    /// For each directory and each of its names, the whole paths of its files.
    paths: Vec<[Vec<CString>; 2]>,
    files: Vec<CString>,
    least: usize,
    most: usize,
    interval: Duration,
    /// The state of directories and names in each file system, which a round leaves to the next
    /// one.
    state: RefCell<Vec<State>>,
    round: usize,
    side: usize,
}

/// The state of a file system's directories.
#[derive(Clone)]
struct State {
    names: [usize; DIRS],
    called: [usize; DIRS],
}

/// The result of a round.
struct Told {
    intervals: Vec<Sample>,
    latencies: Latencies,
    marks: Vec<Mark>,
    /// The evolving thread's processor time over the time of the round.
    busy: Option<f64>,
}

pub(super) fn measure(setting: &Setting<'_>) -> Result<Outcome> {
    let options = setting.options;
    let span = Duration::from_secs(options.seconds.into());
    let every = span / (DIRS as u32) / EVOLVED;
    let kinds: Vec<PoolKind> = PoolKind::each()
        .into_iter()
        .map(|kind| kind.evolving(every))
        .chain([PoolKind::STILL])
        .collect();
    let subjects = setting.subjects(Room::for_names(DIRS * options.files), &kinds)?;
    let mut plan = Plan::new(options.files, span, subjects.len());
    for subject in &subjects {
        subject.show(&Fill(&plan))?;
    }
    let mut figures = Figures::new(&subjects, &plan, every);
    for round in 0..=options.rounds {
        for (side, subject) in subjects.iter().enumerate() {
            setting.check()?;
            (plan.round, plan.side) = (round, side);
            figures.add(round, side, subject, subject.show(&plan)?);
        }
    }
    drop(subjects);
    figures.add_quiet(setting, span)?;
    Ok(figures.outcome())
}

/// The figures of a run.
struct Figures {
    time: Grid,
    late: Grid,
    share: Grid,
    marks: Vec<Mark>,
}

impl Figures {
    fn new(subjects: &[Subject], plan: &Plan, every: Duration) -> Self {
        let (least, most, names) = (plan.least, plan.most, names_of(subjects));
        let note = format!(
            "{DIRS} directories, used one after the other. The one in use is filled from {least} \
             names to {most}, renamed once in {MIX} operations, and emptied again. All other \
             operations are stat of whole paths, mostly in that directory. Areas evolve every {} \
             ms.",
            every.as_millis()
        );
        let claim = "Section 3.4: areas follow how directories are used, in the background.";
        let x = Axis::of("time", "s", Scale::Linear);
        let labels = (0..INTERVALS).map(|at| plan.label(at)).collect();
        let time = Grid::lines("evolve", "A changing set of directories in use", x, labels)
            .named(names.clone(), DEFAULT, BASELINE)
            .claim(claim)
            .note(note.clone());
        let title = "The cost of evolving for lookups";
        let late = Grid::bars(
            "evolve-latency",
            title,
            "operations",
            &PERCENTILES.map(|it| it.0),
        )
        .named(names, DEFAULT, BASELINE)
        .claim(
            "The paper makes no claim. The target is a 99.9th percentile of at most twice that \
                 without evolving.",
        )
        .note(note)
        .note("All operations except renames, whose moves do not wait for evolving.");
        let title = "The evolving thread's share of a core";
        let y = Axis::of("part of a core", "", Scale::Linear);
        let share = Grid::bars("evolve-share", title, "pool", &[QUIET, BUSY])
            .of(y)
            .named(vec![ADAM.into()], ADAM, BASELINE)
            .claim("Section 3.4: evolving runs in the background, every five seconds.")
            .note(format!(
                "Quiet: a pool that was used as in the other figures, when nothing happens any \
                 more; areas evolve at the default interval. Busy: while it is used; areas evolve \
                 every {} ms.",
                every.as_millis()
            ));
        Self {
            time,
            late,
            share,
            marks: Vec::new(),
        }
    }

    fn add(&mut self, round: usize, side: usize, subject: &Subject, mut told: Told) {
        for (at, (_, part)) in PERCENTILES.iter().enumerate() {
            self.late.add(round, side, at, told.latencies.at(*part));
        }
        for (at, sample) in told.intervals.drain(..).enumerate() {
            self.time.add(round, side, at, sample);
        }
        if subject.name == ADAM {
            self.marks = told.marks;
            if let Some(value) = told.busy {
                self.share.add(round, 0, 1, part(value));
            }
        }
    }

    /// Measures the evolving thread on a pool where nothing happens any more.
    fn add_quiet(&mut self, setting: &Setting<'_>, span: Duration) -> Result<()> {
        let files = setting.options.files;
        let pools = setting.pools(Room::for_names(DIRS * files), &PoolKind::adam())?;
        let plan = Plan::new(files, span, 1);
        for pool in &pools {
            pool.show(&Fill(&plan))?;
            pool.show(&plan)?;
        }
        let every = vellum::PoolOptions::default().evolve_every;
        for round in 0..=setting.options.rounds {
            setting.check()?;
            let (before, start) = (thread_time()?, Instant::now());
            std::thread::sleep(every.unwrap_or_default());
            if let (Some(before), Some(after)) = (before, thread_time()?) {
                let spent = after.saturating_sub(before);
                let value = spent.as_secs_f64() / start.elapsed().as_secs_f64();
                self.share.add(round, 0, 0, part(value));
            }
        }
        Ok(())
    }

    fn outcome(self) -> Outcome {
        let late = self.late.over(ADAM, STILL, LATE);
        let what = format!("{ADAM} over {STILL}, time of an operation, {LATE}");
        let late = late.map(|ratio| Target::at_most(what, ratio, LATE_RATIO));
        let share = self.share.middle(ADAM, QUIET);
        let what = format!("{ADAM}, part of a core that evolving takes of a quiet pool");
        let share = share.map(|part| Target::at_most(what, part, QUIET_PART));
        let mut time = self.time.figure();
        time.marks = self.marks;
        let figures = vec![time, self.late.figure(), self.share.figure()];
        Outcome::new(figures, late.into_iter().chain(share).collect())
    }
}

fn part(value: f64) -> Sample {
    Sample {
        value,
        ..Sample::default()
    }
}

impl Plan {
    fn new(files: usize, span: Duration, sides: usize) -> Self {
        let least = (files / LEAST_PART).max(1);
        let paths = (0..DIRS).map(|dir| {
            [0, 1].map(|called| {
                let dir = name_of(dir, called);
                names(&format!("{ABOVE}/{dir}/{FILE}"), files)
            })
        });
        let state = State {
            names: [least; DIRS],
            called: [0; DIRS],
        };
        Self {
            paths: paths.collect(),
            files: names(FILE, files),
            least,
            most: files,
            interval: span / INTERVALS as u32,
            state: RefCell::new(vec![state; sides]),
            round: 0,
            side: 0,
        }
    }

    /// The beginning of an interval, in seconds.
    fn label(&self, interval: usize) -> String {
        format!("{:.2}", self.interval.as_secs_f64() * interval as f64)
    }
}

/// The name of a directory before and after it is renamed.
fn name_of(dir: usize, called: usize) -> String {
    format!("{}-{dir}", ["here", "there"][called])
}

/// Creates the directories, each with the small number of names.
struct Fill<'a>(&'a Plan);

impl Visit for Fill<'_> {
    type Told = ();

    fn visit<S: Side>(&self, side: &S, _library: Option<&Library>) -> Result<()> {
        side.make_dir(ABOVE)?;
        for dir in 0..DIRS {
            let path = format!("{ABOVE}/{}", name_of(dir, 0));
            side.make_dir(&path)?;
            let dir = side.dir(&path)?;
            let mut files = self.0.files[..self.0.least].iter();
            files.try_for_each(|name| side.create(&dir, name))?;
        }
        Ok(())
    }
}

impl Visit for Plan {
    type Told = Told;

    fn visit<S: Side>(&self, side: &S, library: Option<&Library>) -> Result<Told> {
        let state = self.state.borrow()[self.side].clone();
        let dirs = state.called.iter().enumerate();
        let dirs =
            dirs.map(|(dir, &called)| side.dir(&format!("{ABOVE}/{}", name_of(dir, called))));
        let mut load = Load {
            plan: self,
            side,
            root: side.dir("")?,
            above: side.dir(ABOVE)?,
            dirs: dirs.collect::<Result<_>>()?,
            numbers: Numbers::new(self.round as u64),
            state,
            latencies: Latencies::default(),
        };
        let mut areas = Areas::of(library);
        let mut told = Told {
            intervals: Vec::new(),
            latencies: Latencies::default(),
            marks: Vec::new(),
            busy: None,
        };
        let (mut spent, mut span) = (Duration::ZERO, Duration::ZERO);
        for interval in 0..INTERVALS {
            let of_dir = INTERVALS / DIRS;
            let (dir, at) = (interval / of_dir, interval % of_dir);
            let (before, start) = (thread_time()?, Instant::now());
            told.intervals.push(load.interval(dir, at < of_dir - 2)?);
            span += start.elapsed();
            let after = thread_time()?;
            spent += after
                .unwrap_or_default()
                .saturating_sub(before.unwrap_or_default());
            told.busy = after.map(|_| spent.as_secs_f64() / span.as_secs_f64());
            let label = self.label(interval);
            told.marks.extend(areas.look(library, &label));
        }
        told.latencies = load.latencies;
        self.state.borrow_mut()[self.side] = load.state;
        Ok(told)
    }
}

/// The work in a file system.
struct Load<'a, S: Side> {
    plan: &'a Plan,
    side: &'a S,
    root: S::Dir,
    above: S::Dir,
    dirs: Vec<S::Dir>,
    numbers: Numbers,
    state: State,
    latencies: Latencies,
}

impl<S: Side> Load<'_, S> {
    /// Works with a directory until the interval is over.
    fn interval(&mut self, dir: usize, fills: bool) -> Result<Sample> {
        let (before, start) = (self.side.counts(), Instant::now());
        let (mut last, mut ops) = (start, 0_u64);
        while last.duration_since(start) < self.plan.interval || ops == 0 {
            for _ in 0..OPERATIONS {
                let is_rename = self.operation(dir, fills)?;
                let now = Instant::now();
                if !is_rename {
                    self.latencies.add(now - last);
                }
                last = now;
            }
            ops += OPERATIONS as u64;
        }
        let counts: Counts = self.side.counts() - before;
        Ok(Sample {
            value: start.elapsed().as_nanos() as f64 / ops as f64,
            ops,
            counts,
        })
    }

    /// Executes an operation; returns whether it was a rename.
    fn operation(&mut self, dir: usize, fills: bool) -> Result<bool> {
        let (side, plan) = (self.side, self.plan);
        let names = &mut self.state.names[dir];
        let draw = self.numbers.below(MIX);
        match draw {
            0 => {
                let called = self.state.called[dir];
                let [old, new] = [called, 1 - called]
                    .map(|called| CString::new(name_of(dir, called)).unwrap_or_default());
                self.state.called[dir] = 1 - called;
                side.rename(&self.above, &old, &self.above, &new)?;
            }
            1..=CHANGES if fills && *names < plan.most => {
                *names += 1;
                side.create(&self.dirs[dir], &plan.files[*names - 1])?;
            }
            1..=CHANGES if !fills && *names > plan.least => {
                *names -= 1;
                side.unlink(&self.dirs[dir], &plan.files[*names])?;
            }
            _ => {
                let dir = match draw {
                    0..=CHANGES => (dir + 1) % DIRS,
                    _ => dir,
                };
                let file = self.numbers.below(self.state.names[dir] as u64) as usize;
                let path = &plan.paths[dir][self.state.called[dir]][file];
                black_box(side.stat(&self.root, path)?);
            }
        }
        Ok(draw == 0)
    }
}

/// The areas of a pool, if it has any.
struct Areas(BTreeSet<u64>);

impl Areas {
    fn of(library: Option<&Library>) -> Self {
        let areas = library.and_then(|library| library.fs().areas().ok());
        let roots = areas.iter().flatten().map(|area| area.root);
        Self(roots.collect())
    }

    /// The areas that were split off and merged since the last call.
    fn look(&mut self, library: Option<&Library>, at: &str) -> Vec<Mark> {
        let now = Self::of(library).0;
        let told = |roots: Vec<&u64>, what: &str| {
            let text = format!("{} {what}", roots.len());
            (!roots.is_empty()).then(|| Mark {
                at: at.to_owned(),
                what: text,
            })
        };
        let come = told(now.difference(&self.0).collect(), "split");
        let gone = told(self.0.difference(&now).collect(), "merged");
        self.0 = now;
        come.into_iter().chain(gone).collect()
    }
}

/// The number of steps by which times between two powers of two are distinguished.
const PARTS: usize = 32;

/// A histogram of latencies, with a resolution of 1/32.
#[derive(Default)]
struct Latencies(Vec<u64>);

impl Latencies {
    fn add(&mut self, time: Duration) {
        if self.0.is_empty() {
            self.0.resize(64 * PARTS, 0);
        }
        let ns = (time.as_nanos() as u64).max(1);
        let power = ns.ilog2();
        let part = ((u128::from(ns) * PARTS as u128) >> power) as usize - PARTS;
        self.0[power as usize * PARTS + part] += 1;
    }

    /// The time that this fraction of operations did not exceed.
    fn at(&self, part: f64) -> Sample {
        let ops: u64 = self.0.iter().sum();
        let mut left = (ops as f64 * part).ceil() as u64;
        let place = self.0.iter().position(|&count| {
            let is_here = left <= count;
            left = left.saturating_sub(count);
            is_here
        });
        let place = place.unwrap_or(0);
        let ns = (1_u64 << (place / PARTS)) as f64;
        Sample {
            value: ns * (1.0 + (place % PARTS) as f64 / PARTS as f64),
            ops,
            counts: Counts::default(),
        }
    }
}

/// Processor time of this process's evolving threads; `None` if there are none, or if the kernel
/// doesn't report it.
fn thread_time() -> Result<Option<Duration>> {
    let failed = || doing("look at this process's threads");
    let mut time = None;
    for thread in std::fs::read_dir("/proc/self/task").map_err(failed())? {
        let dir = thread.map_err(failed())?.path();
        // A thread may have ended meanwhile.
        let read = |file| std::fs::read_to_string(dir.join(file)).unwrap_or_default();
        if read("comm").trim() == THREAD {
            let ran = read("schedstat");
            let ns = ran.split(' ').next().and_then(|ns| ns.parse().ok());
            let ns = Duration::from_nanos(ns.unwrap_or(0));
            time = Some(time.unwrap_or_default() + ns);
        }
    }
    Ok(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_have_a_resolution_of_a_32nd() {
        let mut latencies = Latencies::default();
        for ns in 1..=10_000 {
            latencies.add(Duration::from_nanos(ns));
        }
        for (part, expected) in [(0.5, 5000.0), (0.99, 9900.0), (1.0, 10_000.0)] {
            let found = latencies.at(part).value;
            assert!(
                (0.96..=1.0).contains(&(found / expected)),
                "{part}: {found}, not {expected}"
            );
        }
        assert_eq!(latencies.at(0.5).ops, 10_000);
    }
}
