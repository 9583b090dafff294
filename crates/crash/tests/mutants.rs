//! Every flush, fence, and store past the cache in the engine is needed: left out, or with its step
//! in another order, it leads to a crash that shows something wrong.

use vellum_crash::{MutateOptions, MutationProgress, mutate, workloads};

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
    assert_eq!(report.missed, [], "a step that nobody would miss");
}
