//! Evicting names: directories that were not searched lately lose their trees.
//!
//! A directory stops being *indexed*, and its generation grows, before its tree is removed. A miss
//! counts only between two equal tokens (`index_token`). An operation that changes names locks
//! them, and checks whether they are known.

use std::sync::atomic::Ordering;

use vellum_media::{Memories, Memory};

use super::Tree;
use crate::core::cachelet::{Cachelet, field, flag};
use crate::core::slots::{Op, Tally};
use crate::core::{Core, header};
use crate::error::Result;
use crate::namespace::common::evict::{Remembered, is_cold_directory};

impl<M: Memories> Remembered<M> for Tree {
    fn is_scarce(&self, core: &Core<M>) -> bool {
        let used = core.arena.load(header::NODES_USED, Ordering::Relaxed);
        core.total(Tally::Names) > core.map.index_limit || used > core.node_count() / 8 * 7
    }

    fn forget(&self, core: &Core<M>, dirs: &[Cachelet], strict: bool) -> Result<Vec<u64>> {
        let cold = dirs
            .iter()
            .filter(|&&dir| is_cold_directory(core, dir, strict));
        Ok(cold.flat_map(|&dir| fell(&core.op_step(), dir)).collect())
    }

    fn free(&self, core: &Core<M>, forgotten: u64) {
        core.free_node(forgotten);
    }
}

/// Removes a directory's tree. Returns its nodes.
fn fell<M: Memories>(op: &Op<'_, M>, dir: Cachelet) -> Vec<u64> {
    let core = op.core;
    let _names = op.lock_names(dir);
    core.clear_flag(dir, flag::INDEXED);
    core.arena
        .fetch_add(core.cachelet_at(dir, field::FLAGS), flag::GENERATION);
    let nodes = core.radix_nodes(core.radix_top(dir));
    core.set(dir, field::TOP_NODE, 0);
    op.count(Tally::Names, -core.radix_names(&nodes));
    nodes
}

/// Removes a directory's tree, for schedules that include this.
#[cfg(test)]
pub(crate) fn forget_names<M: Memories>(core: &Core<M>, dir: Cachelet) {
    let nodes = fell(&core.op_begin().unwrap(), dir);
    core.wait_for_readers();
    nodes.into_iter().for_each(|node| core.free_node(node));
}
