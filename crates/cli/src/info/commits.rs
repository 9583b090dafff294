//! The counters of commits in `vellum info`.

use serde::{Deserialize, Serialize};
use vellum::RealFs;

use crate::units::{percent, size};

/// Commits of a logged pool.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LogPart {
    pub(crate) bytes: u64,
    pub(crate) used_bytes: u64,
    /// Epochs written to the log.
    pub(crate) commits: u64,
    /// Calls such as fsync that these commits answered.
    pub(crate) syncs_answered: u64,
    pub(crate) lines_logged: u64,
    pub(crate) bytes_logged: u64,
    /// Blocks of file data that were written to the log, so that the commit did not wait for them
    /// at their home.
    #[serde(default)]
    pub(crate) blocks_logged: u64,
    /// Checkpoints. Each wrote a part of the log home.
    pub(crate) checkpoints: u64,
}

impl LogPart {
    pub(super) fn of(fs: &RealFs) -> Option<Self> {
        let counts = fs.log_counts()?;
        Some(Self {
            bytes: fs.superblock().log_bytes,
            used_bytes: counts.used_bytes,
            commits: counts.commits,
            syncs_answered: counts.answered,
            lines_logged: counts.lines,
            bytes_logged: counts.bytes,
            blocks_logged: counts.blocks,
            checkpoints: counts.checkpoints,
        })
    }

    pub(super) fn lines(&self) -> [String; 2] {
        [
            format!(
                "{}, {} in use; {} checkpoints",
                size(self.bytes),
                percent(self.used_bytes, self.bytes),
                self.checkpoints
            ),
            format!(
                "{} commits for {} calls such as fsync: {} lines, {} blocks, {}",
                self.commits,
                self.syncs_answered,
                self.lines_logged,
                self.blocks_logged,
                size(self.bytes_logged)
            ),
        ]
    }
}

/// Commits of a split pool.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct UndoInfo {
    pub(crate) bytes: u64,
    pub(crate) commits: u64,
    /// Calls such as fsync that these commits answered.
    pub(crate) syncs_answered: u64,
    /// Commits that had to wait for the data.
    pub(crate) data_syncs: u64,
    /// Undo records written.
    pub(crate) records: u64,
}

impl UndoInfo {
    pub(super) fn of(fs: &RealFs) -> Option<Self> {
        let counts = fs.undo_counts()?;
        Some(Self {
            bytes: fs.superblock().undo_bytes,
            commits: counts.commits,
            syncs_answered: counts.answered,
            data_syncs: counts.data_syncs,
            records: counts.records,
        })
    }

    pub(super) fn line(&self) -> String {
        format!(
            "{}; {} commits, {} of them with data, for {} calls such as fsync: {} undo records",
            size(self.bytes),
            self.commits,
            self.data_syncs,
            self.syncs_answered,
            self.records
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_shows_what_was_committed() {
        let log = LogPart {
            bytes: 64 << 20,
            used_bytes: 16 << 20,
            commits: 7,
            syncs_answered: 20,
            lines_logged: 90,
            bytes_logged: 8192,
            blocks_logged: 3,
            checkpoints: 2,
        };
        let [space, commits] = log.lines();
        assert!(
            space.contains("25") && space.ends_with("2 checkpoints"),
            "{space}"
        );
        assert!(
            commits.starts_with("7 commits for 20 calls") && commits.contains("90 lines, 3 blocks")
        );
    }

    #[test]
    fn the_undo_log_shows_what_was_committed() {
        let undo_log = UndoInfo {
            bytes: 3 << 20,
            commits: 7,
            syncs_answered: 20,
            data_syncs: 4,
            records: 90,
        };
        let line = undo_log.line();
        assert!(
            line.contains("7 commits, 4 of them with data, for 20 calls"),
            "{line}"
        );
        assert!(line.ends_with("90 undo records"), "{line}");
    }
}
