//! The budgets of operations.

/// The file system that an operation's time is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Against {
    Tmpfs,
    Ext4OnLoop,
}

impl Against {
    /// The kind of peer.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::Tmpfs => "tmpfs",
            Self::Ext4OnLoop => "ext4 on loop",
        }
    }
}

/// The budget of one operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    pub(crate) op: &'static str,
    /// The peer must take at least this many times as long.
    pub(crate) ratio: f64,
    pub(crate) against: Against,
    /// The most lines flushed.
    pub(crate) lines: f64,
    /// The most fences.
    pub(crate) fences: f64,
}

const fn budget(op: &'static str, ratio: f64, lines: f64, fences: f64) -> Budget {
    Budget {
        op,
        ratio,
        against: Against::Tmpfs,
        lines,
        fences,
    }
}

/// The budget of every operation.
pub(crate) const BUDGETS: &[Budget] = &[
    budget("stat_d1", 8.0, 0.0, 0.0),
    budget("stat_d8", 4.0, 0.0, 0.0),
    budget("open_close", 8.0, 0.0, 0.0),
    budget("create", 7.0, 6.0, 2.0),
    budget("unlink", 7.0, 3.0, 2.0),
    budget("mkdir", 5.0, 9.0, 3.0),
    budget("rmdir", 6.0, 5.0, 2.0),
    budget("rename_same", 5.0, 10.0, 4.0),
    budget("rename_across", 5.0, 10.0, 4.0),
    budget("readdir", 8.0, 0.0, 0.0),
    budget("readdir_owned", 5.0, 0.0, 0.0),
    budget("pread_4k_random", 2.0, 0.0, 0.0),
    budget("append_4k", 3.0, 67.0, 2.0),
    Budget {
        op: "create_write4k_fsync",
        ratio: 80.0,
        against: Against::Ext4OnLoop,
        lines: 73.0,
        fences: 4.0,
    },
];

/// Operations on names and attributes through a mount may take at most 1.3 times as long as with
/// the null file system.
pub(crate) const MOUNT_RATIO: f64 = 1.0 / 1.3;

/// Operations without [`MOUNT_RATIO`], because they move data.
pub(crate) const DATA: [&str; 3] = ["pread_4k_random", "append_4k", "create_write4k_fsync"];

/// Two threads in one directory must reach at least this fraction of the speed of two threads in a
/// directory each.
pub(crate) const SHARED_TO_PRIVATE: f64 = 0.85;

/// The most bytes of DRAM for a cached file.
pub(crate) const CACHE_BYTES_PER_FILE: f64 = 200.0;

/// The budget of an operation.
pub(crate) fn budget_of(op: &str) -> Option<&'static Budget> {
    BUDGETS.iter().find(|budget| budget.op == op)
}
