//! Reduced workloads: steps are left out, and the name says which, so that the workload can be made
//! from its name.
//!
//! `rename~s0-3,0.1` is `rename` without the first four steps of its setup and the second explored
//! step. In workloads of threads, `1.0` is the first step of thread 1.

use crate::shrink::fewest;
use crate::workload::{Step, Workload};

/// Separates the name of a workload from the steps that are left out.
const LEFT_OUT: char = '~';

/// A workload that steps can be left out of.
pub(crate) trait Parts: Clone {
    /// Its name.
    fn name(&self) -> &str;

    /// The setup, then the steps of each thread.
    fn parts(&self) -> Vec<Vec<Step>>;

    /// The same with another name and other steps.
    fn with(&self, name: String, parts: Vec<Vec<Step>>) -> Self;
}

impl Parts for Workload {
    fn name(&self) -> &str {
        &self.name
    }

    fn parts(&self) -> Vec<Vec<Step>> {
        vec![self.setup.clone(), self.explored.clone()]
    }

    fn with(&self, name: String, parts: Vec<Vec<Step>>) -> Self {
        let mut parts = parts.into_iter();
        Self {
            name,
            setup: parts.next().unwrap_or_default(),
            explored: parts.next().unwrap_or_default(),
            covered: 0,
            ..self.clone()
        }
    }
}

/// A step of a workload: the part, and the position in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StepIndex {
    part: usize,
    step: usize,
}

/// The workload called `name`, in which steps may be left out; `known` looks up whole workloads.
pub(crate) fn find<W: Parts>(name: &str, known: impl FnOnce(&str) -> Option<W>) -> Option<W> {
    let Some((whole, left_out)) = name.split_once(LEFT_OUT) else {
        return known(name);
    };
    let whole = known(whole)?;
    let mut kept = places(&whole);
    for run in left_out.split(',') {
        let run = parse_run(run)?;
        kept.retain(|place| !run.contains(place));
    }
    Some(keeping(&whole, &kept))
}

/// The smallest version of `whole` for which `shows` holds: first fewer threads, then fewer steps,
/// then a shorter setup. Each of the three stages calls `shows` at most `questions` times. The
/// result is the workload for which `shows` was last true, or `whole` if it never was.
pub(crate) fn least<W: Parts>(whole: &W, questions: usize, mut shows: impl FnMut(&W) -> bool) -> W {
    let (setup, mut explored): (Vec<StepIndex>, Vec<StepIndex>) =
        places(whole).into_iter().partition(|place| place.part == 0);
    let mut ask = |setup: &[StepIndex], explored: &[StepIndex]| {
        !explored.is_empty() && shows(&keeping(whole, &[setup, explored].concat()))
    };
    let threads: Vec<usize> = (1..whole.parts().len()).collect();
    let of_threads = |threads: &[usize]| -> Vec<StepIndex> {
        let places = explored.iter().copied();
        places
            .filter(|place| threads.contains(&place.part))
            .collect()
    };
    let threads = fewest(threads, questions, |threads| {
        ask(&setup, &of_threads(threads))
    });
    explored.retain(|place| threads.contains(&place.part));
    let explored = fewest(explored, questions, |explored| ask(&setup, explored));
    let setup = fewest(setup, questions, |setup| ask(setup, &explored));
    keeping(whole, &[setup, explored].concat())
}

fn places(of: &impl Parts) -> Vec<StepIndex> {
    let parts = of.parts().into_iter().enumerate();
    parts
        .flat_map(|(part, steps)| (0..steps.len()).map(move |step| StepIndex { part, step }))
        .collect()
}

fn keeping<W: Parts>(whole: &W, kept: &[StepIndex]) -> W {
    let (mut parts, mut left_out) = (whole.parts(), Vec::new());
    for (part, steps) in parts.iter_mut().enumerate() {
        let mut step = 0..;
        steps.retain(|_| {
            let place = step.next().map(|step| StepIndex { part, step });
            let is_kept = place.is_some_and(|place| kept.contains(&place));
            left_out.extend(place.filter(|_| !is_kept));
            is_kept
        });
    }
    whole.with(name_without(whole.name(), &left_out), parts)
}

fn name_without(whole: &str, left_out: &[StepIndex]) -> String {
    let follows = |a: &StepIndex, b: &StepIndex| a.part == b.part && a.step + 1 == b.step;
    let runs = left_out.chunk_by(follows).map(|run| {
        let part = match run[0].part {
            0 => "s".to_owned(),
            part => format!("{}.", part - 1),
        };
        let first = run[0].step;
        match run.len() {
            1 => format!("{part}{first}"),
            len => format!("{part}{first}-{}", first + len - 1),
        }
    });
    let runs: Vec<_> = runs.collect();
    if runs.is_empty() {
        whole.to_owned()
    } else {
        format!("{whole}{LEFT_OUT}{}", runs.join(","))
    }
}

struct Run {
    part: usize,
    first: usize,
    last: usize,
}

impl Run {
    fn contains(&self, place: &StepIndex) -> bool {
        place.part == self.part && (self.first..=self.last).contains(&place.step)
    }
}

fn parse_run(text: &str) -> Option<Run> {
    let (part, steps) = match text.strip_prefix('s') {
        Some(steps) => (0, steps),
        None => {
            let (thread, steps) = text.split_once('.')?;
            (thread.parse::<usize>().ok()?.checked_add(1)?, steps)
        }
    };
    let (first, last) = steps.split_once('-').unwrap_or((steps, steps));
    Some(Run {
        part,
        first: first.parse().ok()?,
        last: last.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole() -> Workload {
        let setup = ["4* create f# 644 -", "mkdir d 755"];
        Workload::new("whole", &setup, &["unlink f1", "sync", "rename f2 g 0"])
    }

    fn known(name: &str) -> Option<Workload> {
        (name == "whole").then(whole)
    }

    #[test]
    fn less_of_a_workload_is_found_by_its_name() {
        let less = least(&whole(), 100, |less| {
            let has = |steps: &[Step], step: &str| steps.contains(&Step::parse(step));
            has(&less.setup, "create f2 644 -") && has(&less.explored, "sync")
        });
        assert_eq!(less.name, "whole~s0,s2-4,0.0,0.2");
        assert_eq!((less.setup.len(), less.explored.len()), (1, 1));
        assert_eq!(find(&less.name, known), Some(less));
        assert_eq!(find("whole", known), Some(whole()));
    }

    #[test]
    fn all_of_a_workload_has_its_name() {
        let asked = |less: &Workload| *less == whole();
        assert_eq!(least(&whole(), 100, asked), whole());
    }

    #[test]
    fn names_of_nothing_are_refused() {
        for name in ["whole~", "whole~s", "whole~1", "whole~s1-", "other~s1"] {
            assert_eq!(find(name, known), None, "{name}");
        }
    }
}
