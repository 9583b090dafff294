//! Crashes of concurrent threads.

use vellum_crash::replay;

#[test]
fn a_schedule_makes_the_same_run_again() {
    let again = || replay("x86:threads/create+list-first!0>1,20>0@49:1").unwrap();
    let (first, second) = (again(), again());
    assert!(first.wrong.is_empty(), "{first}");
    assert!(first.moment.contains("readdir d in flight"), "{first}");
    let ends_in_creation =
        |event: &String| event.contains("thread 0: Store") && event.ends_with("<- crash");
    assert!(first.events.iter().any(ends_in_creation), "{first}");
    assert_eq!(first.to_string(), second.to_string());
    assert!(first.image == second.image);
}

/// The name of a reduced violation identifies the reduced workload.
#[test]
fn steps_are_left_out_by_name() {
    let whole = replay("lazy:threads/create+list-first!0>1,20>0@9999:");
    let whole = whole.unwrap_err().to_string();
    assert!(whole.contains("no such crash"), "{whole}");
    let alone = replay("x86:threads/create+list-first~1.0!@30:").unwrap();
    assert!(alone.wrong.is_empty(), "{alone}");
    assert!(!alone.moment.contains("thread 1"), "{alone}");
}
