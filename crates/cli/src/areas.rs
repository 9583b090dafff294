//! `vellum evolve` and `vellum inspect areas POOL`.

use std::path::Path;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use vellum::{
    Area, Decided, Evolution, MergedArea, NamespaceKind, Outcome as Became, Pool, RENAMED_ROUNDS,
    RealFs,
};
use vellum_fuse::ControlRequest;
use vellum_terminal::output::{print, print_json};
use vellum_terminal::{Failure, Outcome, quoted};

use crate::args::{Evolve, Inspect, Opening, Structure};
use crate::info::{self, Information};
use crate::location;
use crate::units;

/// Bytes of a slot.
const SLOT_BYTES: u64 = 128;

/// An area and the path of its root.
#[derive(Serialize, Deserialize)]
pub(crate) struct Shown {
    pub(crate) number: u32,
    /// The number of the area that holds the name of its root; 0 for the first area.
    pub(crate) above: u32,
    /// The label of its root. `None` for the first area.
    pub(crate) label: Option<String>,
    pub(crate) names: u64,
    pub(crate) bytes: u64,
    /// When it was formed, in seconds since 1970, if known.
    pub(crate) formed: Option<u32>,
    /// The bytes of the names below its root then, and the recent lookups, if they were counted.
    pub(crate) formed_bytes: Option<u64>,
    pub(crate) formed_reads: Option<u32>,
    pub(crate) path: String,
}

impl Shown {
    /// When the area was formed, and what it had then, as text.
    pub(crate) fn formed(&self) -> [String; 2] {
        let none = || "-".to_owned();
        let counted = self.formed_bytes.zip(self.formed_reads);
        let had = |(bytes, reads)| format!("{}, read {reads} times", units::size(bytes));
        [
            self.formed.map_or_else(none, time),
            counted.map_or_else(none, had),
        ]
    }
}

/// An area that was merged, and the current path of its root.
#[derive(Serialize, Deserialize)]
pub(crate) struct Gone {
    pub(crate) number: u32,
    /// The number of the area that received its names.
    pub(crate) into: u32,
    /// When it was merged, in seconds since 1970, if known.
    pub(crate) merged: Option<u32>,
    pub(crate) reason: String,
    /// The bytes of the names below its root then (or of the directory that inherited it), the
    /// recent lookups, and the average with which these were compared, if they were counted.
    pub(crate) bytes: Option<u64>,
    pub(crate) reads: Option<u32>,
    pub(crate) average_reads: Option<u32>,
    /// `None`: the directory is gone.
    pub(crate) path: Option<String>,
}

impl Gone {
    fn of(fs: &Arc<RealFs>, area: &MergedArea) -> Self {
        let MergedArea { number, merged, .. } = *area;
        let numbers = (merged.at.slots != 0).then_some(merged);
        Self {
            number,
            into: merged.into,
            merged: Some(merged.at.seconds).filter(|&seconds| seconds != 0),
            reason: merged.reason.name().into(),
            bytes: numbers.map(|merged| u64::from(merged.at.slots) * SLOT_BYTES),
            reads: numbers.map(|merged| merged.at.reads),
            average_reads: numbers.map(|merged| merged.average_reads),
            path: path_of(fs, area.root, area.generation),
        }
    }

    /// When it was merged, and why, as text.
    pub(crate) fn told(&self) -> [String; 2] {
        let counted = self.bytes.zip(self.reads).zip(self.average_reads);
        let why = match counted {
            Some(((bytes, reads), average)) => format!(
                "{}: {}, read {reads} times with an average of {average}",
                self.reason,
                units::size(bytes)
            ),
            None => self.reason.clone(),
        };
        [self.merged.map_or_else(|| "-".to_owned(), time), why]
    }
}

/// All areas, and the merged ones.
#[derive(Serialize, Deserialize)]
pub(crate) struct Areas {
    pub(crate) areas: Vec<Shown>,
    pub(crate) merged: Vec<Gone>,
}

/// The output of `inspect --json`.
#[derive(Serialize)]
struct Inspected {
    pool: String,
    #[serde(flatten)]
    areas: Areas,
}

fn time(seconds: u32) -> String {
    units::time(i64::from(seconds) * 1_000_000_000)
}

/// A decision and the path of its directory.
#[derive(Serialize, Deserialize)]
struct Told {
    round: u64,
    what: String,
    outcome: String,
    /// `None`: the directory is gone.
    path: Option<String>,
    inode: u64,
    area: u32,
    bytes: u64,
    reads: u64,
    average_reads: u64,
    rounds_since_renamed: u64,
}

/// The result of rounds of evolving.
#[derive(Serialize, Deserialize)]
pub(crate) struct Evolved {
    rounds: u64,
    decisions: Vec<Told>,
    /// The number of areas after them.
    areas: usize,
}

/// The output of `evolve --json`.
#[derive(Serialize)]
struct EvolvedPool {
    pool: String,
    #[serde(flatten)]
    evolved: Evolved,
}

/// Opens a pool with the namespace adaptive. Its areas do not evolve by themselves meanwhile.
fn open(path: &Path, opening: &Opening, read_only: bool) -> Outcome<Pool> {
    let options = opening.options(read_only).evolve_every(None);
    let pool = location::open_with(path, &options)?;
    let kind = pool.superblock().geometry().namespace;
    match has_areas(path, kind.name()) {
        Ok(()) => Ok(pool),
        Err(failure) => {
            location::close(pool, path)?;
            Err(failure)
        }
    }
}

fn has_areas(path: &Path, namespace: &str) -> Outcome {
    if namespace == NamespaceKind::Adaptive.name() {
        return Ok(());
    }
    let place = path.display();
    let said = format!("{place}: the namespace {namespace} has no areas");
    Err(Failure::new(said).advise(format!(
        "`vellum convert {} --namespace adaptive` converts it to one that has",
        quoted(path)
    )))
}

/// The answer of the pool's mount, if it is mounted.
fn answered<T: DeserializeOwned>(path: &Path, request: ControlRequest) -> Outcome<Option<T>> {
    let Some(mounted) = info::live_mount_of(path) else {
        return Ok(None);
    };
    info::ask(&mounted, request).map(Some).or_else(|failure| {
        let information: Information = info::ask(&mounted, ControlRequest::Information)?;
        has_areas(path, &information.pool.namespace)?;
        Err(failure)
    })
}

fn failed(path: &Path, error: &vellum::Error) -> Failure {
    Failure::at(path.display(), error)
}

/// The path of a directory, if it still exists.
fn path_of(fs: &Arc<RealFs>, ino: u64, generation: u32) -> Option<String> {
    let node = fs.node(ino, generation).ok()?;
    let path = fs.path_of(&node).ok()?;
    Some(String::from_utf8_lossy(&path).into_owned())
}

fn was_counted(area: &Area) -> bool {
    area.formed.slots != 0
}

impl Areas {
    /// The areas of a file system, with their paths.
    pub(crate) fn of(fs: &Arc<RealFs>) -> vellum::Result<Self> {
        let shown = |area: &Area| Shown {
            number: area.number,
            above: area.above,
            label: (area.above != 0).then(|| area.label.name().into()),
            names: area.names,
            bytes: area.slots * SLOT_BYTES,
            formed: Some(area.formed.seconds).filter(|&seconds| seconds != 0),
            formed_bytes: was_counted(area).then_some(u64::from(area.formed.slots) * SLOT_BYTES),
            formed_reads: was_counted(area).then_some(area.formed.reads),
            // The root of an area may have lost its name and still be open.
            path: path_of(fs, area.root, area.generation).unwrap_or_default(),
        };
        let gone = fs.merged_areas()?;
        Ok(Self {
            areas: fs.areas()?.iter().map(shown).collect(),
            merged: gone.iter().map(|area| Gone::of(fs, area)).collect(),
        })
    }
}

/// The areas of a pool. The mount of a mounted pool answers.
pub(crate) fn look(path: &Path, opening: &Opening) -> Outcome<Areas> {
    if let Some(areas) = answered(path, ControlRequest::Areas)? {
        return Ok(areas);
    }
    let path = &info::pool_of(path);
    let pool = open(path, opening, true)?;
    let areas = Areas::of(&pool.fs()).map_err(|error| failed(path, &error))?;
    location::close(pool, path)?;
    Ok(areas)
}

/// Shows areas.
pub(crate) fn inspect(args: &Inspect) -> Outcome {
    let Structure::Areas = args.what;
    let areas = look(&args.pool, &args.opening)?;
    if args.printing.json {
        let pool = args.pool.display().to_string();
        return print_json(&Inspected { pool, areas });
    }
    print(listed(&areas))
}

/// The list as text.
fn listed(areas: &Areas) -> String {
    let mut text = format!(
        "{:>8}  {:>8}  {:5}  {:>10}  {:>10}  {:19}  {:26}  root\n",
        "area", "above", "label", "names", "size", "formed (UTC)", "when it had"
    );
    for area in &areas.areas {
        let Shown {
            number,
            above,
            label,
            names,
            bytes,
            path,
            ..
        } = area;
        let (label, size) = (label.as_deref().unwrap_or("-"), units::size(*bytes));
        let [formed, had] = area.formed();
        text += &format!(
            "{number:>8}  {above:>8}  {label:5}  {names:>10}  {size:>10}  {formed:19}  {had:26}  \
             {path}\n"
        );
    }
    if !areas.merged.is_empty() {
        text += &format!(
            "\n{:>8}  {:>8}  {:19}  {:26}  why\n",
            "area", "into", "merged (UTC)", "was of"
        );
    }
    for area in &areas.merged {
        let [merged, why] = area.told();
        let path = area.path.as_deref().unwrap_or("-");
        text += &format!(
            "{:>8}  {:>8}  {merged:19}  {path:26}  {why}\n",
            area.number, area.into
        );
    }
    text
}

impl Evolved {
    /// Runs rounds of evolving: `most` of them; or, without it, until a round changes nothing after
    /// the rounds for which renames are remembered.
    pub(crate) fn now(fs: &Arc<RealFs>, most: Option<u64>) -> vellum::Result<Self> {
        let (mut rounds, mut decisions) = (0, Vec::new());
        let mut is_over = most == Some(0);
        while !is_over {
            let round = fs.evolve()?;
            rounds += 1;
            let is_quiet = !round.iter().any(|one| one.outcome == Became::Done);
            decisions.extend(round.iter().map(|decided| Told::of(fs, decided)));
            is_over = match most {
                Some(most) => rounds >= most,
                None => is_quiet && rounds >= RENAMED_ROUNDS,
            };
        }
        let areas = fs.areas()?.len();
        Ok(Self {
            rounds,
            decisions,
            areas,
        })
    }
}

/// Runs rounds of evolving. The mount of a mounted pool runs them.
pub(crate) fn evolve(args: &Evolve) -> Outcome {
    let (path, rounds) = (&args.pool, args.rounds);
    let evolved = match answered(path, ControlRequest::Evolve { rounds })? {
        Some(evolved) => evolved,
        None => {
            let path = &info::pool_of(path);
            let pool = open(path, &args.opening, false)?;
            let evolved = Evolved::now(&pool.fs(), rounds).map_err(|error| failed(path, &error))?;
            location::close(pool, path)?;
            evolved
        }
    };
    let pool = path.display().to_string();
    if args.printing.json {
        return print_json(&EvolvedPool { pool, evolved });
    }
    match args.printing.quiet {
        true => Ok(()),
        false => print(text(&pool, &evolved)),
    }
}

impl Told {
    fn of(fs: &Arc<RealFs>, decided: &Decided) -> Self {
        Self {
            round: decided.round,
            what: decided.what.name().into(),
            outcome: decided.outcome.name().into(),
            path: path_of(fs, decided.ino, decided.generation),
            inode: decided.ino,
            area: decided.area,
            bytes: decided.slots * SLOT_BYTES,
            reads: decided.reads,
            average_reads: decided.average_reads,
            rounds_since_renamed: decided.rounds_since_renamed,
        }
    }
}

fn text(pool: &str, evolved: &Evolved) -> String {
    let mut text = String::new();
    for told in &evolved.decisions {
        let gone = || format!("inode {}", told.inode);
        text += &format!(
            "round {}: {} {} (area {}; {} of names, read {} times with an average of {}, not \
             renamed for {} rounds): {}\n",
            told.round,
            told.what,
            told.path.clone().unwrap_or_else(gone),
            told.area,
            units::size(told.bytes),
            told.reads,
            told.average_reads,
            told.rounds_since_renamed,
            told.outcome,
        );
    }
    let done = |what: Evolution| {
        let is_one = |one: &&Told| one.what == what.name() && one.outcome == Became::Done.name();
        evolved.decisions.iter().filter(is_one).count()
    };
    let [split, merged, inherited] =
        [Evolution::Split, Evolution::Merge, Evolution::Inherit].map(done);
    text + &format!(
        "{pool}: {split} split, {merged} merged, {inherited} inherited in {} rounds; areas now: \
         {}\n",
        evolved.rounds, evolved.areas
    )
}
