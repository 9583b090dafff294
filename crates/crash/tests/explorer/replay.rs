//! Crashes repeated by their identifiers.

use vellum_crash::{ReplayError, replay};

#[test]
fn a_crash_before_anything_happened_is_fine() {
    let crash = replay("x86:create-second@1:").unwrap();
    assert!(crash.moment.starts_with("0 of 1 "), "{crash}");
    assert_eq!(crash.wrong, [], "{crash}");
    assert_eq!(crash.image.len(), 1 << 20);
    assert!(crash.to_string().contains("nothing is wrong"));
}

#[test]
fn a_crash_of_recovery_is_fine() {
    let crash = replay("x86:rename@1:/1:").unwrap();
    assert!(crash.wrong.is_empty(), "{crash}");
}

#[test]
fn two_replays_leave_the_same_image() {
    let again = || replay("x86:append-first@12:1").unwrap().image;
    assert!(again() == again());
}

#[test]
fn crashes_of_full_pools_are_repeated() {
    for id in [
        "x86:extent-full-one-short@12:1",
        "x86:extent-cached-full-punched-and-allocated@12:1",
        "x86:radix-full-of-nodes-half-way@4:1",
        "eadr:cuckoo-full-recover@16:",
        "kill:level-full-cut-and-appended!30@13:1",
    ] {
        let again = || replay(id).unwrap_or_else(|error| panic!("{id}: {error:?}"));
        let crash = again();
        assert_eq!(crash.wrong, [], "{crash}");
        assert!(crash.image == again().image, "{id}");
    }
}

#[test]
fn identifiers_that_fit_nothing_say_so() {
    let error = |id: &str| replay(id).unwrap_err();
    assert!(matches!(error("rename"), ReplayError::NotAnId(_)));
    assert!(matches!(
        error("x86:nothing@1:"),
        ReplayError::NoWorkload(_)
    ));
    assert!(matches!(
        error("x86:rename@999999:"),
        ReplayError::NoSuchPoint(999_999)
    ));
    assert!(matches!(
        error("x86:rename@1:1x9"),
        ReplayError::NoSuchPoint(1)
    ));
}
