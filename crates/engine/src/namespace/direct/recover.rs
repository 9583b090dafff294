//! What recovery finds: every directory's log says which entries are its own.

use vellum_layout::{Entry, Inode, LifeWord, TargetWord};
use vellum_media::Memories;

use super::entry::EntryBuffer;
use crate::core::Core;
use crate::error::{Place, Result};
use crate::namespace::common::log::{log_extents, scan_log};
use crate::namespace::{SurveyedName, SurveyedNames};

/// Reads the logs.
pub(super) struct Logs<'a, M: Memories>(pub(super) &'a Core<M>);

impl<M: Memories> SurveyedNames for Logs<'_, M> {
    fn read(
        &self,
        dir: u64,
        inode: &Inode,
        each: &mut dyn FnMut(SurveyedName) -> Result<()>,
    ) -> Result<()> {
        let mut buffer = EntryBuffer::new();
        let mut last_cookie = 0;
        scan_log(self.0, dir, inode.root, &mut |logged| {
            let entry = logged.word.entry();
            let head = *buffer.read(self.0, entry, dir)?;
            let life = LifeWord(head.life);
            let target = (TargetWord(head.target), head.generation);
            logged.cookies.check(entry, head.cookie, last_cookie)?;
            last_cookie = head.cookie;
            each(SurveyedName {
                entry: Place::Slot(entry),
                target: life.is_alive().then_some(target),
                changed_ns: life.ns(),
            })
        })?;
        Ok(())
    }

    fn holds_names(&self, dir: u64, inode: &Inode) -> bool {
        let (mut holds, mut buffer) = (false, EntryBuffer::new());
        let _ = scan_log(self.0, dir, inode.root, &mut |logged| {
            if let Ok(head) = buffer.read(self.0, logged.word.entry(), dir) {
                holds |= LifeWord(head.life).is_alive();
            }
            Ok(())
        });
        holds
    }

    fn settle(
        &self,
        dir: u64,
        inode: &Inode,
        claim: &mut dyn FnMut(u64, u64) -> Result<()>,
    ) -> Result<()> {
        let mut buffer = EntryBuffer::new();
        scan_log(self.0, dir, inode.root, &mut |logged| {
            let entry = logged.word.entry();
            let head = buffer.read_unsealed(self.0, entry, dir)?;
            claim(entry, Entry::slots_for(usize::from(head.name_len)))
        })?;
        for (extent, head) in log_extents(self.0, dir, inode.root)? {
            claim(extent, head.kind().slots())?;
        }
        Ok(())
    }
}
