//! Threads on pools with a log, or with versions: commits that meet, and what goes on beside them.

use super::catalog::{thread_workloads, two};
use super::workload::ThreadWorkload;
use crate::workload::Ground;

/// Makes a file that they use.
const FILE: &str = "create f 644 -";

/// Every workload of threads. On pools with a log the steps are the disk's, and not the engine's.
pub fn all_thread_workloads() -> Vec<ThreadWorkload> {
    let [one, two, three] = Ground::ON_DISKS.map(logged);
    [thread_workloads(), one, two, three].concat()
}

fn logged(ground: Ground) -> Vec<ThreadWorkload> {
    let make = |name: &'static str| [name, "sync"];
    let [g, h, i] = ["create g 644 -", "create h 600 -", "create i 640 -"].map(make);
    let old = [FILE, "sync", "mkdir d 755", "sync", "append f 5 300"];
    let all = [
        two("sync+sync", &[FILE], &g, &h),
        two("sync+create", &[FILE], &g, &[h[0], "rename f g 0"]),
        two(
            "append-sync+link-sync",
            &[FILE],
            &["append f 5 5000", "sync"],
            &["link f g", "sync"],
        ),
        // Stores to the same pieces on both sides of a cut.
        two(
            "chmod-sync+chmod",
            &[FILE],
            &["chmod f 600", "sync"],
            &["chmod f 640"],
        ),
        ThreadWorkload::new("sync+sync+sync", &[FILE], &[&g, &h, &i]),
    ];
    let of_logs = [
        // The second writes what rides in the record of the first.
        two(
            "write-sync+append-sync",
            &[FILE, "append f 5 300"],
            &["write f 0 7 200", "sync"],
            &["append f 9 200", "sync"],
        ),
        two("sync+checkpoint", &old, &g, &["checkpoint"]),
        two(
            "sync+checkpoint-twice",
            &old,
            &["unlink f", "sync"],
            &["checkpoint", "create h 644 -", "checkpoint"],
        ),
    ];
    let own = of_logs.into_iter().filter(|_| ground.is_logged());
    let on = |workload: ThreadWorkload| workload.logged(ground);
    all.into_iter().chain(own).map(on).collect()
}

#[cfg(test)]
mod tests {
    use vellum::disk_sites;
    use vellum_media::{Event, Op};

    use super::*;
    use crate::Budget;
    use crate::threads::ready::Ready;
    use crate::threads::search::Found;

    /// Two calls of sync that one record answers, and nothing that a crash leaves is wrong.
    #[test]
    fn commits_that_meet_are_one() {
        let bounds = Budget::Short.options().schedules;
        let ready = Ready::new(logged(Ground::Logged).remove(0)).expect("the setup");
        let mut shared = 0;
        let mut look = |found: Found| {
            let is_record = |event: &&Event| {
                event.op == Op::Fence && event.site == disk_sites::LOG_RECORD_DURABLE
            };
            let records = found.run.log.iter().filter(is_record).count();
            assert!((1..=2).contains(&records), "{records} records");
            shared += usize::from(records == 1);
            true
        };
        let searched = ready.search().all(&bounds, 1, &mut look);
        searched.expect("runs");
        assert!(shared > 0);
    }
}
