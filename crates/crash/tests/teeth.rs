//! The explorer can fail: a flush or a fence that is left out of a recorded log is noticed.

use vellum_crash::{Options, Recorded, explore_log, record, workloads};
use vellum_media::{Event, Op};

/// What is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// A fence.
    Fence,
    /// A flush, or the flush in a store past the cache.
    Flush,
}

fn recorded(name: &str) -> Recorded {
    let catalog = workloads();
    let workload = catalog
        .iter()
        .find(|workload| workload.name == name)
        .expect("a workload");
    record(workload).expect("it runs")
}

/// The log without the flush or fence at `at`, or without the flushes in the stores past the cache
/// to one line of which that at `at` is the first; `None` if there is none.
fn without(log: &[Event], at: usize) -> Option<(Left, Vec<Event>)> {
    let past_cache = |event: &Event| match event.op {
        Op::Store {
            at,
            non_temporal: true,
            ..
        } => Some(at / 64),
        _ => None,
    };
    let mut log = log.to_vec();
    if let Some(line) = past_cache(&log[at]) {
        if at > 0 && past_cache(&log[at - 1]) == Some(line) {
            return None;
        }
        for event in log[at..].iter_mut() {
            if past_cache(event) != Some(line) {
                break;
            }
            if let Op::Store { non_temporal, .. } = &mut event.op {
                *non_temporal = false;
            }
        }
        return Some((Left::Flush, log));
    }
    let left = match log[at].op {
        Op::Fence => Left::Fence,
        Op::Flush { .. } => Left::Flush,
        _ => return None,
    };
    log.remove(at);
    Some((left, log))
}

/// Lines written past the cache of which one in so many is left unflushed, where they are data.
const DATA_STRIDE: usize = 8;

/// Leaves out each flush and fence of a workload in turn, of lines written past the cache one in
/// `stride`; gives how many, and those that nobody missed.
fn unnoticed(name: &str, stride: usize) -> (usize, Vec<(usize, Left, Op)>) {
    let recorded = recorded(name);
    let log = recorded.explored_log();
    let options = Options {
        states_per_point: 128,
        threads: 1,
        nested_recoveries: [0, 0],
        wrong_states: 1,
        ..Options::default()
    };
    let whole = explore_log(&recorded, log, &options);
    assert_eq!(whole.counts.violations, 0, "{name}: {whole:?}");
    let (mut tried, mut unnoticed) = (0, Vec::new());
    for at in 0..log.len() {
        let Some((left, broken)) = without(log, at) else {
            continue;
        };
        if matches!(log[at].op, Op::Store { at, .. } if at as usize / 64 % stride != stride - 1) {
            continue;
        }
        tried += 1;
        if explore_log(&recorded, &broken, &options).counts.violations == 0 {
            unnoticed.push((at, left, log[at].op));
        }
    }
    (tried, unnoticed)
}

/// Each flush and fence of a workload is missed, except `accepted`.
fn assert_teeth(name: &str, stride: usize, accepted: &[Left]) {
    let (tried, unnoticed) = unnoticed(name, stride);
    println!(
        "{name}: {tried} left out, {} not noticed: {unnoticed:x?}",
        unnoticed.len()
    );
    assert!(tried > 2 * accepted.len());
    let left: Vec<_> = unnoticed.iter().map(|&(_, left, _)| left).collect();
    assert_eq!(left, accepted, "{name}: {unnoticed:x?}");
}

#[test]
fn a_creation_misses_its_flushes_and_fences() {
    assert_teeth("create-second", 1, &[]);
    // The second line of a first extent holds nothing yet; its fence is for other threads, which
    // may claim words of it at once.
    assert_teeth("create-first-in-directory", 1, &[Left::Flush, Left::Fence]);
}

#[test]
fn a_rename_misses_its_flushes_and_fences() {
    // The record's retirement matters to later operations.
    assert_teeth("rename-over-file", 1, &[Left::Flush, Left::Fence]);
}

#[test]
fn an_operation_misses_the_retirement_of_the_record_before() {
    // Two words of the record lie in one line: the second takes the first along.
    assert_teeth("chmod-truncate", 1, &[Left::Flush]);
}

#[test]
fn an_append_misses_its_flushes_and_fences() {
    assert_teeth("append-aligned", DATA_STRIDE, &[]);
    let (tried, unnoticed) = unnoticed("append-to-next-block", DATA_STRIDE);
    // The rest of the block, beyond the end of file, is zeroed again when the size moves over it;
    // and where it begins, its line is flushed with the data and once more with the zeros.
    let beyond = |op: &Op| matches!(op, Op::Store { after: 0, .. });
    let others: Vec<_> = unnoticed.iter().filter(|(_, _, op)| !beyond(op)).collect();
    assert!(tried > 10 && others.len() <= 1, "{others:x?}");
}
