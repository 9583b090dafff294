//! What a crash of threads may show: a tree that some order of their calls makes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vellum_model::{Model, diff};

use super::history::{Ending, History, model_step};
use super::workload::ThreadWorkload;
use crate::compare::is_torn;
use crate::oracle::{Oracle, Stage};
use crate::report::Kind;
use crate::session::{CLOCK_AFTER, CLOCK_START};
use crate::tree::Tree;

/// The histories of all runs of a workload, by number: the markers in the logs are these numbers.
pub(crate) struct Linear {
    workload: ThreadWorkload,
    /// The tree before the threads.
    before: Model,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    histories: Vec<History>,
    numbers: HashMap<History, u64>,
    endings: HashMap<u64, Arc<Vec<Ending>>>,
}

impl Linear {
    pub(crate) fn new(workload: &ThreadWorkload) -> Self {
        let mut before = Model::new(CLOCK_START);
        workload.setup.iter().for_each(|step| {
            model_step(&mut before, step);
        });
        let linear = Self {
            workload: workload.clone(),
            before,
            known: Mutex::default(),
        };
        linear.number(&History::new(workload.threads.len()));
        linear
    }

    /// The number of a history; the empty one has 0.
    pub(crate) fn number(&self, history: &History) -> u64 {
        let mut known = self.lock();
        if let Some(&number) = known.numbers.get(history) {
            return number;
        }
        let number = known.histories.len() as u64;
        known.histories.push(history.clone());
        known.numbers.insert(history.clone(), number);
        number
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds a directory whose times lack a name that a returned call made in it. Only that call
    /// has set the file's change time, which is therefore the time of the name; no workload sets
    /// times on purpose.
    fn stale_directory(&self, tree: &Tree, stage: Stage) -> Option<String> {
        let made = self.lock().histories[stage.0 as usize].made(&self.workload);
        made.into_iter().find_map(|path| {
            // The directory may have been moved.
            let name = path.rsplit(|&byte| byte == b'/').next()?;
            let suffix = [b"/", name].concat();
            let mut places = tree.times.iter().filter(|(at, _)| at.ends_with(&suffix));
            let (Some((path, (_, file))), None) = (places.next(), places.next()) else {
                return None;
            };
            let end = path.len() - suffix.len();
            let (_, dir) = tree.times.get(&path[..end.max(1)])?;
            let path = path.escape_ascii();
            let what = || format!("the directory of {path} was modified before that was made");
            (dir.mtime < file.ctime).then(what)
        })
    }

    fn endings(&self, stage: Stage) -> Arc<Vec<Ending>> {
        let mut known = self.lock();
        if let Some(endings) = known.endings.get(&stage.0) {
            return Arc::clone(endings);
        }
        let history = &known.histories[stage.0 as usize];
        let endings = super::history::endings(&self.workload, history, &self.before);
        let endings = Arc::new(endings);
        known.endings.insert(stage.0, Arc::clone(&endings));
        endings
    }
}

/// Stages are numbers of histories.
impl Oracle for Linear {
    fn after(&self, _stage: Stage, marker: u64) -> Stage {
        Stage(marker)
    }

    fn judge(&self, tree: &Tree, stage: Stage) -> Vec<(Kind, String)> {
        let endings = self.endings(stage);
        if endings.is_empty() {
            let what = format!("no order explains the answers: {}", self.describe(stage));
            return vec![(Kind::Outcome, what)];
        }
        let fits = |ending: &Ending| {
            let variants: Vec<_> = ending.iter().collect();
            ending.last() == Some(&tree.nodes) || is_torn(&tree.nodes, &variants)
        };
        if !endings.iter().any(fits) {
            let what = format!("{}: {}", self.describe(stage), nearest(tree, &endings));
            return vec![(Kind::Tree, what)];
        }
        strange_time(tree)
            .or_else(|| self.stale_directory(tree, stage))
            .map(|what| (Kind::Times, what))
            .into_iter()
            .collect()
    }

    fn operation(&self, stage: Stage) -> &'static str {
        self.lock().histories[stage.0 as usize].operation(&self.workload)
    }

    fn describe(&self, stage: Stage) -> String {
        self.lock().histories[stage.0 as usize].describe(&self.workload)
    }
}

/// The differences between `tree` and the allowed tree that is nearest to it.
fn nearest(tree: &Tree, endings: &[Ending]) -> String {
    let last = endings.iter().filter_map(|ending| ending.last());
    let differences = last.map(|nodes| diff(nodes, &tree.nodes));
    let least = differences.min_by_key(Vec::len).unwrap_or_default();
    format!(
        "none of {} trees; nearest: expected / found: {}",
        endings.len(),
        least.join("; ")
    )
}

/// Finds a time outside the run. The times of concurrent calls are not known more exactly.
fn strange_time(tree: &Tree) -> Option<String> {
    tree.times.iter().find_map(|(path, (_, times))| {
        let all = [times.atime, times.mtime, times.ctime];
        let strange = all
            .into_iter()
            .find(|time| !(CLOCK_START..CLOCK_AFTER).contains(time))?;
        let path = path.escape_ascii();
        Some(format!("{path}: a time {strange} outside the run"))
    })
}
