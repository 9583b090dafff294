//! Every flush, fence, and store past the cache in the engine is needed: left out, or with its step
//! in another order, it leads to a crash that shows something wrong; [`UNSHOWN`] tells of the others.

use vellum_crash::{MutateOptions, MutationProgress, mutate, workloads};

/// Needed where a process is killed in the middle of an operation: recovery would free an inode while
/// the death of its name could still be lost. No workload is killed there.
const UNSHOWN: [&str; 2] = [
    "omit:recover/inherited-durable",
    "swap:recover/inherited-durable",
];

#[test]
fn every_persistent_step_is_needed() {
    let report = mutate(
        &workloads(),
        &MutateOptions::default(),
        &MutationProgress::default(),
    );
    assert_eq!(report.sites, vellum::sites::ALL.len());
    assert!(report.mutants > report.sites, "steps were swapped, too");
    assert_eq!(report.caught + report.missed.len(), report.mutants);
    let missed: Vec<_> = report.missed.iter().map(|of| of.mutant.as_str()).collect();
    assert_eq!(missed, UNSHOWN, "a step that nobody would miss");
}
