//! What is explored: steps that prepare a pool, and the steps after them that crash.

use std::fmt;

use vellum_model::Op;

/// One thing that a workload does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// An operation, as the superuser.
    Op(Op),
    /// All background work there is.
    Maintain,
    /// A close in order; handles that are open are closed first.
    Close,
    /// Opening a pool that was closed.
    Open,
}

impl Step {
    /// Reads a step: `maintain`, `close-pool`, `open-pool`, or an operation as the model writes it.
    ///
    /// # Panics
    /// If it is none: workloads are part of the program.
    pub fn parse(line: &str) -> Self {
        match line {
            "maintain" => Self::Maintain,
            "close-pool" => Self::Close,
            "open-pool" => Self::Open,
            _ => match line.parse() {
                Ok(op) => Self::Op(op),
                Err(error) => panic!("{error}"),
            },
        }
    }

    /// Whether a crash in the middle may leave bytes of a file half done.
    pub fn changes_bytes(&self) -> bool {
        matches!(
            self,
            Self::Op(
                Op::Write { .. }
                    | Op::Append { .. }
                    | Op::Fallocate { .. }
                    | Op::WriteSlot { .. }
                    | Op::FallocateSlot { .. }
            )
        )
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Op(op) => op.fmt(f),
            Self::Maintain => f.write_str("maintain"),
            Self::Close => f.write_str("close-pool"),
            Self::Open => f.write_str("open-pool"),
        }
    }
}

/// A workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Its name: lower-case words with hyphens.
    pub name: String,
    /// What happens first, on an empty pool that is open.
    pub setup: Vec<Step>,
    /// What is explored.
    pub explored: Vec<Step>,
}

impl Workload {
    /// A workload of lines that [`Step::parse`] reads. In a line of the setup, `N*` before it
    /// repeats it N times with `#` replaced by 1 to N.
    pub fn new(name: &str, setup: &[&str], explored: &[&str]) -> Self {
        Self {
            name: name.to_owned(),
            setup: setup.iter().flat_map(|line| repeated(line)).collect(),
            explored: explored.iter().map(|line| Step::parse(line)).collect(),
        }
    }
}

fn repeated(line: &str) -> Vec<Step> {
    match line.split_once("* ") {
        Some((count, line)) => {
            let count: usize = count.parse().expect("a count before `*`");
            (1..=count)
                .map(|i| Step::parse(&line.replace('#', &i.to_string())))
                .collect()
        }
        None => vec![Step::parse(line)],
    }
}
