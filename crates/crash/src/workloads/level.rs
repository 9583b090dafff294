//! Tests that the setups of `level.txt` fill their pools as intended.

use vellum::sites;

use crate::record::record;

/// How often the explored steps of a workload reach a site.
fn times(name: &str, site: &str) -> usize {
    let mut all = super::files::level().into_iter();
    let workload = all.find(|workload| workload.name == name);
    let recorded = record(&workload.expect("a workload of that name")).unwrap();
    let after = recorded.log[recorded.begin..].iter();
    after
        .filter(|event| sites::name(event.site) == site)
        .count()
}

#[test]
fn fills_are_what_they_say() {
    assert_eq!(times("level-move", "level/copy"), 1);
    assert_eq!(times("level-grow-begin", "level/begin"), 1);
    assert_eq!(times("level-grow-on", "level/copy"), 4);
    assert_eq!(times("level-grow-end", "level/end"), 1);
    assert_eq!(times("level-grow-again", "level/begin"), 1);
}
