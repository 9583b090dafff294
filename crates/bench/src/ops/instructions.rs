//! Instructions of an operation, counted by valgrind's callgrind. They do not depend on how busy
//! the machine is, so two builds can be compared anywhere.
//!
//! For each namespace this program runs itself under callgrind ([`run_counted`]), on a small pool
//! in memory. Callgrind counts only inside [`counted`] and writes a profile at each return from it.
//! Background work has threads of its own and does not count.

use std::fs::read_to_string;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
use vellum::{CreateOptions, NamespaceKind, PoolOptions};

use super::workload::{AnyWorkload, Laps};
use super::{OpsOptions, chosen};
use crate::Result;
use crate::error::{Error, doing};
use crate::library::Library;

/// Files in a directory while instructions are counted, which takes fifty times as long.
const FILES: usize = 500;
/// Size of the file that is read at random.
const LARGE_FILE_BYTES: u64 = 4 << 20;
const POOL_BYTES: u64 = 256 << 20;
/// The function inside which callgrind counts.
const COUNTED: &str = "vellum_bench::ops::instructions::counted";

/// The calls of [`counted`] so far.
static CALLS: AtomicU64 = AtomicU64::new(0);

/// The instructions of an operation by one thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Instructions {
    /// The operation.
    pub op: String,
    /// The namespace.
    pub namespace: String,
    /// Instructions an operation.
    pub instructions: f64,
}

/// What a counted process prints: a measured part of a workload.
#[derive(Serialize, Deserialize)]
struct Counted {
    op: String,
    /// The number of its profile.
    call: u64,
    operations: u64,
}

/// Runs one lap.
#[inline(never)]
pub(super) fn counted(run: &mut dyn FnMut() -> Result<()>) -> Result<()> {
    CALLS.fetch_add(1, Ordering::Relaxed);
    run()
}

/// The number of the newest profile, from 1.
pub(super) fn newest_call() -> u64 {
    CALLS.load(Ordering::Relaxed)
}

/// Counts the instructions of the chosen operations in every namespace.
pub(super) fn measure(options: &OpsOptions) -> Result<Vec<Instructions>> {
    let mut all = Vec::new();
    for namespace in NamespaceKind::ALL {
        all.extend(of_namespace(options, namespace)?);
    }
    Ok(all)
}

fn of_namespace(options: &OpsOptions, namespace: NamespaceKind) -> Result<Vec<Instructions>> {
    let dir = tempfile::tempdir_in(&options.pool_dir).map_err(doing("make a directory"))?;
    let profile = dir.path().join("profile");
    let program = std::env::current_exe().map_err(doing("find this program"))?;
    let mut command = Command::new("valgrind");
    command
        .args(["--quiet", "--tool=callgrind"])
        .arg(format!("--callgrind-out-file={}", profile.display()))
        .arg(format!("--toggle-collect={COUNTED}"))
        .arg(format!("--dump-after={COUNTED}"))
        .arg(program)
        .args(["ops", "--counted", namespace.name()])
        .arg(dir.path().join("pool"))
        .stdin(Stdio::null());
    if !options.only.is_empty() {
        command.arg("--only").args(&options.only);
    }
    let output = command
        .output()
        .map_err(doing("run valgrind, which counts instructions"))?;
    if !output.status.success() {
        return Err(Error::Tool {
            command: "valgrind --tool=callgrind".into(),
            said: String::from_utf8_lossy(&output.stderr).trim_end().into(),
        });
    }
    let parts: Vec<Counted> = serde_json::from_slice(&output.stdout)
        .map_err(|error| Error::Wrong(format!("what the counted process printed: {error}")))?;
    let wanted = parts.into_iter().filter(|part| options.wants(&part.op));
    let of_part = |part: Counted| {
        let total = total_of(&profile.with_extension(part.call.to_string()))?;
        let each = total as f64 / part.operations as f64;
        Ok(Instructions {
            op: part.op,
            namespace: namespace.name().into(),
            instructions: (each * 10.0).round() / 10.0,
        })
    };
    wanted.map(of_part).collect()
}

/// The instructions in a profile of callgrind.
fn total_of(profile: &Path) -> Result<u64> {
    let text = read_to_string(profile).map_err(doing(format!("read {}", profile.display())))?;
    let totals = text.lines().find_map(|line| line.strip_prefix("totals: "));
    totals
        .and_then(|total| total.trim().parse().ok())
        .ok_or_else(|| Error::Wrong(format!("{} has no totals", profile.display())))
}

/// The counted process: runs every chosen workload twice, and prints the parts of the second round.
pub(super) fn run_counted(options: &OpsOptions, namespace: &str, pool: &Path) -> Result<()> {
    let unknown = || Error::Option(format!("{namespace} is no namespace"));
    let mut kinds = NamespaceKind::ALL.into_iter();
    let namespace = kinds
        .find(|kind| kind.name() == namespace)
        .ok_or_else(unknown)?;
    let small = OpsOptions {
        files: FILES,
        large_file_bytes: LARGE_FILE_BYTES,
        ..options.clone()
    };
    let made = CreateOptions::new(POOL_BYTES).namespace(namespace);
    let mut library = Library::create_with(pool.to_owned(), &made, PoolOptions::new())?;
    let mut parts = Vec::new();
    for workload in chosen(&small) {
        run_parts(&*workload, &library, &mut parts)?;
    }
    library.close()?;
    crate::report::print(true, &parts, String::new())
}

fn run_parts(
    workload: &dyn AnyWorkload,
    library: &Library,
    parts: &mut Vec<Counted>,
) -> Result<()> {
    workload.fill_library(library)?;
    workload.round_library(library, &mut Laps::warm(workload.parts().len()))?;
    let mut laps = Laps::warm(workload.parts().len());
    workload.round_library(library, &mut laps)?;
    for (part, lap) in workload.parts().iter().zip(laps.iter()) {
        if let Some(lap) = lap
            && let Some(call) = lap.call
        {
            parts.push(Counted {
                op: part.op.into(),
                call,
                operations: lap.ops,
            });
        }
    }
    Ok(())
}
