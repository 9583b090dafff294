//! The copies of a pool's superblock: rewriting them one after the other, and settling what a
//! rewrite that was cut short has left.

use vellum_layout::{BLOCK_BYTES, Superblock};
use vellum_media::PoolMemory;
use zerocopy::IntoBytes;

use crate::disk_sites;
use crate::error::{Error, Location, Result};

type Block = [u8; BLOCK_BYTES as usize];

/// Wipes the last copy of a superblock that a growth wrote at the new end before it was cut short:
/// it would be taken for the newest one if the front copies were lost later.
fn wipe_larger<P: PoolMemory>(pool: &P, superblock: &Superblock) -> Result<()> {
    let at = (pool.own_bytes() / BLOCK_BYTES).saturating_sub(1) * BLOCK_BYTES;
    if at < superblock.pool_bytes {
        return Ok(());
    }
    let found = Superblock::unseal(&read_copy(pool, at));
    let is_left = |found: &Superblock| {
        found.uuid == superblock.uuid
            && found.last_copy_at == at
            && found.sequence > superblock.sequence
    };
    if found.is_ok_and(|found| is_left(&found)) {
        pool.zero_through(disk_sites::PARTS_WIPE, at, BLOCK_BYTES);
        pool.fence(disk_sites::PARTS_WIPE_DURABLE);
        pool.sync()?;
    }
    Ok(())
}

/// Settles the table if a change of it was cut short, and nothing else is wrong with the copies of
/// the superblock.
///
/// # Errors
/// Fails if the medium fails.
pub fn settle_cut<P: PoolMemory>(pool: &P, superblock: &Superblock) -> Result<()> {
    wipe_larger(pool, superblock)?;
    let copies = copies(superblock).map(|at| read_copy(pool, at));
    let is_whole = |copy: &Block| copy == superblock.as_bytes();
    let is_cut = superblock.is_left_by_cut(copies.each_ref().map(|copy| &copy[..]));
    if !is_cut || copies.iter().all(is_whole) {
        return Ok(());
    }
    settle_table(pool, superblock)
}

/// Makes the valid table durable in all copies. This comes before anything that relies on the
/// table, and before the table is written: a change that a kill or a power cut interrupted may have
/// left one of the two front copies torn or old, and the other in caches only.
///
/// # Errors
/// Fails if the medium fails.
pub fn settle_table<P: PoolMemory>(pool: &P, superblock: &Superblock) -> Result<()> {
    pool.fence(disk_sites::PARTS_TABLE_DURABLE);
    pool.sync()?;
    let [first, second, last] = copies(superblock);
    for at in [second, first, last] {
        if !has_copy(pool, superblock, at) {
            write_copies(pool, superblock, &[at])?;
        }
    }
    Ok(())
}

/// Writes a superblock with another table over every copy. One of the front copies leads to the
/// last one, and at each instant one of them is sound if they were [settled](settle_table) before.
///
/// # Errors
/// Fails if the medium fails. The front copy stays as it was if the others could not be written.
pub fn write_table<P: PoolMemory>(pool: &P, superblock: &Superblock) -> Result<()> {
    write_copies(pool, superblock, &[superblock.last_copy_at, BLOCK_BYTES])?;
    write_copies(pool, superblock, &[0])
}

/// Writes the superblock of a pool that has grown over every copy, the last one at its new place.
/// The pool may be in use. At each instant one of the front copies is sound and leads to its last
/// one, if they were [settled](settle_table) before.
///
/// # Errors
/// Fails if the medium fails.
pub(crate) fn move_table<P: PoolMemory>(pool: &P, superblock: &Superblock) -> Result<()> {
    let [first, second, last] = copies(superblock);
    [last, second, first]
        .iter()
        .try_for_each(|&at| write_copies(pool, superblock, &[at]))
}

fn write_copies<P: PoolMemory>(pool: &P, superblock: &Superblock, places: &[u64]) -> Result<()> {
    match pool.disk() {
        None => {
            for &at in places {
                pool.write_through(disk_sites::PARTS_TABLE, at, superblock.as_bytes());
            }
            pool.fence(disk_sites::PARTS_TABLE_DURABLE);
        }
        Some(disk) => {
            // An image in memory keeps the superblock of the opening, which is never written home.
            let site = disk_sites::PARTS_TABLE_DURABLE;
            for &at in places {
                disk.write_durably(site, at, superblock.as_bytes())?;
            }
            disk.sync(site)?;
        }
    }
    pool.sync_caches()?;
    // A store to a lost line has no effect.
    let lost = places.iter().find(|&&at| !has_copy(pool, superblock, at));
    lost.map_or(Ok(()), |&at| Err(Error::Unreadable(Location::Offset(at))))
}

/// The offsets of the copies of a superblock.
fn copies(superblock: &Superblock) -> [u64; 3] {
    [0, BLOCK_BYTES, superblock.last_copy_at]
}

fn has_copy<P: PoolMemory>(pool: &P, superblock: &Superblock, at: u64) -> bool {
    read_copy(pool, at) == superblock.as_bytes()
}

/// The block at `at`; zeros if it cannot be read.
fn read_copy<P: PoolMemory>(pool: &P, at: u64) -> Block {
    let mut found = [0; BLOCK_BYTES as usize];
    match pool.disk() {
        None => pool.read(at, &mut found),
        Some(disk) => {
            if disk.read(at, &mut found).is_err() {
                found.fill(0);
            }
        }
    }
    found
}
