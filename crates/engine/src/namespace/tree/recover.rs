//! Recovery of names: those that exist follow from each directory's log, up to its tail.

use vellum_layout::{Inode, LogExtentHead, LogPosition, NameRecord, SLOTS_PER_BLOCK};
use vellum_media::{Memories, Memory};
use zerocopy::IntoBytes;

use super::build::Told;
use crate::core::Core;
use crate::error::{Location, Result};
use crate::namespace::{Mender, SurveyedName, SurveyedNames};

/// The logs of a pool after a crash.
pub(super) struct Logs<'a, M: Memories>(pub(super) &'a Core<M>);

impl<M: Memories> SurveyedNames for Logs<'_, M> {
    fn read(
        &self,
        dir: u64,
        _inode: &Inode,
        each: &mut dyn FnMut(SurveyedName) -> Result<()>,
    ) -> Result<()> {
        let told = Told::read(self.0, dir, &mut Err)?;
        for came in told.there() {
            each(SurveyedName {
                entry: Location::Slot(came.place.slot()),
                target: Some((came.target, came.generation)),
                changed_ns: 0,
            })?;
        }
        each(SurveyedName {
            entry: Location::Inode(dir),
            target: None,
            changed_ns: told.latest_ns,
        })
    }

    fn holds_names(&self, dir: u64, _inode: &Inode) -> bool {
        let told = Told::read(self.0, dir, &mut |_| Ok(()));
        told.is_ok_and(|told| told.there().next().is_some())
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }

    fn settle(&self, dir: u64, inode: &Inode, mender: &dyn Mender) -> Result<()> {
        let owner = self.0.log_owner(dir);
        self.0.for_each_block(inode.root, owner, &mut |block| {
            mender.claim(block.slot, SLOTS_PER_BLOCK)
        })
    }

    fn finish(&self, _: &dyn Mender) -> Result<()> {
        Ok(())
    }
}

/// The checksum of the record at pool offset `at`, if it is sound.
pub(super) fn witnessed<M: Memories>(core: &Core<M>, at: u64) -> Option<u32> {
    let from_metadata = at.checked_sub(core.geometry.meta_at)?;
    let bytes_of_block = vellum_layout::BLOCK_BYTES;
    let slot = from_metadata / bytes_of_block * SLOTS_PER_BLOCK;
    let byte = from_metadata % bytes_of_block;
    let mut head = LogExtentHead::of_records(0, core.log_owner(0), 0);
    core.pool
        .read(core.slot_at(slot).ok()?, head.as_mut_bytes());
    core.is_inode_slot(head.owner).then_some(())?;
    let owner = core.log_owner(head.owner);
    let block = core.read_block(slot, owner).ok()?;
    let bytes = block.bytes.get(byte as usize..)?;
    let place = LogPosition::new(slot, byte);
    NameRecord::decode(bytes, place, owner).map(|(record, _)| record.checksum)
}
