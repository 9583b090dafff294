//! Concurrent commits of threads on logged pools.

use vellum::disk_sites;
use vellum_media::{Event, Op};

use super::catalog::on_disks;
use crate::Budget;
use crate::threads::ready::Ready;
use crate::threads::search::Found;
use crate::workload::PoolKind;

/// One record can answer two calls of sync, and no crash shows a violation.
#[test]
fn commits_that_meet_are_one() {
    let bounds = Budget::Short.options().schedules;
    let ready = Ready::new(on_disks(PoolKind::Logged).remove(0)).expect("the setup");
    let mut shared = 0;
    let mut look = |found: Found| {
        let is_record =
            |event: &&Event| event.op == Op::Fence && event.site == disk_sites::LOG_RECORD_DURABLE;
        let records = found.run.log.iter().filter(is_record).count();
        assert!((1..=2).contains(&records), "{records} records");
        shared += usize::from(records == 1);
        true
    };
    let searched = ready.search().all(&bounds, 1, &mut look);
    searched.expect("runs");
    assert!(shared > 0);
}
