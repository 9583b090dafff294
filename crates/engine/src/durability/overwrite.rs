//! Records of overwritten blocks, whose bytes a killed process may leave in caches.
//!
//! Little metadata can be in caches only, and a scan of the pool finds all of it. Data are too many
//! for a scan. So an operation that changes bytes that readers can find records their location in
//! its thread slot, by a plain store, which stays in the caches as long as those bytes do. All
//! other data are durable before a size or the state of a block lets readers find them.

use vellum_layout::Overwrite;
use vellum_media::Memories;

use crate::core::slots::Op;

impl<M: Memories> Op<'_, M> {
    /// Records which blocks this operation is about to overwrite.
    #[inline]
    pub(crate) fn note_overwrite(&self, overwrite: Overwrite) {
        let at = self.core.geometry.thread_slot_at(self.slot);
        let [file, blocks] = overwrite.words();
        self.core.set_word(at + Overwrite::FILE, file);
        self.core.set_word(at + Overwrite::BLOCKS, blocks);
    }
}
