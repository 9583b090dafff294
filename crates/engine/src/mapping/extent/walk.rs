//! Finding extents: from the inode's root word down, without a lock.
//!
//! A reader may meet an entry that is being changed. It loads key, body, the next key and the key
//! again: if both loads of the key agree, the body belongs to it. If entries change while a reader
//! goes from one to the next, its result still holds for the time before or after the change,
//! because a writer first stores an extent's new place, and then clears the old one.
//! old.

use std::sync::atomic::Ordering;

use vellum_layout::{
    EXTENT_ENTRIES, ExtentBody, ExtentKey, ExtentKind, ExtentNodeHead, ExtentRoot, MapState,
};
use vellum_media::{Memories, Memory, count};

use super::node::{Extent, body_at, floor, key_at};
use super::pages::Pages;
use super::{Tree, damaged};
use crate::core::slots::{Op, field};
use crate::error::Result;
use crate::mapping::Seek;

/// One more than the highest logical block.
pub(super) const LOGICAL_END: u64 = 1 << 32;

/// The end of a walk towards a logical block.
enum End<P> {
    /// The extent in the inode's root word.
    Root(Extent),
    /// Nothing is mapped before `until`.
    Hole { until: u64 },
    /// A leaf, which covers blocks before `until`.
    Leaf { page: P, until: u64 },
}

/// The end of a scan of a leaf.
enum Scan {
    /// The visitor wants no more.
    Enough,
    /// The leaf's end was reached.
    Through,
    /// The page was reused for another node; blocks from here on were not visited.
    Lost(u64),
}

/// An entry and the next key.
struct Seen {
    key: ExtentKey,
    body: ExtentBody,
    next: ExtentKey,
}

impl<M: Memories, P: Pages> Tree<'_, M, P> {
    /// Calls `visit` with the part of each extent in `[first, end)`, in order, until it returns
    /// false.
    pub(super) fn each(
        &self,
        op: &Op<'_, M>,
        first: u64,
        end: u64,
        visit: &mut dyn FnMut(Extent) -> bool,
    ) -> Result<()> {
        let mut at = first;
        while at < end {
            at = match self.descend(op, at)? {
                End::Root(extent) => {
                    if let Some(part) = extent.part(at, end) {
                        visit(part);
                    }
                    end
                }
                End::Hole { until } => until,
                End::Leaf { page, until } => {
                    match self.scan(page, at, end.min(until), until, visit)? {
                        Scan::Enough => end,
                        Scan::Through => until,
                        Scan::Lost(next) => next,
                    }
                }
            };
        }
        Ok(())
    }

    /// The first block of `[at, end)` that one walk finds to be data, or a hole. In a damaged tree
    /// with keys out of order, a walk that passes other blocks may differ from a lookup, which
    /// begins at the block itself. So the answer is final only if it is `at`; otherwise the caller
    /// asks again from there.
    pub(super) fn seek_once(
        &self,
        op: &Op<'_, M>,
        at: u64,
        end: u64,
        what: Seek,
    ) -> Result<Option<u64>> {
        let (mut data, mut hole) = (None, at);
        self.each(op, at, end, &mut |extent| {
            let holds_bytes = extent.state == MapState::Mapped;
            match what {
                Seek::Data => {
                    data = holds_bytes.then_some(extent.first());
                    data.is_none()
                }
                Seek::Hole => {
                    let goes_on = holds_bytes && extent.first() == hole;
                    if goes_on {
                        hole = extent.end();
                    }
                    goes_on
                }
            }
        })?;
        Ok(match what {
            Seek::Data => data,
            Seek::Hole => (hole < end).then_some(hole),
        })
    }

    fn descend(&self, op: &Op<'_, M>, at: u64) -> Result<End<P::Page>> {
        if let Some((node, until)) = self.cursor(op, at) {
            let page = self.map.pages.open(op, &self.map.nodes, node)?;
            return Ok(End::Leaf { page, until });
        }
        let changes = self.changes();
        count::probe();
        let (mut node, mut level) = match self.root()? {
            ExtentRoot::Empty => return Ok(End::Hole { until: LOGICAL_END }),
            ExtentRoot::Extent { block, len, state } => {
                let extent = Extent {
                    logical: 0,
                    len,
                    block,
                    state,
                };
                return self.inside_segment(extent).map(End::Root);
            }
            ExtentRoot::Node { node, level } => (node, level),
        };
        let (mut low, mut until) = (0, LOGICAL_END);
        loop {
            count::probe();
            let page = self.map.pages.open(op, &self.map.nodes, node)?;
            self.check_identity(page, level)?;
            if level == 0 {
                self.remember(op, node, low, until, changes);
                return Ok(End::Leaf { page, until });
            }
            let seen = self.locate(page, at).map(|(_, seen)| seen);
            if !self.map.pages.holds(self.core, page) {
                continue;
            }
            // A node's first key is never above the block that is searched for in it.
            let seen = seen.ok_or_else(|| damaged(self.id))?;
            self.check_keys(&seen)?;
            if seen.key.len() != level {
                return Err(damaged(self.id));
            }
            low = seen.key.logical();
            if seen.next.is_used() {
                until = until.min(seen.next.logical().into());
            }
            if !seen.key.is_valid() {
                return Ok(End::Hole { until });
            }
            if !seen.body.is_sound(self.seal) || seen.body.kind() != Some(ExtentKind::Node) {
                return Err(damaged(self.id));
            }
            node = seen.body.place();
            level -= 1;
        }
    }

    fn check_identity(&self, page: P::Page, level: u32) -> Result<()> {
        let word = self.map.pages.word(self.core, page, 0);
        let is_ours = word == ExtentNodeHead::identity(self.id, level);
        if is_ours || !self.map.pages.holds(self.core, page) {
            Ok(())
        } else {
            Err(damaged(self.id))
        }
    }

    fn key_on(&self, page: P::Page, index: usize) -> ExtentKey {
        if index >= EXTENT_ENTRIES {
            return ExtentKey(0);
        }
        ExtentKey(self.map.pages.word(self.core, page, key_at(index)))
    }

    fn see(&self, page: P::Page, index: usize) -> Seen {
        loop {
            let key = self.key_on(page, index);
            let body = self.map.pages.word(self.core, page, body_at(index));
            let next = self.key_on(page, index + 1);
            if self.key_on(page, index) == key {
                let body = ExtentBody(body);
                return Seen { key, body, next };
            }
        }
    }

    /// The last entry whose key is not above `at`.
    fn locate(&self, page: P::Page, at: u64) -> Option<(usize, Seen)> {
        loop {
            let load = |offset| self.map.pages.word(self.core, page, offset);
            let index = floor(load, at)?;
            let seen = self.see(page, index);
            let goes_past = |key: ExtentKey| !key.is_used() || u64::from(key.logical()) > at;
            if !goes_past(seen.key) && goes_past(seen.next) {
                return Some((index, seen));
            }
            if !self.map.pages.holds(self.core, page) {
                return None;
            }
        }
    }

    /// Fails if an entry's key, or the next key, is not sound. If a damaged key misleads a search,
    /// it is one of the two keys between which the search ends.
    fn check_keys(&self, seen: &Seen) -> Result<()> {
        let is_sound = |key: ExtentKey| !key.is_used() || key.is_sound(self.seal);
        if is_sound(seen.key) && is_sound(seen.next) {
            Ok(())
        } else {
            Err(damaged(self.id))
        }
    }

    /// Visits the parts of a leaf's extents in `[at, end)`. The leaf covers blocks before `until`.
    fn scan(
        &self,
        page: P::Page,
        mut at: u64,
        end: u64,
        until: u64,
        visit: &mut dyn FnMut(Extent) -> bool,
    ) -> Result<Scan> {
        let located = self.locate(page, at);
        let (mut index, mut seen) = match located {
            Some(located) => located,
            None => (0, self.see(page, 0)),
        };
        loop {
            if !self.map.pages.holds(self.core, page) {
                return Ok(Scan::Lost(at));
            }
            self.check_keys(&seen)?;
            if !seen.key.is_used() || u64::from(seen.key.logical()) >= end {
                return Ok(Scan::Through);
            }
            if let Some(extent) = self.extent(&seen, until)?
                && let Some(part) = extent.part(at, end)
            {
                at = part.end();
                if !visit(part) {
                    return Ok(Scan::Enough);
                }
            }
            index += 1;
            if index == EXTENT_ENTRIES {
                return Ok(Scan::Through);
            }
            seen = self.see(page, index);
        }
    }

    /// The extent of an entry with sound keys, up to where the next entry begins. `None` if the
    /// entry is not valid.
    fn extent(&self, seen: &Seen, until: u64) -> Result<Option<Extent>> {
        if !seen.key.is_valid() {
            return Ok(None);
        }
        let extent = Extent::of(seen.key, seen.body).filter(|_| seen.body.is_sound(self.seal));
        let extent = extent.ok_or_else(|| damaged(self.id))?;
        let next = if seen.next.is_used() {
            u64::from(seen.next.logical())
        } else {
            LOGICAL_END
        };
        let part = extent.part(0, next.min(until));
        part.map(|part| self.inside_segment(part)).transpose()
    }

    /// Fails if an extent contains blocks that do not exist.
    fn inside_segment(&self, extent: Extent) -> Result<Extent> {
        let end = u64::from(extent.block) + u64::from(extent.len);
        if end > self.core.blocks() {
            return Err(damaged(self.id));
        }
        Ok(extent)
    }

    /// How often a node was added to a tree or removed from one. While this does not change, a leaf
    /// that was found is still the leaf of the same blocks.
    fn changes(&self) -> u64 {
        self.core.arena.load(self.map.changes_at, Ordering::Acquire)
    }

    /// Records that a node was added to the tree or removed from it, before nodes are retired.
    pub(super) fn note_change(&self) {
        self.core.arena.fetch_add(self.map.changes_at, 1);
    }

    /// The leaf that the thread slot's operations used last, if it covers `at`, and the block where
    /// it ends. It was in the tree when this operation began, or a running operation is removing
    /// it, and it stays for the grace period.
    fn cursor(&self, op: &Op<'_, M>, at: u64) -> Option<(u32, u64)> {
        let (key, leaf) = (op.own(field::CURSOR_KEY), op.own(field::CURSOR_NODE));
        let (low, until) = (key & 0xFFFF_FFFF, leaf >> 30);
        let fits = key >> 32 == u64::from(self.id) && (low..until).contains(&at);
        (fits && op.own(field::CURSOR_TAG) == self.changes())
            .then_some((leaf as u32 & 0x3FFF_FFFF, until))
    }

    /// Remembers a leaf of blocks `[low, until)`. `changes` is the count from before the search for
    /// it.
    fn remember(&self, op: &Op<'_, M>, node: u32, low: u32, until: u64, changes: u64) {
        op.set_own(field::CURSOR_KEY, u64::from(self.id) << 32 | u64::from(low));
        op.set_own(field::CURSOR_NODE, until << 30 | u64::from(node));
        op.set_own(field::CURSOR_TAG, changes);
    }
}
