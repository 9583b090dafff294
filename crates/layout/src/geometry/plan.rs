//! Planning the layout of a new pool.

use super::{
    DataChunks, External, ExternalRequest, FRAGMENTATION_MAX, Geometry, GeometryError,
    GeometryRequest, METADATA_MAX_BYTES, POOL_MIN_BYTES, saved_state_plan,
};
use crate::{
    AddedSegments, AreaPlan, BLOCK_BYTES, Homes, IMAGE_MAX_BYTES, LINE_ENTRIES, NamespaceKind,
    RUN_BLOCKS, SLOT_BYTES, SPAN_LINES, THREAD_SLOT_BYTES, changed_bytes_for, log_bytes_for,
    undo_bytes_for,
};

impl Geometry {
    /// Plans the layout of a pool.
    ///
    /// # Errors
    /// Fails if the request cannot be met.
    pub fn plan(request: &GeometryRequest) -> Result<Self, GeometryError> {
        let sizes = Sizes::of(request)?;
        let runs = Runs::of(request)?;
        let front = Front::plan(&sizes);
        let parts = front.with_rest(request, &sizes)?;
        let Parts {
            pool_bytes,
            image_end,
            segment_blocks,
            ..
        } = parts;
        let behind_bytes = behind_bytes(request, image_end);
        let log = |is_there: bool| {
            if is_there {
                (image_end, behind_bytes)
            } else {
                (0, 0)
            }
        };
        let (log_at, log_bytes) = log(request.is_logged);
        let (undo_at, undo_bytes) = log(request.has_undo());
        Ok(Self {
            pool_bytes,
            chunk_bytes: sizes.chunk_bytes,
            thread_slots: sizes.thread_slots,
            state_at: front.state_at,
            slots_at: front.slots_at,
            chunk_table_at: front.chunk_table_at,
            live_map_at: front.live_map_at,
            meta_at: front.meta_at,
            meta_chunks: sizes.meta_chunks,
            data_chunks: front.data_chunks(&sizes, &parts),
            table_at: front.table_at,
            saved_state_at: parts.saved_state_at,
            log_at,
            log_bytes,
            undo_at,
            undo_bytes,
            data_at: parts.data_at,
            segment_blocks,
            added: AddedSegments::default(),
            last_copy_at: pool_bytes - BLOCK_BYTES,
            namespace: request.namespace,
            areas: match request.namespace {
                NamespaceKind::Adaptive => AreaPlan::usual(sizes.chunk_bytes),
                NamespaceKind::Direct | NamespaceKind::Tree => AreaPlan::default(),
            },
            mapping: request.mapping,
            run_blocks: runs.run_blocks,
            span_lines: runs.span_lines,
            fragmentation: request.fragmentation,
            external: request.external.map(|external| External {
                id: external.id,
                at: external.at,
                places_at: pool_bytes - 2 * BLOCK_BYTES,
            }),
            changed_at: if request.has_replica() {
                image_end + behind_bytes
            } else {
                0
            },
        })
    }
}

/// The size of the pool, and what follows from it.
struct Sizes {
    pool_bytes: u64,
    /// Bytes of the pool, or of its external data device: the sizes of the metadata and of their
    /// chunks are shares of this.
    sized_by: u64,
    chunk_bytes: u64,
    thread_slots: u32,
    meta_chunks: u64,
    /// Chunks for which the chunk table and the live map have room.
    chunks_max: u64,
}

impl Sizes {
    fn of(request: &GeometryRequest) -> Result<Self, GeometryError> {
        let pool_bytes = request.pool_bytes / BLOCK_BYTES * BLOCK_BYTES;
        let (asked, sized_by) = match request.external {
            Some(external) => (external.data_bytes, external.data_bytes),
            None => (request.pool_bytes, pool_bytes),
        };
        if sized_by < POOL_MIN_BYTES {
            return Err(GeometryError::TooSmall(asked));
        }
        let thread_slots = request.thread_slots.unwrap_or(match sized_by >> 20 {
            ..16 => 4,
            16..256 => 16,
            _ => 64,
        });
        if !(2..=1024).contains(&thread_slots) {
            return Err(GeometryError::ThreadSlots(thread_slots));
        }
        let chunk_bytes = (1 << (sized_by / 512).ilog2()).clamp(BLOCK_BYTES, 2 << 20);
        let meta_chunks = (metadata_bytes(request, sized_by)? / chunk_bytes).max(8);
        let is_fixed =
            request.has_fixed_metadata || request.external.is_some() || request.is_logged;
        let of_pool = match is_fixed {
            true => 0,
            false => pool_bytes.min(METADATA_MAX_BYTES) / chunk_bytes,
        };
        Ok(Self {
            pool_bytes,
            sized_by,
            chunk_bytes,
            thread_slots,
            meta_chunks,
            chunks_max: meta_chunks.max(of_pool),
        })
    }
}

/// Bytes of metadata that are requested, or are the default.
fn metadata_bytes(request: &GeometryRequest, sized_by: u64) -> Result<u64, GeometryError> {
    // A logged pool needs as much memory and as much redo log as it has metadata; an undo log
    // takes three times as much as the metadata.
    let is_dear = request.is_logged || request.has_undo();
    let share = match (sized_by < 64 << 20, is_dear) {
        (true, false) => 4,
        (true, true) => 8,
        (false, false) => 16,
        (false, true) => 64,
    };
    let default = (sized_by / share).min(METADATA_MAX_BYTES);
    match request.metadata_bytes.unwrap_or(default) {
        bytes if bytes > METADATA_MAX_BYTES => Err(GeometryError::MetadataTooLarge(bytes)),
        bytes => Ok(bytes),
    }
}

/// How HashFS places the blocks of a file.
struct Runs {
    run_blocks: u32,
    span_lines: u16,
}

impl Runs {
    fn of(request: &GeometryRequest) -> Result<Self, GeometryError> {
        let has_lines = request.mapping.has_home_lines();
        let run_blocks = request.run_blocks.unwrap_or(RUN_BLOCKS as u32);
        if !Homes::is_run(run_blocks) {
            return Err(GeometryError::RunBlocks(run_blocks));
        }
        let has_spans = has_lines && run_blocks > 1;
        let default = if has_spans { SPAN_LINES } else { 1 };
        let span_lines = request.span_lines.unwrap_or(default);
        if !Homes::is_span(span_lines, run_blocks) {
            return Err(GeometryError::SpanLines(span_lines));
        }
        let is_requested = request.run_blocks.is_some() || request.span_lines.is_some();
        if is_requested && !has_lines {
            return Err(GeometryError::NoRuns(request.mapping));
        }
        if request.fragmentation > FRAGMENTATION_MAX {
            return Err(GeometryError::Fragmentation(request.fragmentation));
        }
        Ok(Self {
            run_blocks,
            span_lines,
        })
    }
}

/// Everything in front of the saved allocator state and the data.
struct Front {
    state_at: u64,
    slots_at: u64,
    chunk_table_at: u64,
    live_map_at: u64,
    meta_at: u64,
    meta_bytes: u64,
    table_at: u64,
    /// The alignment of the data, as far as the pool's size allows it.
    large: u64,
}

/// Everything behind the front.
struct Parts {
    pool_bytes: u64,
    saved_state_at: u64,
    image_end: u64,
    data_at: u64,
    segment_blocks: u64,
}

fn block_up(at: u64) -> u64 {
    at.next_multiple_of(BLOCK_BYTES)
}

impl GeometryRequest {
    /// Whether an undo log keeps metadata and data consistent.
    fn has_undo(&self) -> bool {
        self.external.is_some() && !self.is_logged
    }

    /// Whether the external data device holds a metadata replica.
    fn has_replica(&self) -> bool {
        self.has_undo() && self.external.is_some_and(|external| external.has_replica)
    }
}

/// Bytes of the redo or undo log of metadata that end at `at`.
fn behind_bytes(request: &GeometryRequest, at: u64) -> u64 {
    if request.is_logged {
        log_bytes_for(at)
    } else if request.has_undo() {
        undo_bytes_for(at)
    } else {
        0
    }
}

impl Front {
    fn plan(sizes: &Sizes) -> Self {
        let Sizes {
            chunk_bytes,
            thread_slots,
            meta_chunks,
            chunks_max,
            ..
        } = *sizes;
        let meta_bytes = meta_chunks * chunk_bytes;
        let state_at = 2 * BLOCK_BYTES;
        let slots_at = state_at + BLOCK_BYTES;
        let chunk_table_at = block_up(slots_at + u64::from(thread_slots) * THREAD_SLOT_BYTES);
        let live_map_at = block_up(chunk_table_at + chunks_max * 8);
        let live_map_bytes = chunks_max * chunk_bytes / SLOT_BYTES / 8;
        let meta_at = block_up(live_map_at + live_map_bytes).next_multiple_of(chunk_bytes);
        Self {
            state_at,
            slots_at,
            chunk_table_at,
            live_map_at,
            meta_at,
            meta_bytes,
            table_at: meta_at + meta_bytes,
            large: chunk_bytes,
        }
    }

    /// The chunks in data space, as far as the chunk table has words for them.
    fn data_chunks(&self, sizes: &Sizes, parts: &Parts) -> DataChunks {
        let data_end = parts.data_at + parts.segment_blocks * BLOCK_BYTES;
        let first = (parts.data_at - self.meta_at).div_ceil(sizes.chunk_bytes);
        let end = (data_end - self.meta_at) / sizes.chunk_bytes;
        match end.min(sizes.chunks_max).checked_sub(first) {
            Some(count @ 1..) => DataChunks { first, count },
            _ => DataChunks::default(),
        }
    }

    /// Plans everything behind the front.
    fn with_rest(&self, request: &GeometryRequest, sizes: &Sizes) -> Result<Parts, GeometryError> {
        let parts = match request.external {
            Some(external) => self.with_external_data(request, sizes.pool_bytes, external)?,
            None => self.with_data(request, sizes.pool_bytes)?,
        };
        if parts.segment_blocks < 2 * LINE_ENTRIES {
            return Err(GeometryError::NoRoomForData {
                metadata_bytes: self.meta_bytes,
                pool_bytes: parts.pool_bytes,
            });
        }
        if parts.segment_blocks > 1 << 30 {
            return Err(GeometryError::SegmentTooLarge(sizes.sized_by));
        }
        if request.is_logged && parts.image_end > IMAGE_MAX_BYTES {
            return Err(GeometryError::MetadataTooLarge(self.meta_bytes));
        }
        Ok(parts)
    }

    /// Returns the offsets of the saved allocator state of so many blocks, of the end of the
    /// metadata, and of the redo or undo log.
    fn behind(&self, request: &GeometryRequest, segment_blocks: u64) -> (u64, u64, u64) {
        let table_bytes = request.mapping.table_bytes(segment_blocks);
        let at = block_up(self.table_at + table_bytes);
        let saved_state = saved_state_plan(request.mapping, at, segment_blocks);
        let image_end = block_up(saved_state.at + saved_state.bytes());
        (
            saved_state.at,
            image_end,
            image_end + behind_bytes(request, image_end),
        )
    }

    /// Plans data blocks for the rest of the pool.
    fn with_data(
        &self,
        request: &GeometryRequest,
        pool_bytes: u64,
    ) -> Result<Parts, GeometryError> {
        let no_room = GeometryError::NoRoomForData {
            metadata_bytes: self.meta_bytes,
            pool_bytes,
        };
        let large = self.large.min(pool_bytes / 64).max(BLOCK_BYTES);
        let large = 1 << large.ilog2();
        let last_copy_at = pool_bytes - BLOCK_BYTES;
        let room = last_copy_at
            .checked_sub(self.table_at + behind_bytes(request, self.table_at))
            .ok_or(no_room)?;
        // The bytes that a block takes in a mapping table, and in the saved allocator state of
        // HashFS.
        let saved = if request.mapping.has_home_lines() {
            5
        } else {
            0
        };
        let beside = request.mapping.table_bytes(1 << 20) / (1 << 20) + saved;
        let beside = if request.is_logged {
            2 * beside
        } else {
            beside
        };
        let mut segment_blocks = room / (BLOCK_BYTES + beside) / LINE_ENTRIES * LINE_ENTRIES;
        loop {
            let (saved_state_at, image_end, end) = self.behind(request, segment_blocks);
            let data_at = end.next_multiple_of(large);
            if data_at + segment_blocks * BLOCK_BYTES <= last_copy_at {
                return Ok(Parts {
                    pool_bytes,
                    saved_state_at,
                    image_end,
                    data_at,
                    segment_blocks,
                });
            }
            segment_blocks = segment_blocks.checked_sub(LINE_ENTRIES).ok_or(no_room)?;
        }
    }

    /// Plans a pool with an external data device. A pool without a size gets the size that it
    /// needs.
    fn with_external_data(
        &self,
        request: &GeometryRequest,
        pool_bytes: u64,
        external: ExternalRequest,
    ) -> Result<Parts, GeometryError> {
        let segment_blocks = external.data_bytes / BLOCK_BYTES / LINE_ENTRIES * LINE_ENTRIES;
        if segment_blocks > 1 << 30 {
            return Err(GeometryError::SegmentTooLarge(external.data_bytes));
        }
        let (saved_state_at, image_end, end) = self.behind(request, segment_blocks);
        let changed_bytes = if request.has_replica() {
            changed_bytes_for(image_end)
        } else {
            0
        };
        let needed_bytes = end + changed_bytes + 2 * BLOCK_BYTES;
        let pool_bytes = match request.pool_bytes {
            0 => needed_bytes,
            _ => pool_bytes,
        };
        if needed_bytes > pool_bytes {
            return Err(GeometryError::NoRoomForMetadata {
                metadata_bytes: self.meta_bytes,
                pool_bytes,
                needed_bytes,
            });
        }
        Ok(Parts {
            pool_bytes,
            saved_state_at,
            image_end,
            data_at: pool_bytes,
            segment_blocks,
        })
    }
}
