//! Every flush, fence, and store past the cache in the engine is needed: left out, or with its step
//! in another order, it leads to a crash that shows something wrong, and whose identifier repeats it.

mod places;

use std::collections::BTreeSet;

use vellum_crash::{Caught, MutateOptions, MutationProgress, mutate, replay, workloads};

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
    let all = report.caught_by.iter().map(|caught| caught.mutant.as_str());
    let omitted = all.filter_map(|mutant| mutant.strip_prefix("omit:"));
    let reached: BTreeSet<_> = omitted
        .filter_map(|step| Some(step.split_once(':')?.1.to_owned()))
        .collect();
    assert_eq!(reached, places::in_source(), "workloads reach every place");
    assert_eq!(report.places, reached.len());
    for Caught {
        mutant,
        id,
        violation,
    } in &report.caught_by
    {
        let again = replay(id).unwrap_or_else(|error| panic!("{mutant}: {id}: {error}"));
        let mut found = again.wrong.iter();
        let is_it = |(kind, detail): &(_, _)| format!("{kind}: {detail}") == *violation;
        assert!(
            found.any(is_it),
            "{mutant} by {id}: {violation}, but {again}"
        );
    }
}
