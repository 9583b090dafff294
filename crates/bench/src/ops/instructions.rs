//! Instructions of an operation, counted by callgrind on a small pool in memory, for each
//! namespace.

use std::ffi::OsString;
use std::path::Path;

use serde::{Deserialize, Serialize};
use vellum::{CreateOptions, NamespaceKind, PoolOptions};

use super::workload::{AnyWorkload, Laps};
use super::{OpsOptions, chosen};
use crate::Result;
use crate::callgrind::Profiles;
use crate::error::{Error, doing};
use crate::library::Library;

/// Files in a directory while instructions are counted, which takes fifty times as long.
const FILES: usize = 500;
/// Size of the file that is read at random.
const LARGE_FILE_BYTES: u64 = 4 << 20;
const POOL_BYTES: u64 = 256 << 20;

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
    let mut arguments: Vec<OsString> = ["ops", "--counted", namespace.name()]
        .map(OsString::from)
        .into();
    arguments.push(dir.path().join("pool").into());
    if !options.only.is_empty() {
        arguments.push("--only".into());
        arguments.extend(options.only.iter().map(OsString::from));
    }
    let (parts, profiles): (Vec<Counted>, _) = Profiles::of(dir.path(), arguments)?;
    let wanted = parts.into_iter().filter(|part| options.wants(&part.op));
    let of_part = |part: Counted| {
        let total = profiles.total(part.call)?;
        let each = total as f64 / part.operations as f64;
        Ok(Instructions {
            op: part.op,
            namespace: namespace.name().into(),
            instructions: (each * 10.0).round() / 10.0,
        })
    };
    wanted.map(of_part).collect()
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
