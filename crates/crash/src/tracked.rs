//! The strategy `tracked` varies only lines that are read.
//!
//! The checker, recovery and the reading of the tree depend only on the lines that they read. So a
//! state stands for all states that differ from it in other lines, and one state of each such class
//! is enough. The classes are found by trying one state, then the other contents of each line that
//! was read in it, and so on.

use vellum_media::CrashState;

use crate::explore::{At, Explorer, Scope};

/// The most classes tried at a point: each costs a recovery under observation.
const CLASSES_MAX: usize = 2048;

/// States that have these contents of these lines, whatever the others hold.
type Class = Vec<Option<usize>>;

impl Explorer<'_> {
    /// Tries one state of every class of states of the point that are read alike. Returns whether
    /// there were no more than `bound` and [`CLASSES_MAX`] classes.
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
            // The set of lines that are read hardly varies between states: most points are
            // abandoned here.
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
