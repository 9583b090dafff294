//! Long random histories whose last steps crash.
//!
//! The meaning of a number changes only with this file, because identifiers contain it
//! (`random/17`).

use vellum_model::{Model, Outcome};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::record::model_step;
use crate::session::CLOCK_START;
use crate::workload::{Step, Workload};

/// The prefix of all their names.
const FAMILY: &str = "random/";
/// The number of steps that crash.
const EXPLORED: usize = 4;
const FILES: [&str; 8] = ["a", "b", "c", "d/a", "d/b", "e/a", "d/e/a", "%(6cx220)"];
const DIRS: [&str; 3] = ["d", "e", "d/e"];
/// Offsets, sizes and lengths in bytes: around words, blocks and home lines, and small.
const BYTES: [u64; 12] = [
    0, 1, 100, 777, 4000, 4096, 5000, 8192, 12345, 20000, 32768, 33000,
];

/// Values of extended attributes: in slots and in blocks.
const XATTR_VALUES: [&str; 5] = ["one", "@1:100", "@2:300", "@3:1000", "@4:9000"];

/// The random workloads with numbers up to `count`.
pub fn random(count: u64) -> Vec<Workload> {
    (0..count).map(history).collect()
}

/// The workload called `name`, if it is one of these.
pub(super) fn find(name: &str) -> Option<Workload> {
    let number = name.strip_prefix(FAMILY)?.parse().ok()?;
    Some(history(number))
}

fn history(number: u64) -> Workload {
    let mut history = History::new(number);
    let length = 30 + history.draw.below(70) as usize;
    while history.steps.len() < length {
        // A few failing steps are kept in between; the last steps succeed.
        let may_fail = history.steps.len() + EXPLORED < length;
        history.try_some(Draw::lines, |draw| may_fail && draw.below(8) == 0);
    }
    let mut steps = history.take();
    let explored = steps.split_off(steps.len() - EXPLORED);
    Workload::of_steps(&format!("{FAMILY}{number}"), steps, explored)
}

/// Steps drawn by a number, and their effect on the model.
pub(super) struct History {
    pub(super) draw: Draw,
    model: Model,
    steps: Vec<Step>,
}

impl History {
    pub(super) fn new(number: u64) -> Self {
        Self {
            draw: Draw { number, drawn: 0 },
            model: Model::new(CLOCK_START),
            steps: Vec::new(),
        }
    }

    /// Executes the steps that are drawn if they succeed, or if `keeps` allows a failure; returns
    /// whether they were executed.
    fn try_some(
        &mut self,
        lines: fn(&mut Draw) -> Vec<String>,
        keeps: impl Fn(&mut Draw) -> bool,
    ) -> bool {
        let mut after = self.model.clone();
        let lines = lines(&mut self.draw);
        let some: Vec<_> = lines.iter().map(|line| Step::parse(line)).collect();
        let succeed = |step: &Step| matches!(model_step(&mut after, step), Outcome::Ok(_));
        let fails_here = keeps(&mut self.draw);
        let is_done = some.iter().map(succeed).fold(true, |all, one| all & one) || fails_here;
        if is_done {
            self.model = after;
            self.steps.extend(some);
        }
        is_done
    }

    /// Executes `count` drawn lines, all of which succeed.
    pub(super) fn some(&mut self, count: u64, lines: fn(&mut Draw) -> Vec<String>) {
        for _ in 0..count {
            while !self.try_some(lines, |_| false) {}
        }
    }

    /// Executes these lines, as [`Workload::new`] parses them; all must succeed.
    pub(super) fn all(&mut self, lines: &[&str]) {
        for step in Workload::new("", lines, &[]).setup {
            let done = model_step(&mut self.model, &step);
            assert!(matches!(done, Outcome::Ok(_)), "{step}");
            self.steps.push(step);
        }
    }

    /// Returns the steps that were executed since the last call.
    pub(super) fn take(&mut self) -> Vec<Step> {
        std::mem::take(&mut self.steps)
    }
}

/// Random numbers that depend only on a seed.
pub(super) struct Draw {
    number: u64,
    drawn: u64,
}

impl Draw {
    pub(super) fn below(&mut self, end: usize) -> u64 {
        self.drawn += 1;
        xxh3_64_with_seed(&self.drawn.to_le_bytes(), self.number) % end as u64
    }

    pub(super) fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len()) as usize]
    }

    fn file(&mut self) -> &'static str {
        self.of(&FILES)
    }

    fn any(&mut self) -> &'static str {
        if self.below(3) == 0 {
            self.of(&DIRS)
        } else {
            self.file()
        }
    }

    fn slot(&mut self) -> u64 {
        1 + self.below(2)
    }

    fn xattr(&mut self) -> &'static str {
        self.of(&["user.a", "user.b", "trusted.a"])
    }

    fn bytes(&mut self) -> u64 {
        self.of(&BYTES)
    }

    /// One step, or two that belong together.
    fn lines(&mut self) -> Vec<String> {
        match self.below(20) {
            0..8 => vec![self.name_line()],
            8..15 => vec![self.bytes_line()],
            15..18 => vec![self.attribute_line()],
            18 => vec!["maintain".to_owned()],
            _ => match self.below(3) {
                0 => vec!["close-pool".to_owned(), "open-pool".to_owned()],
                1 => vec!["recover".to_owned()],
                _ => vec!["sync".to_owned()],
            },
        }
    }

    fn name_line(&mut self) -> String {
        match self.below(12) {
            0 | 1 => format!("create {} 644 -", self.file()),
            2 => format!("create {} 6755 exclusive", self.file()),
            3 => format!("mkdir {} 755", self.of(&DIRS)),
            4 => format!("symlink {} {}", self.any(), self.file()),
            5 => format!("symlink %(74x3000) {}", self.file()),
            6 => format!("link {} {}", self.file(), self.file()),
            7 => format!("unlink {}", self.file()),
            8 => format!("rmdir {}", self.of(&DIRS)),
            9 | 10 => format!("rename {} {} {}", self.any(), self.any(), self.below(2)),
            _ => format!("rename {} {} 2", self.any(), self.any()),
        }
    }

    fn bytes_line(&mut self) -> String {
        let (file, slot, offset, bytes) = (self.file(), self.slot(), self.bytes(), self.bytes());
        let seed = 1 + self.below(100);
        match self.below(14) {
            0..3 => format!("write {file} {offset} {seed} {bytes}"),
            3..6 => format!("append {file} {seed} {bytes}"),
            6 | 7 => format!("truncate {file} {bytes}"),
            8 | 9 => {
                let mode = self.of(&[0, 1, 3]);
                format!("fallocate {file} {mode} {offset} {}", bytes + 1)
            }
            10 => format!("write-slot {slot} {offset} {seed} {bytes}"),
            11 => format!("truncate-slot {slot} {bytes}"),
            12 => format!("user: append {file} {seed} {bytes}"),
            _ => format!("read {file} {offset} {bytes}"),
        }
    }

    fn attribute_line(&mut self) -> String {
        match self.below(12) {
            0 => format!("chmod {} {}", self.any(), self.of(&["600", "6777", "1755"])),
            1 => format!("chown {} {} 6 follow", self.any(), self.of(&["5", "-"])),
            2 => format!("utimens {} 1000 2000 -", self.any()),
            3 | 4 => format!("open+rdwr {} {} 0", self.slot(), self.file()),
            8..11 => {
                let (name, value) = (self.xattr(), self.of(&XATTR_VALUES));
                format!("setxattr {} {name} {value} any follow", self.any())
            }
            11 => format!("removexattr {} {} follow", self.any(), self.xattr()),
            5 => format!("open+rdwr+creat+trunc {} {} 640", self.slot(), self.file()),
            _ => format!("close-slot {}", self.slot()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_is_always_the_same() {
        assert_eq!(history(17), find("random/17").unwrap());
        assert_ne!(history(17).setup, history(18).setup);
        assert_eq!(find("random/x"), None);
    }

    #[test]
    fn the_last_steps_succeed() {
        for workload in random(50) {
            assert_eq!(workload.explored.len(), EXPLORED);
            let mut model = Model::new(CLOCK_START);
            workload.setup.iter().for_each(|step| {
                model_step(&mut model, step);
            });
            let succeeds = |step: &Step| matches!(model_step(&mut model, step), Outcome::Ok(_));
            assert!(workload.explored.iter().all(succeeds), "{}", workload.name);
        }
    }
}
