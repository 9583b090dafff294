//! HashFS on a harness, its blocks placed as a test asks.

use std::sync::Arc;

use vellum_layout::GeometryRequest;

use super::{HashFs, WHOLE};
use crate::mapping::harness::Bench;

/// A core with HashFS.
pub(crate) type Harness = Bench<HashFs>;

/// How a harness's blocks are placed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placement {
    pub(crate) seed: u64,
    pub(crate) run_blocks: u32,
    pub(crate) layout_score: u16,
}

impl Default for Placement {
    fn default() -> Self {
        Self {
            seed: 0x5EED,
            run_blocks: 8,
            layout_score: WHOLE,
        }
    }
}

impl Harness {
    /// An empty pool.
    pub(crate) fn new(pool_bytes: u64) -> Self {
        Self::placed(pool_bytes, Placement::default())
    }

    /// An empty pool with runs of so many blocks.
    pub(crate) fn of_runs(pool_bytes: u64, run_blocks: u32) -> Self {
        let placement = Placement {
            run_blocks,
            ..Placement::default()
        };
        Self::placed(pool_bytes, placement)
    }

    /// An empty pool whose blocks are placed so.
    pub(crate) fn placed(pool_bytes: u64, placement: Placement) -> Self {
        let request = GeometryRequest {
            pool_bytes,
            run_blocks: Some(placement.run_blocks),
            ..GeometryRequest::default()
        };
        let score = placement.layout_score;
        let make = move |at, geometry: &_, seed| Box::new(HashFs::new(at, geometry, seed, score));
        Self::made(request, placement.seed, Arc::new(make))
    }
}
