//! HashFS in a test harness, with a chosen placement of blocks.

use std::sync::Arc;
use vellum_layout::Geometry;

use vellum_layout::{GeometryRequest, SPAN_LINES};

use super::{HashFs, WHOLE};
use crate::mapping::harness::Bench;

/// A core with HashFS.
pub(crate) type Harness = Bench<HashFs>;

/// The placement of a harness's blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placement {
    pub(crate) seed: u64,
    pub(crate) run_blocks: u32,
    pub(crate) span_lines: u16,
    pub(crate) layout_score: u16,
}

impl Placement {
    /// Runs of 8, each with a home line of its own choice.
    pub(crate) const APART: Self = Self {
        span_lines: 1,
        ..Self::USUAL
    };
    /// Blocks one by one, as in the paper.
    pub(crate) const SINGLE: Self = Self {
        run_blocks: 1,
        ..Self::APART
    };
    /// The default of pools.
    pub(crate) const USUAL: Self = Self {
        seed: 0x5EED,
        run_blocks: 8,
        span_lines: SPAN_LINES,
        layout_score: WHOLE,
    };
}

impl Harness {
    /// An empty pool.
    pub(crate) fn new(pool_bytes: u64) -> Self {
        Self::placed(pool_bytes, Placement::USUAL)
    }

    /// An empty pool with this placement.
    pub(crate) fn placed(pool_bytes: u64, placement: Placement) -> Self {
        let request = GeometryRequest {
            pool_bytes,
            run_blocks: Some(placement.run_blocks),
            span_lines: Some(placement.span_lines),
            ..GeometryRequest::default()
        };
        let score = placement.layout_score;
        let make = move |at, geometry: &Geometry, seed| {
            Box::new(HashFs::new(at, (geometry, geometry.blocks()), seed, score))
        };
        Self::made(request, placement.seed, Arc::new(make))
    }
}
