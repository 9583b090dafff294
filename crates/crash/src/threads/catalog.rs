//! The workloads of concurrent threads.

use vellum::{MappingKind, NamespaceKind};

use super::workload::ThreadWorkload;
use crate::workload::PoolKind;
use crate::workloads::files::OfThreads;

/// Every workload of threads on persistent memory.
pub fn thread_workloads() -> Vec<ThreadWorkload> {
    let own = [
        OfThreads::Names,
        OfThreads::Following,
        OfThreads::Looking,
        OfThreads::Reopened,
        OfThreads::Bytes,
        OfThreads::Xattrs,
        OfThreads::Flags,
        OfThreads::Quotas,
        OfThreads::Background,
        OfThreads::Three,
        OfThreads::Tables,
    ];
    let mut all: Vec<_> = own.into_iter().flat_map(OfThreads::workloads).collect();
    all.extend(in_trees());
    all.extend(OfThreads::Journals.workloads());
    all.extend(kept_otherwise());
    all.extend(OfThreads::Areas.workloads());
    all
}

/// Every workload of threads. On logged pools the persistent steps are those of the disk instead of
/// the engine's.
pub fn all_thread_workloads() -> Vec<ThreadWorkload> {
    let [one, two, three] = PoolKind::ON_DISKS.map(on_disks);
    [thread_workloads(), one, two, three].concat()
}

/// Concurrent commits, and concurrent operations.
pub(super) fn on_disks(pool_kind: PoolKind) -> Vec<ThreadWorkload> {
    let mut all = OfThreads::Synced.workloads();
    if pool_kind.is_logged() {
        all.extend(OfThreads::Logged.workloads());
    }
    all.into_iter().map(|one| one.logged(pool_kind)).collect()
}

/// Calls on the bytes of one file whose blocks a tree finds; the two trees alternate.
fn in_trees() -> Vec<ThreadWorkload> {
    let trees = [MappingKind::Radix, MappingKind::Extent];
    let workloads = OfThreads::Bytes.workloads().into_iter();
    let workloads = workloads.zip(trees.into_iter().cycle());
    workloads.map(|(one, tree)| one.on(tree)).collect()
}

/// Calls on names in the other namespaces, and concurrent listings.
fn kept_otherwise() -> Vec<ThreadWorkload> {
    let others = NamespaceKind::ALL.into_iter();
    let others = others.filter(|namespace| *namespace != NamespaceKind::default());
    let of = |namespace| {
        let listings = OfThreads::Looking.workloads().into_iter();
        let listings = listings.filter(|one| one.name.contains("list"));
        let all = OfThreads::Names.workloads().into_iter().chain(listings);
        all.map(move |workload| workload.within(namespace))
    };
    others.flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use vellum_layout::JournalHead;

    use super::*;
    use crate::Budget;
    use crate::closed::geometry;
    use crate::explore::crash_points;
    use crate::id::Mode;
    use crate::run::Change;
    use crate::threads::ready::Ready;

    /// Thread slots whose journals hold a record.
    fn journals_in_use(image: &[u8]) -> usize {
        let geometry = geometry(image).expect("a pool");
        let heads = (0..geometry.thread_slots).map(|slot| {
            let at = (geometry.thread_slot_at(slot) + JournalHead::AT) as usize;
            u64::from_ne_bytes(image[at..at + 8].try_into().expect("a word"))
        });
        heads
            .filter(|&head| JournalHead(head) != JournalHead::RETIRED)
            .count()
    }

    #[test]
    fn every_journal_holds_a_record_at_once() {
        let bounds = Budget::Short.options().schedules;
        for workload in OfThreads::Journals.workloads() {
            let name = workload.name.clone();
            let slots = workload.thread_slots as usize;
            assert_eq!(workload.threads.len(), slots, "{name}");
            let ready = Ready::new(workload).expect("the setup");
            let base = ready.subject(Mode::X86, Change::None).base;
            let mut most = 0;
            let mut look = |found: crate::threads::search::Found| {
                let log = ready.log(Mode::X86, &found.run);
                let mut points = crash_points(&base, &log, Mode::X86);
                while let Some(point) = points.next_point() {
                    most = most.max(journals_in_use(point.durable()));
                }
                most < slots
            };
            let searched = ready.search().all(&bounds, 1, &mut look);
            searched.expect("runs");
            assert_eq!(most, slots, "{name}");
        }
    }
}
