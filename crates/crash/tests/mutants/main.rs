//! Every flush, fence, and store past the cache in the engine is needed, and so is every order of two stores to one line that it
//! declares: left out, or turned round, it leads to a crash that shows something wrong, and whose identifier repeats it.
//!
//! A program of its own, because it keeps all processors busy for minutes.

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
    let all = report.caught_by.iter();
    let parts = all.filter_map(|caught| caught.mutant.split_once(':'));
    let mut reached = BTreeSet::new();
    for (how, step) in parts {
        let (site, place) = step.split_once(':').unwrap_or((step, "nowhere"));
        assert_eq!(how.starts_with("turn"), site.ends_with("-behind"), "{step}");
        assert!(
            !how.starts_with("late") || site.ends_with("-durable"),
            "{step}"
        );
        reached.insert(place.to_owned());
    }
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
