//! The persistent steps of an operation by the names of their sites, as recorded.

use vellum::sites;
use vellum_media::{Event, Op, Site};

use crate::mkfs::makings;
use crate::record::record;

/// The sites that the first explored step of a workload goes through, in their order; neighbours that
/// are the same count once. `name:3` asks for the third step. `None`: there is no such workload, or
/// it cannot be recorded.
pub fn persistent_steps(name: &str) -> Option<Vec<&'static str>> {
    let (name, step) = match name.split_once(':') {
        Some((name, step)) => (name, step.parse().ok()?),
        None => (name, 1),
    };
    let mut makings = makings().ok()?.into_iter();
    if let Some(making) = makings.find(|making| making.name == name) {
        return Some(named(&making.log));
    }
    let recorded = record(&crate::find(name)?).ok()?;
    let mut parts = recorded
        .explored_log()
        .split(|event| matches!(event.op, Op::Marker(_)));
    parts.nth(step).map(named)
}

fn named(log: &[Event]) -> Vec<&'static str> {
    let mut sites: Vec<Site> = log.iter().map(|event| event.site).collect();
    sites.retain(|&site| site != Site::UNNAMED);
    sites.dedup();
    sites.into_iter().map(sites::name).collect()
}
