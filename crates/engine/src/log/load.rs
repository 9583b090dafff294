//! Loading the image of a logged pool: home, and the log's records over it.

use std::io;

use vellum_layout::{
    ANCHORS_BYTES, Anchor, BLOCK_BYTES, ChunkKind, ChunkWord, Geometry, Record, Superblock,
};
use vellum_media::{Disk, Persistent, Split};

use super::{Log, Place, State};
use crate::disk_sites;
use crate::error::{Error, Result};

/// Bytes of home that are read at once.
const PIECE_BYTES: u64 = 1 << 20;

/// Makes the image of a pool what its last durable epoch left; gives the log, to go on with.
///
/// What an earlier process wrote, and never synced, may be in memory only; a sync that fails leaves copies in memory that the kernel
/// takes for written. So the log is synced, and then read from the medium, before anything is concluded from it.
///
/// # Errors
/// No anchor is sound, home names impossible chunks, or what the disk said.
pub(crate) fn load<P: Persistent>(
    pool: &P,
    superblock: &Superblock,
    read_only: bool,
) -> Result<Log> {
    let geometry = superblock.geometry();
    pool.begin_image(Split {
        image_bytes: geometry.log_at,
        data_at: geometry.data_at,
    })?;
    let disk = pool
        .disk()
        .ok_or(Error::Unsupported("a logged pool on this medium"))?;
    if !read_only {
        disk.sync(disk_sites::LOG_INHERITED_DURABLE)?;
    }
    disk.forget(geometry.log_at, geometry.log_bytes);
    let anchor = read_anchor(disk, superblock)?;
    let place = Place::new(superblock, anchor.salt);
    let mut records = Vec::new();
    let tail = (anchor.tail, anchor.tail_at);
    let reached = place.replay(disk, tail, |record| records.push(record))?;
    load_home(pool, disk, &geometry, &records)?;
    // What was loaded is in home or log already.
    pool.cut(&mut |_| {});
    Ok(Log {
        place,
        state: State {
            epoch: reached.epoch,
            at: reached.at,
            previous: reached.previous,
            tail,
            used: reached.used,
            anchor: anchor.number,
            has_failed: false,
            is_over: false,
        }
        .into(),
    })
}

/// The anchor that counts.
fn read_anchor(disk: &dyn Disk, superblock: &Superblock) -> Result<Anchor> {
    let mut found: Option<Anchor> = None;
    for block in 0..ANCHORS_BYTES / BLOCK_BYTES {
        let mut bytes = [0; BLOCK_BYTES as usize];
        disk.read(superblock.log_at + block * BLOCK_BYTES, &mut bytes)?;
        let anchor = Anchor::unseal(&bytes, superblock.uuid)
            .filter(|anchor| is_possible(anchor, superblock));
        if let Some(anchor) = anchor
            && found
                .as_ref()
                .is_none_or(|other| other.number < anchor.number)
        {
            found = Some(anchor);
        }
    }
    let place = crate::error::Place::Part("log", superblock.log_at);
    found.ok_or(Error::damaged("both anchors of the log", place))
}

fn is_possible(anchor: &Anchor, superblock: &Superblock) -> bool {
    let area_bytes = Place::new(superblock, anchor.salt).area_bytes;
    anchor.tail > 0 && anchor.tail_at < area_bytes && anchor.tail_at.is_multiple_of(BLOCK_BYTES)
}

/// Reads what is in use of home, and lays the records over it. Which chunks are in use the records know better than home.
fn load_home<P: Persistent>(
    pool: &P,
    disk: &dyn Disk,
    geometry: &Geometry,
    records: &[Record],
) -> Result<()> {
    let chunks_end = geometry.meta_at + geometry.meta_chunks * geometry.chunk_bytes;
    load_range(pool, disk, 0, geometry.meta_at)?;
    load_range(pool, disk, chunks_end, geometry.log_at - chunks_end)?;
    lay_over(pool, records);
    for chunk in 0..geometry.meta_chunks {
        let at = geometry.chunk_table_at + chunk * 8;
        let word = ChunkWord(pool.load(at, std::sync::atomic::Ordering::Acquire));
        // What is no word of a chunk is found out when the table is read.
        if word.decode(chunk) != Some((ChunkKind::Free, 0)) {
            let at = geometry.meta_at + chunk * geometry.chunk_bytes;
            load_range(pool, disk, at, geometry.chunk_bytes)?;
        }
    }
    lay_over(pool, records);
    Ok(())
}

fn lay_over<P: Persistent>(pool: &P, records: &[Record]) {
    let lines = records.iter().flat_map(Record::lines);
    lines.for_each(|line| pool.write(line.at, line.bytes));
}

fn load_range<P: Persistent>(pool: &P, disk: &dyn Disk, at: u64, len: u64) -> io::Result<()> {
    let mut piece = vec![0; len.min(PIECE_BYTES) as usize];
    for done in (0..len).step_by(PIECE_BYTES as usize) {
        let piece = &mut piece[..(len - done).min(PIECE_BYTES) as usize];
        disk.read(at + done, piece)?;
        let blocks = piece.chunks(BLOCK_BYTES as usize);
        for (block, number) in blocks.zip(0..) {
            // Zeros are there already, and take no memory yet.
            if block.iter().any(|&byte| byte != 0) {
                pool.write(at + done + number * BLOCK_BYTES, block);
            }
        }
    }
    Ok(())
}
