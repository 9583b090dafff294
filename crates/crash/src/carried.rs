//! What a data medium alone has, by the copy of the metadata that it carries.

use std::sync::Arc;

use vellum::experiments::made_of_copy;
use vellum::{Error, MediumError};
use vellum_layout::{BLOCK_BYTES, CARRIED_HEAD_BYTES, CarriedHead, CarriedPlan, Superblock};
use vellum_media::SimLogged;

use crate::memories::{Explored, Shared};
use crate::session::{CLOCK_AFTER, Result, mount};
use crate::tree::{Tree, read_tree};

/// The superblock of a pool whose data medium carries a copy.
fn carrying(image: &[u8]) -> Option<(Superblock, CarriedPlan)> {
    let superblock = Superblock::unseal(image.get(..BLOCK_BYTES as usize)?).ok()?;
    let plan = CarriedPlan::of(&superblock.geometry())?;
    Some((superblock, plan))
}

/// Whether the data medium in this image carries a copy of the metadata.
pub(crate) fn carries(image: &[u8]) -> bool {
    carrying(image).is_some()
}

/// Whether it carries one that says that it is whole.
pub(crate) fn carries_whole(image: &[u8]) -> bool {
    let head = carrying(image).and_then(|(superblock, plan)| {
        let head = image.get(plan.at as usize..)?.get(..CARRIED_HEAD_BYTES)?;
        CarriedHead::unseal(head, superblock.uuid)
    });
    head.is_some_and(|head| head.is_whole())
}

/// The tree of a pool that is made of what the data medium of `pool` carries; `None`: it carries nothing, or something stale.
pub(crate) fn carried_tree(pool: &Shared, cache_entries: u64) -> Option<Result<Tree>> {
    let image = pool.0.image();
    if !carries_whole(&image) {
        return None;
    }
    let (superblock, _) = carrying(&image)?;
    let mut other = image;
    // Whatever lies where the pool is made.
    other[..superblock.pool_bytes as usize].fill(0xEE);
    let other = Shared::of(other);
    let from = SimLogged::new(Arc::clone(&pool.0), None);
    let read = || {
        made_of_copy(&from, &superblock, &*other.0)?;
        read_tree(&mount::<Explored>(&other, cache_entries, CLOCK_AFTER)?)
    };
    match read() {
        Err(Error::Medium(MediumError::Stale { .. })) => None,
        read => Some(read),
    }
}
