//! Recovery of names: the entries of a directory are those that its log names.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

use vellum_layout::Inode;
use vellum_media::Memories;

use super::Entries;
use crate::core::Core;
use crate::core::named::Named;
use crate::error::{Location, Result};
use crate::namespace::common::log::{log_extents, scan_log};
use crate::namespace::{Mender, SurveyedName, SurveyedNames};
use crate::sites;

/// The logs of a pool after a crash.
pub(super) struct Logs<'a, M: Memories, S> {
    core: &'a Core<M>,
    /// Entries that logs name, a bit for each slot. Empty if a log word alone makes an entry exist.
    named: Vec<AtomicU64>,
    entries: PhantomData<S>,
}

impl<'a, M: Memories, S: Entries<M>> Logs<'a, M, S> {
    pub(super) fn new(core: &'a Core<M>) -> Self {
        let words = if S::TELL_PATHS {
            core.geometry.meta_slots().div_ceil(64)
        } else {
            0
        };
        Self {
            core,
            named: (0..words).map(|_| AtomicU64::new(0)).collect(),
            entries: PhantomData,
        }
    }

    fn note_named(&self, entry: u64) {
        if let Some(word) = self.named.get(entry as usize / 64) {
            word.fetch_or(1 << (entry % 64), Ordering::Relaxed);
        }
    }

    fn is_named(&self, entry: u64) -> bool {
        let word = self.named.get(entry as usize / 64);
        word.is_some_and(|word| word.load(Ordering::Relaxed) >> (entry % 64) & 1 == 1)
    }
}

impl<M: Memories, S: Entries<M>> SurveyedNames for Logs<'_, M, S> {
    fn read(
        &self,
        dir: u64,
        inode: &Inode,
        each: &mut dyn FnMut(SurveyedName) -> Result<()>,
    ) -> Result<()> {
        let mut buffer = S::Buffer::default();
        let mut last_cookie = 0;
        scan_log(self.core, dir, inode.root, &mut |logged| {
            let entry = logged.word.entry();
            if !S::is_there(self.core, entry) {
                return Ok(());
            }
            let body = S::read(self.core, entry, dir, &mut buffer)?;
            logged.cookies.check(entry, body.cookie, last_cookie)?;
            last_cookie = body.cookie;
            let named = Named {
                entry: Location::Slot(entry),
                dir,
                target: body.target,
                generation: body.generation,
            };
            if body.life.is_alive() {
                S::check(self.core, &named, &buffer)?;
            }
            self.note_named(entry);
            each(SurveyedName {
                entry: named.entry,
                target: body
                    .life
                    .is_alive()
                    .then_some((named.target, named.generation)),
                changed_ns: body.life.ns(),
            })
        })?;
        Ok(())
    }

    fn holds_names(&self, dir: u64, inode: &Inode) -> bool {
        let (mut holds, mut buffer) = (false, S::Buffer::default());
        let _ = scan_log(self.core, dir, inode.root, &mut |logged| {
            let entry = logged.word.entry();
            if S::is_there(self.core, entry)
                && let Ok(body) = S::read(self.core, entry, dir, &mut buffer)
            {
                holds |= body.life.is_alive();
            }
            Ok(())
        });
        holds
    }

    fn check(&self) -> Result<()> {
        S::check_others(self.core, &|entry| self.is_named(entry))
    }

    fn settle(&self, dir: u64, inode: &Inode, mender: &dyn Mender) -> Result<()> {
        let mut buffer = S::Buffer::default();
        scan_log(self.core, dir, inode.root, &mut |logged| {
            let entry = logged.word.entry();
            if S::is_there(self.core, entry) {
                let body = S::read_unsealed(self.core, entry, dir, &mut buffer)?;
                mender.claim(entry, body.slots)
            } else {
                mender.store(sites::RECOVER_LOG_WORD, logged.at, 0);
                Ok(())
            }
        })?;
        for (extent, head) in log_extents(self.core, dir, inode.root)? {
            mender.claim(extent, head.kind().slots())?;
        }
        Ok(())
    }

    fn finish(&self, mender: &dyn Mender) -> Result<()> {
        S::settle_others(self.core, &|entry| self.is_named(entry), mender)
    }
}
