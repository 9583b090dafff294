//! Every flush, every fence and every store past the cache in the engine is needed, and so is every
//! order that it declares between two stores to one line. Without it, or in the reversed order,
//! some crash shows a violation, and the crash's identifier repeats it. A short run tries a slice
//! of the sites.
//!
//! This is a program of its own, because it keeps all processors busy for minutes.

mod places;

use std::collections::BTreeSet;

use vellum::sites;
use vellum_crash::{
    Caught, MutateOptions, MutationProgress, MutationReport, mutate, replay, workloads,
};
use vellum_testing::{is_whole, slice};

/// A short run tries one in this many sites.
const ONE_IN: usize = 12;

#[test]
fn every_persistent_step_is_needed() {
    let report = mutate(&workloads(), &options(), &MutationProgress::default());
    println!("{} mutants in {:.0} s", report.mutants, report.seconds);
    assert_eq!(report.sites, sites::ALL.len());
    assert_eq!(report.caught + report.missed.len(), report.mutants);
    assert_eq!(report.missed, [], "a step that nobody would miss");
    assert!(report.mutants > report.sites / ONE_IN);
    if is_whole() {
        assert!(report.mutants > report.sites, "steps were swapped, too");
        every_place_is_reached(&report);
    }
    report.caught_by.iter().for_each(is_repeated);
}

/// All sites; in a short run a slice, drawn by their names and files.
fn options() -> MutateOptions {
    if is_whole() {
        return MutateOptions::default();
    }
    let sources = places::sources();
    let names = sites::ALL.iter().map(|&(_, name)| name);
    let chosen = slice(ONE_IN, names, |name| {
        // The constant is named like the site.
        let constant = name.to_uppercase().replace(['/', '-'], "_");
        let texts = sources.iter().map(|source| source.text.as_str());
        let about: String = texts.filter(|text| text.contains(&constant)).collect();
        format!("{name} {about}")
    });
    MutateOptions {
        only: chosen.iter().map(|name| format!("{name}:")).collect(),
        one_look_in: ONE_IN,
        ..MutateOptions::default()
    }
}

fn every_place_is_reached(report: &MutationReport) {
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
}

/// The identifier of the crash that caught a mutant repeats it.
fn is_repeated(caught: &Caught) {
    let Caught {
        mutant,
        id,
        violation,
    } = caught;
    let again = replay(id).unwrap_or_else(|error| panic!("{mutant}: {id}: {error}"));
    let mut found = again.wrong.iter();
    let is_it = |(kind, detail): &(_, _)| format!("{kind}: {detail}") == *violation;
    assert!(
        found.any(is_it),
        "{mutant} by {id}: {violation}, but {again}"
    );
}
