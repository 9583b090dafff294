//! Workloads: steps that prepare a pool, and steps after them that crash.

use std::fmt;
use std::str::FromStr;

use vellum::{MappingKind, NamespaceKind};
use vellum_model::{Op, ParseError, RENAME_EXCHANGE, Range};

use crate::id::Mode;

/// One thing that a workload does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// An operation, as the superuser.
    Op(Op),
    /// An operation, as user 1000 of group 1000.
    User(Op),
    /// An operation of the superuser that fails because the pool is full, and changes nothing.
    Full(Op),
    /// Operations of the superuser on the attributes of one file, in a single call, which changes
    /// the size first.
    Together(Vec<Op>),
    /// Creates a file without a name, writes to it, and gives it this path.
    Unnamed(String),
    /// Allocates blocks in a hole of a file and frees them again, by a mapping probe.
    Blocks(BlocksAlone),
    /// All pending background work.
    Maintain,
    /// Makes a directory, given by its path, the root of an area.
    Split(String),
    /// Merges a directory's area, so that it is no root any more.
    Merge(String),
    /// This many rounds of evolving.
    Evolve(u32),
    /// Writes what the oldest records of a log say to home.
    Checkpoint,
    /// Makes the pool as large as this many bytes.
    Grow(u64),
    /// Gives the space of free blocks back.
    Trim,
    /// A clean close; open handles are closed first.
    Close,
    /// Closes the pool, and completes the metadata replica on its external data device.
    ExportReplica,
    /// Opens a pool that was closed.
    Open,
    /// Ends the process without a close, and opens the pool again.
    Recover,
}

/// Blocks that an experiment allocates for a file and frees again ([`vellum::experiments`]). In
/// between their content is undefined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlocksAlone {
    /// The file.
    pub path: String,
    /// The first block, in a hole inside the file's size.
    pub first: u64,
    /// The number of blocks, all inside the hole.
    pub count: u64,
}

impl Step {
    /// Reads a step, as [`str::parse`] does.
    ///
    /// # Panics
    /// If the line is no step: only for workloads that are part of the program.
    pub fn parse(line: &str) -> Self {
        line.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    /// The operation that the step executes, if it succeeds as in the model.
    pub fn op(&self) -> Option<&Op> {
        match self {
            Self::Op(op) | Self::User(op) => Some(op),
            _ => None,
        }
    }

    /// The kind of the operation: the system call, or part of one, or what the file system does by
    /// itself.
    pub fn operation(&self) -> &'static str {
        const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE;
        match self {
            Self::Blocks(_) => "blocks",
            Self::Unnamed(_) => "unnamed",
            Self::Maintain => "maintain",
            Self::Split(_) => "split",
            Self::Merge(_) => "merge",
            Self::Evolve(_) => "evolve",
            Self::Checkpoint => "checkpoint",
            Self::Grow(_) => "grow",
            Self::Trim => "trim",
            Self::Close => "closing",
            Self::ExportReplica => "carrying",
            Self::Open => "opening",
            Self::Recover => "recovery",
            Self::Together(_) => "attributes",
            Self::Op(op) | Self::User(op) | Self::Full(op) => match op {
                Op::Create { .. } => "create",
                Op::Mkdir { .. } => "mkdir",
                Op::Mknod { .. } => "mknod",
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
                Op::SetXattr { .. } => "setxattr",
                Op::RemoveXattr { .. } => "removexattr",
                Op::SetFlags { .. } | Op::SetProject { .. } => "chattr",
                Op::SetQuotas { .. } | Op::SetQuota { .. } => "quota",
                Op::Open { .. } => "open",
                Op::CloseSlot { .. } => "close",
                Op::Read { .. }
                | Op::ReadSlot { .. }
                | Op::Readlink { .. }
                | Op::Readdir { .. }
                | Op::ReaddirSlot { .. }
                | Op::SeekData { .. }
                | Op::SeekHole { .. }
                | Op::GetXattr { .. }
                | Op::ListXattr { .. }
                | Op::GetFlags { .. }
                | Op::GetQuota { .. }
                | Op::Stat { .. }
                | Op::StatSlot { .. }
                | Op::FlockSlot { .. }
                | Op::LockSlot { .. }
                | Op::GetLockSlot { .. }
                | Op::Times { .. }
                | Op::Access { .. } => "read",
            },
        }
    }

    /// Whether a crash in the middle may leave the bytes of a file partly changed.
    pub fn changes_bytes(&self) -> bool {
        matches!(
            self.op(),
            Some(
                Op::Write { .. }
                    | Op::Append { .. }
                    | Op::Fallocate { .. }
                    | Op::WriteSlot { .. }
                    | Op::FallocateSlot { .. }
            )
        )
    }

    /// The range that the step removes from a file, or inserts.
    pub(crate) fn shifted(&self) -> Option<Range> {
        self.op()?.shifted()
    }

    /// On a pool with a log: whether everything before the step is durable when it returns.
    pub fn syncs(&self) -> bool {
        matches!(
            self,
            Self::Close
                | Self::ExportReplica
                | Self::Open
                | Self::Recover
                | Self::Op(Op::Sync | Op::Fsync { .. } | Op::FsyncSlot { .. })
        )
    }

    /// The operations that together have the result of [`Self::Unnamed`].
    pub(crate) fn named_at_once(path: &str) -> [Op; 2] {
        let path = path.as_bytes().to_vec();
        let create = Op::Create {
            path: path.clone(),
            mode: 0o644,
            exclusive: true,
        };
        let (seed, len) = (3, 5000);
        [create, Op::Append { path, seed, len }]
    }

    /// The two steps that it consists of, if any: a crash may leave the first without the second.
    pub fn halves(&self) -> Option<[Self; 2]> {
        match self {
            Self::Together(ops) => match &ops[..] {
                [resize @ Op::Truncate { .. }, rest @ ..] if !rest.is_empty() => {
                    Some([Self::Op(resize.clone()), Self::Together(rest.to_vec())])
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether it may drop the set-id bits and capabilities of a file, durably, before it changes
    /// the content.
    pub fn drops_privileges(&self) -> bool {
        self.changes_bytes() || matches!(self.operation(), "truncate" | "open")
    }
}

/// Why a line is not a step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct StepError(String);

/// Parses `maintain`, `split DIR`, `merge DIR`, `evolve ROUNDS`, `checkpoint`, `grow BYTES`,
/// `trim`, `close-pool`, `export-replica`, `open-pool`, `recover`, `blocks FILE FIRST COUNT`,
/// `unnamed FILE`, or an operation as the
/// model writes it. An operation can have `user: ` or `full: ` before it. Several with `; ` between
/// them can follow `together: `.
impl FromStr for Step {
    type Err = StepError;

    fn from_str(line: &str) -> Result<Self, StepError> {
        let op = |line: &str| {
            line.parse()
                .map_err(|e: ParseError| StepError(e.to_string()))
        };
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        Ok(match (word, rest) {
            ("maintain", "") => Self::Maintain,
            ("checkpoint", "") => Self::Checkpoint,
            ("close-pool", "") => Self::Close,
            ("export-replica", "") => Self::ExportReplica,
            ("open-pool", "") => Self::Open,
            ("recover", "") => Self::Recover,
            ("trim", "") => Self::Trim,
            ("blocks", rest) => Self::Blocks(rest.parse()?),
            ("unnamed", path) => Self::Unnamed(path.to_owned()),
            ("split", dir) => Self::Split(dir.to_owned()),
            ("merge", dir) => Self::Merge(dir.to_owned()),
            ("grow", bytes) => Self::Grow(number(bytes, "bytes", line)?),
            ("evolve", rounds) => Self::Evolve(number(rounds, "rounds", line)?),
            ("user:", line) => Self::User(op(line)?),
            ("full:", line) => Self::Full(op(line)?),
            ("together:", lines) => {
                Self::Together(lines.split("; ").map(op).collect::<Result<_, _>>()?)
            }
            _ => Self::Op(op(line)?),
        })
    }
}

impl FromStr for BlocksAlone {
    type Err = StepError;

    /// Parses `FILE FIRST COUNT`.
    fn from_str(text: &str) -> Result<Self, StepError> {
        let words: Vec<&str> = text.split(' ').collect();
        let [path, first, count] = words[..] else {
            let what = format!("`blocks {text}`: write `blocks FILE FIRST COUNT`");
            return Err(StepError(what));
        };
        Ok(Self {
            path: path.to_owned(),
            first: number(first, "a first block", text)?,
            count: number(count, "blocks", text)?,
        })
    }
}

fn number<T: FromStr>(word: &str, of: &str, line: &str) -> Result<T, StepError> {
    let number = word.parse();
    number.map_err(|_| StepError(format!("`{line}`: `{word}` is not a number of {of}")))
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Op(op) => op.fmt(f),
            Self::Blocks(BlocksAlone { path, first, count }) => {
                write!(f, "blocks {path} {first} {count}")
            }
            Self::Unnamed(path) => write!(f, "unnamed {path}"),
            Self::Maintain => f.write_str("maintain"),
            Self::Split(dir) => write!(f, "split {dir}"),
            Self::Merge(dir) => write!(f, "merge {dir}"),
            Self::Evolve(rounds) => write!(f, "evolve {rounds}"),
            Self::Checkpoint => f.write_str("checkpoint"),
            Self::Grow(bytes) => write!(f, "grow {bytes}"),
            Self::Trim => f.write_str("trim"),
            Self::Close => f.write_str("close-pool"),
            Self::ExportReplica => f.write_str("export-replica"),
            Self::Open => f.write_str("open-pool"),
            Self::Recover => f.write_str("recover"),
            Self::User(op) => write!(f, "user: {op}"),
            Self::Full(op) => write!(f, "full: {op}"),
            Self::Together(ops) => {
                let lines: Vec<String> = ops.iter().map(Op::to_string).collect();
                write!(f, "together: {}", lines.join("; "))
            }
        }
    }
}

/// A workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Its name: lower-case words with hyphens.
    pub name: String,
    /// The steps that prepare the pool, which is empty and open at first.
    pub setup: Vec<Step>,
    /// The steps whose crashes are explored.
    pub explored: Vec<Step>,
    /// The number of explored steps at the beginning whose crashes another workload explores. What
    /// they left in the cache may still be lost.
    pub covered: usize,
    /// The power cut that ends the setup; the explored steps then begin with opening the pool.
    pub cut: Option<PowerCut>,
    /// Whether the arena is too small for the tree.
    pub crowded: bool,
    /// File mapping of the pool.
    pub mapping: MappingKind,
    /// The namespace of the pool.
    pub namespace: NamespaceKind,
    /// What the pool lies on.
    pub pool_kind: PoolKind,
}

/// What a pool lies on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PoolKind {
    /// Persistent memory.
    #[default]
    Memory,
    /// A disk, with a log: after a crash everything before the last sync is there, and possibly
    /// some of what followed.
    Logged,
    /// As [`Self::Logged`], with another disk for the data.
    External,
    /// Persistent memory, with a disk for the data.
    Split,
    /// As [`Self::External`], with a third disk that was added for more data.
    Grown,
    /// Persistent memory, with a small metadata region: data space becomes metadata.
    Narrow,
}

impl PoolKind {
    /// All kinds.
    pub(crate) const ALL: [Self; 6] = [
        Self::Memory,
        Self::Logged,
        Self::External,
        Self::Split,
        Self::Grown,
        Self::Narrow,
    ];

    /// The kinds with disks, where only syncs make anything durable. [`Self::Grown`] differs from
    /// the second only in where blocks and their words lie, and has fewer workloads.
    pub const ON_DISKS: [Self; 3] = [Self::Logged, Self::External, Self::Split];

    /// The prefix in the names of workloads on this kind of pool.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Logged => "logged",
            Self::External => "external",
            Self::Split => "split",
            Self::Grown => "grown",
            Self::Narrow => "narrow",
        }
    }

    /// The kind of pool that the workload of this name is explored on.
    pub fn of_workload(name: &str) -> Self {
        let name = name.trim_start_matches("threads/");
        let is_of = |pool_kind: &Self| {
            let rest = name.strip_prefix(pool_kind.name());
            rest.is_some_and(|rest| rest.starts_with('-'))
        };
        let mut grounds = Self::ALL.into_iter();
        grounds.find(is_of).unwrap_or_default()
    }

    /// Whether the pool has a log.
    pub fn is_logged(self) -> bool {
        matches!(self, Self::Logged | Self::External | Self::Grown)
    }

    /// Whether only syncs make anything durable.
    pub fn commits(self) -> bool {
        !matches!(self, Self::Memory | Self::Narrow)
    }

    /// Whether a power cut after a kill leaves something else than one without a kill, and the
    /// explorer can judge it.
    pub fn is_killed(self) -> bool {
        !self.is_logged()
    }

    /// Whether this crash model can show anything new. What a log makes durable is in no cache; on
    /// some pools a kill leaves what a power cut leaves; and without a disk nothing is synced.
    pub fn is_crashed_as(self, mode: Mode) -> bool {
        match mode {
            Mode::X86 => true,
            Mode::Kill => self.is_killed(),
            Mode::IgnoredFlushes => self.commits(),
            Mode::Lazy | Mode::Eadr => !self.commits(),
        }
    }

    /// Whether the data have a disk of their own.
    pub fn is_external(self) -> bool {
        matches!(self, Self::External | Self::Split | Self::Grown)
    }
}

/// A power cut in the middle of a step, after which everything stored has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PowerCut {
    /// The step.
    pub step: Step,
    /// The site of the fence after which it happens.
    pub after: String,
    /// Whether recovery finds the step done.
    pub done: bool,
}

impl Workload {
    /// A workload of lines that are parsed as steps. In a line of the setup, `N*` before a step
    /// repeats it N times with `#` replaced by 1 to N.
    ///
    /// # Panics
    /// If a line is no step: only for workloads that are part of the program.
    pub fn new(name: &str, setup: &[&str], explored: &[&str]) -> Self {
        let repeated = |line: &&str| repeated(line).unwrap_or_else(|error| panic!("{error}"));
        let setup = setup.iter().flat_map(repeated).collect();
        let explored = explored.iter().map(|line| Step::parse(line)).collect();
        Self::of_steps(name, setup, explored)
    }

    /// A workload of steps.
    pub(crate) fn of_steps(name: &str, setup: Vec<Step>, explored: Vec<Step>) -> Self {
        Self {
            name: name.to_owned(),
            setup,
            explored,
            covered: 0,
            cut: None,
            crowded: false,
            mapping: MappingKind::HashFs,
            namespace: NamespaceKind::Direct,
            pool_kind: PoolKind::Memory,
        }
    }

    /// The same on a pool with another file mapping; its name prefixes the workload's.
    #[must_use]
    pub fn on(mut self, mapping: MappingKind) -> Self {
        self.name = format!("{}-{}", mapping.name(), self.name);
        self.mapping = mapping;
        self
    }

    /// The same on a pool with another namespace; its name prefixes the workload's.
    #[must_use]
    pub fn within(mut self, namespace: NamespaceKind) -> Self {
        self.name = format!("{}-{}", namespace.name(), self.name);
        self.namespace = namespace;
        self
    }

    /// The same on a pool where only syncs make anything durable; the kind of pool prefixes the
    /// workload's name. The setup ends with a sync or a close.
    #[must_use]
    pub fn logged(mut self, pool_kind: PoolKind) -> Self {
        self.name = format!("{}-{}", pool_kind.name(), self.name);
        self.pool_kind = pool_kind;
        if !matches!(self.setup.last(), Some(Step::Close | Step::ExportReplica)) {
            self.setup.push(Step::parse("sync"));
        }
        self
    }

    /// Whether the external data device of its pool has a metadata replica.
    pub fn has_replica(&self) -> bool {
        let mut steps = self.setup.iter().chain(&self.explored);
        steps.any(|step| *step == Step::ExportReplica)
    }

    /// The most bytes that the pool grows to; 0 if it does not grow.
    pub fn grows_to(&self) -> u64 {
        let bytes = |step: &Step| match step {
            Step::Grow(bytes) => Some(*bytes),
            _ => None,
        };
        let steps = self.setup.iter().chain(&self.explored);
        steps.filter_map(bytes).max().unwrap_or(0)
    }

    /// Whether the explored steps concern names.
    pub fn concerns_names(&self) -> bool {
        const OWN: [&str; 12] = [
            "create", "mkdir", "mknod", "symlink", "link", "unlink", "rmdir", "rename", "exchange",
            "maintain", "closing", "opening",
        ];
        let own = |step: &Step| OWN.contains(&step.operation());
        self.explored.iter().any(own)
    }

    /// Whether the workload relies on the number of blocks in the pool, which depends on the
    /// mapping.
    pub fn fills_the_pool(&self) -> bool {
        let is_full = |step: &Step| matches!(step, Step::Full(_));
        self.setup.iter().chain(&self.explored).any(is_full)
    }

    /// Whether the explored steps concern the blocks of files.
    pub fn concerns_blocks(&self) -> bool {
        const OTHERS: [&str; 15] = [
            "attributes",
            "blocks",
            "unlink",
            "rename",
            "exchange",
            "truncate",
            "punch",
            "fallocate",
            "open",
            "close",
            "maintain",
            "closing",
            "opening",
            "recovery",
            "sync",
        ];
        let own = |step: &Step| step.changes_bytes() || OTHERS.contains(&step.operation());
        let bytes = |step: &Step| step.changes_bytes();
        self.explored.iter().any(own) && self.setup.iter().chain(&self.explored).any(bytes)
    }

    /// The operation whose crashes come first: see [`Step::operation`].
    pub fn operation(&self) -> &'static str {
        self.explored
            .get(self.covered)
            .map_or("nothing", Step::operation)
    }
}

/// Parses a step; `N*` before it repeats it N times with `#` replaced by 1 to N.
///
/// # Errors
/// The line is not a step.
pub(crate) fn repeated(line: &str) -> Result<Vec<Step>, StepError> {
    let Some((count, step)) = line.split_once("* ") else {
        return Ok(vec![line.parse()?]);
    };
    let count = number::<usize>(count, "times", line)?;
    (1..=count)
        .map(|i| step.replace('#', &i.to_string()).parse())
        .collect()
}
