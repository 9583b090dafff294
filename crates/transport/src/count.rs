//! Counts of requests by kind.

use std::sync::atomic::{AtomicU64, Ordering};

/// The names of the kernel's requests, by their numbers. Empty: there is no such request.
const NAMES: [&str; 53] = [
    "other",
    "lookup",
    "forget",
    "getattr",
    "setattr",
    "readlink",
    "symlink",
    "",
    "mknod",
    "mkdir",
    "unlink",
    "rmdir",
    "rename",
    "link",
    "open",
    "read",
    "write",
    "statfs",
    "release",
    "",
    "fsync",
    "setxattr",
    "getxattr",
    "listxattr",
    "removexattr",
    "flush",
    "init",
    "opendir",
    "readdir",
    "releasedir",
    "fsyncdir",
    "getlk",
    "setlk",
    "setlkw",
    "access",
    "create",
    "interrupt",
    "bmap",
    "destroy",
    "ioctl",
    "poll",
    "notify_reply",
    "batch_forget",
    "fallocate",
    "readdirplus",
    "rename2",
    "lseek",
    "copy_file_range",
    "setupmapping",
    "removemapping",
    "syncfs",
    "tmpfile",
    "statx",
];

/// How many requests of each kind a connection has delivered.
#[derive(Debug)]
pub struct RequestCounts([AtomicU64; NAMES.len()]);

impl Default for RequestCounts {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl RequestCounts {
    pub(crate) fn count(&self, opcode: u32) {
        let kind = self.0.get(opcode as usize).unwrap_or(&self.0[0]);
        kind.fetch_add(1, Ordering::Relaxed);
    }

    /// The requested kinds and their counts, ordered as the kernel numbers them. The names are the
    /// kernel's in small letters; `other` counts the kinds of newer kernels.
    pub fn by_kind(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let all = NAMES.iter().copied().zip(&self.0);
        all.map(|(name, count)| (name, count.load(Ordering::Relaxed)))
            .filter(|&(_, count)| count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::opcode;

    #[test]
    fn requests_are_counted_under_the_names_of_the_kernel() {
        let counts = RequestCounts::default();
        for opcode in [
            opcode::LOOKUP,
            opcode::COPY_FILE_RANGE,
            opcode::BATCH_FORGET,
            opcode::LOOKUP,
            52,
            53,
            u32::MAX,
        ] {
            counts.count(opcode);
        }
        let counted: Vec<_> = counts.by_kind().collect();
        let expected = [
            ("other", 2),
            ("lookup", 2),
            ("batch_forget", 1),
            ("copy_file_range", 1),
            ("statx", 1),
        ];
        assert_eq!(counted, expected);
    }
}
