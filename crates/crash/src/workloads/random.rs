//! Long random histories, of which the last steps crash.
//!
//! What a number stands for never changes but with this file: identifiers name it (`random/17`).

use vellum_model::{Model, Outcome};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::record::model_step;
use crate::session::CLOCK_START;
use crate::workload::{Step, Workload};

/// The name that all of them begin with.
const FAMILY: &str = "random/";
/// Steps that crash.
const EXPLORED: usize = 4;
const FILES: [&str; 8] = ["a", "b", "c", "d/a", "d/b", "e/a", "d/e/a", "%(6cx220)"];
const DIRS: [&str; 3] = ["d", "e", "d/e"];
/// Offsets, sizes and lengths in bytes: around words, blocks and home lines, and small.
const BYTES: [u64; 12] = [
    0, 1, 100, 777, 4000, 4096, 5000, 8192, 12345, 20000, 32768, 33000,
];

/// The random workloads of numbers up to `count`.
pub fn random(count: u64) -> Vec<Workload> {
    (0..count).map(history).collect()
}

/// The workload that `name` names, if it names one of these.
pub(super) fn find(name: &str) -> Option<Workload> {
    let number = name.strip_prefix(FAMILY)?.parse().ok()?;
    Some(history(number))
}

fn history(number: u64) -> Workload {
    let mut draw = Draw { number, drawn: 0 };
    let length = 30 + draw.below(70) as usize;
    let mut model = Model::new(CLOCK_START);
    let mut steps: Vec<Step> = Vec::new();
    while steps.len() < length {
        let mut after = model.clone();
        let lines = draw.lines();
        let some: Vec<_> = lines.iter().map(|line| Step::parse(line)).collect();
        let succeed = |step: &Step| matches!(model_step(&mut after, step), Outcome::Ok(_));
        // A few that fail are in between; the last ones succeed.
        let fails_here = steps.len() + EXPLORED < length && draw.below(8) == 0;
        if some.iter().map(succeed).fold(true, |all, one| all & one) || fails_here {
            model = after;
            steps.extend(some);
        }
    }
    let explored = steps.split_off(steps.len() - EXPLORED);
    let mut workload = Workload::new(&format!("{FAMILY}{number}"), &[], &[]);
    workload.setup = steps;
    workload.explored = explored;
    workload
}

/// Numbers that depend on nothing but a number.
struct Draw {
    number: u64,
    drawn: u64,
}

impl Draw {
    fn below(&mut self, end: usize) -> u64 {
        self.drawn += 1;
        xxh3_64_with_seed(&self.drawn.to_le_bytes(), self.number) % end as u64
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
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
        match self.below(8) {
            0 => format!("chmod {} {}", self.any(), self.of(&["600", "6777", "1755"])),
            1 => format!("chown {} {} 6 follow", self.any(), self.of(&["5", "-"])),
            2 => format!("utimens {} 1000 2000 -", self.any()),
            3 | 4 => format!("open+rdwr {} {} 0", self.slot(), self.file()),
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
