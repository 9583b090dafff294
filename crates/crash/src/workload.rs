//! What is explored: steps that prepare a pool, and the steps after them that crash.

use std::fmt;

use vellum_model::{Op, RENAME_EXCHANGE};

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

    /// What kind of operation it is: the system call, or part of one, or what the file system does
    /// by itself.
    pub fn operation(&self) -> &'static str {
        const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE;
        match self {
            Self::Maintain => "maintain",
            Self::Close => "closing",
            Self::Open => "opening",
            Self::Op(op) => match op {
                Op::Create { .. } => "create",
                Op::Mkdir { .. } => "mkdir",
                Op::Symlink { .. } => "symlink",
                Op::Link { .. } => "link",
                Op::Unlink { .. } => "unlink",
                Op::Rmdir { .. } => "rmdir",
                Op::Rename { flags, .. } if flags & RENAME_EXCHANGE != 0 => "exchange",
                Op::Rename { .. } => "rename",
                Op::Write { .. } | Op::WriteSlot { .. } => "write",
                Op::Append { .. } => "append",
                Op::Truncate { .. } | Op::TruncateSlot { .. } => "truncate",
                Op::Fallocate { mode, .. } | Op::FallocateSlot { mode, .. }
                    if mode & PUNCH != 0 =>
                {
                    "punch"
                }
                Op::Fallocate { .. } | Op::FallocateSlot { .. } => "fallocate",
                Op::Fsync { .. } | Op::FsyncSlot { .. } | Op::Sync => "sync",
                Op::Chmod { .. } => "chmod",
                Op::Chown { .. } => "chown",
                Op::Utimens { .. } => "utimens",
                Op::Open { .. } => "open",
                Op::CloseSlot { .. } => "close",
                Op::Read { .. } | Op::ReadSlot { .. } => "read",
                Op::Readlink { .. } => "readlink",
                Op::Readdir { .. } | Op::ReaddirSlot { .. } => "readdir",
                Op::SeekData { .. } | Op::SeekHole { .. } => "seek",
                Op::Stat { .. } | Op::StatSlot { .. } | Op::Times { .. } | Op::Access { .. } => {
                    "stat"
                }
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
    /// So many of the explored steps come first without crashes of their own: another workload
    /// explores those. What they left in the cache may still be lost.
    pub covered: usize,
}

impl Workload {
    /// A workload of lines that [`Step::parse`] reads. In a line of the setup, `N*` before it
    /// repeats it N times with `#` replaced by 1 to N.
    pub fn new(name: &str, setup: &[&str], explored: &[&str]) -> Self {
        Self {
            name: name.to_owned(),
            setup: setup.iter().flat_map(|line| repeated(line)).collect(),
            explored: explored.iter().map(|line| Step::parse(line)).collect(),
            covered: 0,
        }
    }

    /// The operation whose crashes come first: see [`Step::operation`].
    pub fn operation(&self) -> &'static str {
        self.explored
            .get(self.covered)
            .map_or("nothing", Step::operation)
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
