//! Loading the image of a logged pool: home, and the log's records over it.

use std::io;
use std::sync::Mutex;

use vellum_layout::{
    Anchor, BLOCK_BYTES, ChunkKind, ChunkWord, Geometry, LOG_LINE_BYTES, Record, Superblock,
    line_sum,
};
use vellum_media::{Disk, Memory, Persistent, Split};

use super::home::{Home, Piece};
use super::place::{Place, Replay};
use super::{Log, State};
use crate::disk_sites;
use crate::error::{self, Error, Result};

/// Bytes of home that are read at once.
const PIECE_BYTES: u64 = 1 << 20;

/// Makes the image of a pool what its last durable epoch left; gives the log, to go on with.
///
/// What an earlier process wrote, and never synced, may be in memory only; a sync that fails leaves copies in memory that the kernel
/// takes for written. So the log is synced, and then read from the medium, before anything is concluded from it. A checkpoint that was
/// under way is finished.
///
/// # Errors
/// No anchor is sound, home is not what its sum says, or what the disk said.
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
    let anchor = Place::read_anchor(disk, superblock)?;
    let part = error::Place::Part("log", superblock.log_at);
    let anchor = anchor.ok_or(Error::damaged("both anchors of the log", part))?;
    let place = Place::new(superblock, anchor.salt);
    let mut replay = place.replay(disk, (anchor.tail, anchor.tail_at));
    let mut records = Vec::new();
    while let Some(record) = replay.next()? {
        records.push(record);
    }
    let sum = load_home(pool, disk, (&geometry, superblock.hash_seed), &records)?;
    // What was loaded is in home or log already.
    pool.cut(&mut |_| {});
    let Replay {
        epoch,
        at,
        previous,
        used,
        ..
    } = replay;
    let mut home = Home {
        anchor: anchor.number,
        tail: (anchor.tail, anchor.tail_at),
        sum,
    };
    let finished = settle(disk, &place, &anchor, &mut home, read_only)?;
    if let Some(last) = records.last() {
        bring_back(pool, disk, (&place, last), read_only)?;
    }
    let state = State {
        epoch,
        at,
        previous,
        used: used - finished,
        counts: Default::default(),
    };
    Ok(Log::new(place, state, home))
}

impl Log {
    fn new(place: Place, state: State, home: Home) -> Self {
        Self {
            place,
            state: Mutex::new(state),
            home: Mutex::new(home),
            has_failed: Default::default(),
            is_over: Default::default(),
            answered: Default::default(),
            keeper: Default::default(),
        }
    }
}

/// Writes the blocks that ride in the last record where they belong: those of earlier ones are there. They count as written, so that they ride
/// in the next record, too, which voids these rides. Whoever only reads has them in memory.
fn bring_back<P: Persistent>(
    pool: &P,
    disk: &dyn Disk,
    (place, last): (&Place, &Record),
    read_only: bool,
) -> io::Result<()> {
    for (block, bytes) in last.rides() {
        let at = place.at_of_block(block);
        if read_only {
            pool.write(at, bytes);
        } else {
            disk.write(at, bytes)?;
        }
    }
    Ok(())
}

/// Compares home's sum with what the anchor says, and finishes the checkpoint that it tells of; gives the bytes of records that are not
/// needed any more.
fn settle(
    disk: &dyn Disk,
    place: &Place,
    anchor: &Anchor,
    home: &mut Home,
    read_only: bool,
) -> Result<u64> {
    let Some(point) = anchor.point() else {
        // Nobody knew the sum: it is what was found.
        return Ok(0);
    };
    let replay = place.replay(disk, home.tail);
    let judged = Piece::read(replay, point.target, u64::MAX)
        .and_then(|piece| Ok((piece.sum_with(disk, place, home.sum)?, piece)));
    let found = judged.as_ref().map(|&(sum, _)| sum).ok();
    if found != Some(point.target_sum) {
        let wrong = Error::damaged(
            "home is not what was written, its sum",
            error::Place::Part("home", 0),
        );
        if read_only {
            tracing::warn!(error = %wrong, "what can be read is shown");
            return Ok(0);
        }
        return Err(wrong);
    }
    let (_, piece) = judged?;
    if piece.records == 0 || read_only {
        return Ok(0);
    }
    home.finish(disk, place, &piece, point.target_sum)?;
    Ok(piece.bytes)
}

/// Reads what is in use of home, and lays the records over it; gives home's sum. Which chunks are in use the records know better than home.
fn load_home<P: Persistent>(
    pool: &P,
    disk: &dyn Disk,
    (geometry, seed): (&Geometry, u64),
    records: &[Record],
) -> Result<u64> {
    let mut sum = 0u64;
    let mut load = |(at, len)| {
        let more = load_range(pool, disk, (at, len), (geometry.state_at, seed))?;
        sum = sum.wrapping_add(more);
        Ok::<_, io::Error>(())
    };
    outside_chunks(geometry)
        .into_iter()
        .try_for_each(&mut load)?;
    lay_over(pool, records);
    chunks_in_use(pool, geometry).try_for_each(load)?;
    lay_over(pool, records);
    Ok(sum)
}

/// What of home is not in chunks of metadata, as offsets and lengths.
fn outside_chunks(geometry: &Geometry) -> [(u64, u64); 2] {
    let chunks_end = geometry.meta_at + geometry.meta_chunks * geometry.chunk_bytes;
    [
        (0, geometry.meta_at),
        (chunks_end, geometry.log_at - chunks_end),
    ]
}

/// The chunks that the chunk table says are in use; what is no word of a chunk is found out when the table is read.
fn chunks_in_use<P: Memory>(pool: &P, geometry: &Geometry) -> impl Iterator<Item = (u64, u64)> {
    let is_used = |&chunk: &u64| {
        let at = geometry.chunk_table_at + chunk * 8;
        let word = ChunkWord(pool.load(at, std::sync::atomic::Ordering::Acquire));
        word.decode(chunk) != Some((ChunkKind::Free, 0))
    };
    let used = (0..geometry.meta_chunks).filter(is_used);
    used.map(|chunk| {
        let at = geometry.meta_at + chunk * geometry.chunk_bytes;
        (at, geometry.chunk_bytes)
    })
}

fn lay_over<P: Persistent>(pool: &P, records: &[Record]) {
    let lines = records.iter().flat_map(Record::lines);
    lines.for_each(|line| pool.write(line.at, line.bytes));
}

/// Reads a part of home; gives its sum, to which lines count from `counted_from` on.
fn load_range<P: Persistent>(
    pool: &P,
    disk: &dyn Disk,
    range: (u64, u64),
    counted: (u64, u64),
) -> io::Result<u64> {
    let mut sum = 0u64;
    for_each_block(
        range,
        |at, block| disk.read(at, block),
        |at, block| {
            // Zeros are there already, and take no memory yet.
            pool.write(at, block);
            sum = sum.wrapping_add(sum_of(counted, at, block));
        },
    )?;
    Ok(sum)
}

/// Reads a range, and calls `each` with the blocks of it in which anything lies.
fn for_each_block(
    (at, len): (u64, u64),
    read: impl Fn(u64, &mut [u8]) -> io::Result<()>,
    mut each: impl FnMut(u64, &[u8]),
) -> io::Result<()> {
    let mut piece = vec![0; len.min(PIECE_BYTES) as usize];
    for done in (0..len).step_by(PIECE_BYTES as usize) {
        let piece = &mut piece[..(len - done).min(PIECE_BYTES) as usize];
        read(at + done, piece)?;
        let blocks = piece.chunks(BLOCK_BYTES as usize);
        for (block, number) in blocks.zip(0..) {
            if block.iter().any(|&byte| byte != 0) {
                each(at + done + number * BLOCK_BYTES, block);
            }
        }
    }
    Ok(())
}

/// What the lines of `block` add to the sum of home: those before `from`, superblocks, nothing.
fn sum_of((from, seed): (u64, u64), at: u64, block: &[u8]) -> u64 {
    let lines = block.chunks_exact(LOG_LINE_BYTES as usize);
    let lines = lines.zip((at..).step_by(LOG_LINE_BYTES as usize));
    let counted = lines.filter(|&(_, at)| at >= from);
    counted.fold(0, |sum, (line, at)| {
        sum.wrapping_add(line_sum(seed, at, line))
    })
}

/// The sum of a home that was just made.
pub(crate) fn sum_of_home<P: Memory>(pool: &P, geometry: &Geometry, seed: u64) -> io::Result<u64> {
    let mut sum = 0u64;
    let read = |at, out: &mut [u8]| {
        pool.read(at, out);
        Ok(())
    };
    let ranges = outside_chunks(geometry).into_iter();
    for range in ranges.chain(chunks_in_use(pool, geometry)) {
        for_each_block(range, read, |at, block| {
            sum = sum.wrapping_add(sum_of((geometry.state_at, seed), at, block));
        })?;
    }
    Ok(sum)
}
