//! Instructions, counted by valgrind's callgrind. They do not depend on how busy the machine is, so
//! two builds, and two sizes, can be compared anywhere.
//!
//! This program runs itself under callgrind, which counts only inside [`counted`] and writes a
//! profile at each return from it. Background work has threads of its own and does not count.

use std::ffi::OsString;
use std::fs::read_to_string;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use serde::de::DeserializeOwned;

use crate::Result;
use crate::error::{Error, doing};

/// The function inside which callgrind counts.
const COUNTED: &str = "vellum_bench::callgrind::counted";

/// The calls of [`counted`] so far.
static CALLS: AtomicU64 = AtomicU64::new(0);

/// Runs what is counted.
#[inline(never)]
pub(crate) fn counted(run: &mut dyn FnMut() -> Result<()>) -> Result<()> {
    CALLS.fetch_add(1, Ordering::Relaxed);
    run()
}

/// The number of the newest profile, from 1.
pub(crate) fn newest_call() -> u64 {
    CALLS.load(Ordering::Relaxed)
}

/// The profiles that a counted process wrote.
pub(crate) struct Profiles {
    path: PathBuf,
}

impl Profiles {
    /// Runs this program with these arguments under callgrind. Returns what it printed, which is
    /// JSON, and its profiles, which lie in `dir`.
    pub(crate) fn of<T: DeserializeOwned>(
        dir: &Path,
        arguments: impl IntoIterator<Item = OsString>,
    ) -> Result<(T, Self)> {
        let path = dir.join("profile");
        let program = std::env::current_exe().map_err(doing("find this program"))?;
        let output = Command::new("valgrind")
            .args(["--quiet", "--tool=callgrind"])
            .arg(format!("--callgrind-out-file={}", path.display()))
            .arg(format!("--toggle-collect={COUNTED}"))
            .arg(format!("--dump-after={COUNTED}"))
            .arg(program)
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .map_err(doing("run valgrind, which counts instructions"))?;
        if !output.status.success() {
            return Err(Error::Tool {
                command: "valgrind --tool=callgrind".into(),
                said: String::from_utf8_lossy(&output.stderr).trim_end().into(),
            });
        }
        let said = serde_json::from_slice(&output.stdout)
            .map_err(|error| Error::Wrong(format!("what the counted process printed: {error}")))?;
        Ok((said, Self { path }))
    }

    /// The instructions of a call of [`counted`].
    pub(crate) fn total(&self, call: u64) -> Result<u64> {
        let profile = self.path.with_extension(call.to_string());
        let text =
            read_to_string(&profile).map_err(doing(format!("read {}", profile.display())))?;
        let totals = text.lines().find_map(|line| line.strip_prefix("totals: "));
        totals
            .and_then(|total| total.trim().parse().ok())
            .ok_or_else(|| Error::Wrong(format!("{} has no totals", profile.display())))
    }
}
