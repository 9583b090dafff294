//! Pools that are exactly full, with mappings other than the default.

use super::{files, other_mappings};
use crate::workload::Workload;

/// Data blocks of the explorer's pools if their mapping has trees.
const BLOCKS_BESIDE_TREES: u64 = 184;
/// Data blocks if the mapping has a table.
const BLOCKS_BESIDE_TABLE: u64 = 176;

pub(super) fn workloads() -> Vec<Workload> {
    let of = |mapping: vellum::MappingKind| match mapping.has_trees() {
        true => files::full(mapping, BLOCKS_BESIDE_TREES),
        false => files::full(mapping, BLOCKS_BESIDE_TABLE),
    };
    other_mappings().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use vellum::sites;
    use vellum_layout::BLOCK_BYTES;

    use super::*;
    use crate::record::record;
    use crate::workload::Step;

    /// A block is claimed, and freed again when there is no node for the rest.
    #[test]
    fn nodes_run_out_half_way() {
        for workload in workloads() {
            if workload.name.ends_with("full-of-nodes-half-way") {
                let recorded = record(&workload).unwrap();
                let given_up = recorded.log[recorded.begin..]
                    .iter()
                    .any(|event| sites::name(event.site) == "write/limbo-durable");
                assert!(given_up, "{}", workload.name);
            }
        }
    }

    /// A step that finds the pool full succeeds if one data block more is free.
    #[test]
    fn one_block_more_would_be_enough() {
        let one_short = |workload: &Workload| workload.name.ends_with("full-one-short");
        for mut workload in workloads().into_iter().filter(one_short) {
            record(&workload).unwrap();
            let filled = workload.setup.last_mut().unwrap();
            let blocks = if workload.mapping.has_trees() {
                182
            } else {
                174
            };
            *filled = Step::parse(&format!("fallocate g 0 0 {}", blocks * BLOCK_BYTES));
            assert!(record(&workload).is_err(), "{}", workload.name);
        }
    }
}
