//! The work of a thread: random operations on few names, bursts of many files, and long operations.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::collections::VecDeque;
use vellum_model::{Cred, Model, Op, Range, Step, strategy};

/// One in this many steps begins a burst.
const BURST_EVERY: u32 = 400;
/// One in this many steps is on a large file.
const LARGE_EVERY: u32 = 25;
/// The size of a large file, in bytes.
const LARGE_BYTES: u32 = 4 << 20;
/// Most files of a burst.
const BURST_FILES: u32 = 300;

/// The steps of one worker, determined by a seed and the existing names.
pub(crate) struct Work {
    worker: usize,
    runner: TestRunner,
    ops: BoxedStrategy<Op>,
    burst: VecDeque<Op>,
}

impl Work {
    pub(crate) fn new(worker: usize, seed: u64) -> Work {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        bytes[8..16].copy_from_slice(&(worker as u64).to_le_bytes());
        let paths = paths(worker);
        let ops = prop_oneof![
            30 => strategy::namespace_op(&paths),
            25 => strategy::content_op(&paths),
            6 => strategy::attribute_op(&paths),
            14 => strategy::slot_op(&paths),
        ];
        Work {
            worker,
            runner: TestRunner::new_with_rng(
                Config::default(),
                TestRng::from_seed(RngAlgorithm::ChaCha, &bytes),
            ),
            ops: ops.boxed(),
            burst: VecDeque::new(),
        }
    }

    pub(crate) fn next(&mut self, model: &Model) -> Step {
        if self.burst.is_empty() && self.below(BURST_EVERY) == 0 {
            self.begin_burst(model);
        }
        let op = match self.burst.pop_front() {
            Some(op) => op,
            None if self.below(LARGE_EVERY) == 0 => self.large(),
            None => self.draw(),
        };
        let cred = Cred::superuser();
        Step { cred, op }
    }

    fn draw(&mut self) -> Op {
        let drawn = self.ops.new_tree(&mut self.runner);
        drawn.expect("the strategy never rejects").current()
    }

    fn below(&mut self, end: u32) -> u32 {
        self.runner.rng().random_range(0..end)
    }

    /// An operation on hundreds of blocks, so that a kill interrupts it.
    fn large(&mut self) -> Op {
        let path = format!("/w{}/large", self.worker).into_bytes();
        let offset = self.below(LARGE_BYTES).into();
        let len = u64::from(1 + self.below(LARGE_BYTES / 4));
        let range = Range { offset, len };
        match self.below(8) {
            0 => Op::Create {
                path,
                mode: 0o600,
                exclusive: false,
            },
            1 => Op::Truncate { path, size: offset },
            2 => Op::Fallocate {
                path,
                mode: 0,
                range,
            },
            3 => Op::Fallocate {
                path,
                mode: libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
                range,
            },
            4 => Op::Read { path, range },
            seed => Op::Write {
                path,
                offset,
                seed: seed.into(),
                len,
            },
        }
    }

    /// Half of the bursts remove the files of earlier ones; all create files, move and remove some,
    /// and append to others.
    fn begin_burst(&mut self, model: &Model) {
        let own = format!("/w{}/many", self.worker);
        let shared = format!("/shared/w{}-many", self.worker);
        let base = if self.below(2) == 0 {
            self.burst.push_back(Op::Mkdir {
                path: own.clone().into_bytes(),
                mode: 0o755,
            });
            format!("{own}/")
        } else {
            format!("{shared}-")
        };
        let left = model.snapshot(false).into_keys();
        let left: Vec<Vec<u8>> = left
            .filter(|path| path.starts_with(base.as_bytes()))
            .collect();
        if self.below(2) == 0 {
            self.burst
                .extend(left.into_iter().map(|path| Op::Unlink { path }));
        }
        let (from, files) = (self.below(1000), 1 + self.below(BURST_FILES));
        for number in from..from + files {
            self.burst_file(&base, number);
        }
    }

    fn burst_file(&mut self, base: &str, number: u32) {
        let path = |prefix: &str, number: u32| format!("{base}{prefix}{number}").into_bytes();
        self.burst.push_back(Op::Create {
            path: path("file", number),
            mode: 0o644,
            exclusive: true,
        });
        if number.is_multiple_of(4) {
            let len = 1 + u64::from(self.below(9000));
            self.burst.push_back(Op::Append {
                path: path("file", number),
                seed: number.into(),
                len,
            });
            self.burst.push_back(Op::Fsync {
                path: path("file", number),
            });
        }
        match number % 6 {
            0 => self.burst.push_back(Op::Rename {
                from: path("file", number),
                to: path("moved", number),
                flags: 0,
            }),
            1 => self.burst.push_back(Op::Rename {
                from: path("file", number),
                to: path("file", number.saturating_sub(2)),
                flags: 0,
            }),
            2 => self.burst.push_back(Op::Unlink {
                path: path("file", number),
            }),
            3 => self.burst.push_back(Op::Link {
                from: path("file", number),
                to: path("link", number),
            }),
            _ => {}
        }
    }
}

/// Names of the worker itself, in its directory and in the shared one.
fn paths(worker: usize) -> strategy::Paths {
    let long = "x".repeat(150);
    let name = move || {
        let mut names: Vec<String> = ["a", "b", "c", "d"].map(str::to_owned).to_vec();
        names.push(long.clone());
        prop::sample::select(names)
    };
    let own = move |name: &str| format!("/w{worker}/{name}");
    let shared = move |name: &str| format!("/shared/w{worker}-{name}");
    prop_oneof![
        6 => name().prop_map(move |name| own(&name)),
        5 => (name(), name()).prop_map(move |(dir, name)| own(&format!("{dir}/{name}"))),
        4 => name().prop_map(move |name| shared(&name)),
        2 => (name(), name()).prop_map(move |(dir, name)| shared(&format!("{dir}/{name}"))),
    ]
    .prop_map(String::into_bytes)
    .boxed()
}
