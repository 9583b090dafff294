//! Single operations, by one client and by two, beside a file system that does nothing.

use vellum_transport::Door;

use super::report::{Operation, Report, Scaling};
use super::{REQUESTS, Setting};
use crate::Result;
use crate::figure::round;
use crate::ops::{self, Through, pool_bytes};
use crate::side::BLOCK;

/// The name of an operation for `--only`. Two clients look up as one does without directories.
fn name_of(op: &str) -> &str {
    if op == "stat" { "stat_d1" } else { op }
}

/// The names of rows.
pub(super) fn names() -> Vec<&'static str> {
    let all = ops::requests(2);
    let parts = all.iter().flat_map(|workload| workload.parts());
    let single = parts.filter(|part| part.threads == 1);
    single.map(|part| part.op).collect()
}

/// Measures the wanted operations by every door.
pub(super) fn measure(setting: &Setting<'_>, report: &mut Report) -> Result<()> {
    let files = setting.options.files;
    let wants = |op: &str| setting.options.wants(REQUESTS, name_of(op));
    let mut workloads = ops::requests(files);
    workloads.retain(|workload| workload.parts().iter().any(|part| wants(part.op)));
    if workloads.is_empty() {
        return Ok(());
    }
    setting.add_steps(setting.doors.len() * workloads.len());
    for &door in setting.doors {
        let dir = setting.make_dir()?;
        let through = Through {
            pool: &dir.path().join("pool"),
            pool_bytes: pool_bytes(files, BLOCK as u64),
            files,
            rounds: setting.options.rounds,
            door: Some(door),
        };
        let rows = through.rows(&workloads, setting.interrupt, setting.progress)?;
        for row in rows.iter().filter(|row| wants(&row.op)) {
            match row.threads {
                1 => report.requests.push(Operation::of(row, door)),
                _ => report.scaling.extend(Scaling::of(row, door)),
            }
        }
    }
    Ok(())
}

impl Operation {
    fn of(row: &ops::Row, door: Door) -> Self {
        Self {
            op: row.op.clone(),
            door: door.name().into(),
            vellum_ns: row.vellum_ns,
            spread: row.spread,
            null_ns: row.peer_ns,
            null_spread: row.peer_spread,
            ratio: row.ratio,
        }
    }
}

impl Scaling {
    /// `None` if the operation was not measured with one client.
    fn of(row: &ops::Row, door: Door) -> Option<Self> {
        let (vellum, null) = (row.scaling?, row.peer_scaling?);
        Some(Self {
            op: row.op.clone(),
            directories: row.directories.clone()?,
            door: door.name().into(),
            vellum,
            null,
            ratio: round(vellum / null, 2),
        })
    }
}
