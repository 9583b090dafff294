//! The strategy `tracked`: only lines that are read are varied.
//!
//! What the checker, recovery and the reading of the tree do depends on the lines that they read
//! and on nothing else. So a state stands for all that differ from it in other lines only, and one
//! state of each such class is enough: they are found by trying one state, then what each line that
//! was read in it may hold otherwise, and so on.

use vellum_media::CrashState;

use crate::explore::{At, Explorer, Scope};

/// Classes tried at a point, at most: each costs a recovery that is watched.
const CLASSES_MAX: usize = 2048;

/// States that have these contents of these lines, whatever the others hold.
type Class = Vec<Option<usize>>;

impl Explorer<'_> {
    /// Tries a state of every class of states of the point that are read alike; whether there were
    /// no more than `bound`, or [`CLASSES_MAX`].
    pub(crate) fn visit_tracked(&mut self, at: &At<'_>, bound: usize, scope: &Scope) -> bool {
        let bound = bound.min(CLASSES_MAX);
        let lines = at.point.in_flight();
        let mut open: Vec<Class> = vec![vec![None; lines.len()]];
        let mut tried = 0;
        while let Some(class) = open.pop() {
            if tried + open.len() >= bound {
                return false;
            }
            tried += 1;
            let state = CrashState {
                choice: class.iter().map(|choice| choice.unwrap_or(0)).collect(),
            };
            self.try_state(at, &state, scope);
            at.enter(&self.judge.pool, &state);
            let read = self.judge.lines_read();
            at.leave(&self.judge.pool, &state);
            let is_new = |&line: &usize| class[line].is_none() && read.contains(&lines[line].line);
            let new: Vec<_> = (0..lines.len()).filter(is_new).collect();
            // What is read hardly differs from state to state: most points are given up here.
            let contents = new.iter().map(|&line| lines[line].contents.len() as u128);
            if contents.fold(1, u128::saturating_mul) > bound as u128 {
                return false;
            }
            let mut same = class;
            for line in new {
                for content in 1..lines[line].contents.len() {
                    let mut other = same.clone();
                    other[line] = Some(content);
                    open.push(other);
                }
                same[line] = Some(0);
            }
        }
        true
    }
}
