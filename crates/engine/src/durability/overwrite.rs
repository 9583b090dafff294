//! Bytes that a killed process left in the caches.
//!
//! Metadata that may be in the caches only is little, and a scan of the pool finds all of it. Data
//! is much. So whoever is to change bytes that readers can find notes in its thread slot where they
//! lie: a plain store, which is in the caches as long as those bytes are. Everything else is
//! durable before a size or a state of a block lets readers find it.

use vellum_layout::Overwrite;
use vellum_media::Memories;

use crate::core::slots::Op;

impl<M: Memories> Op<'_, M> {
    /// Notes which blocks this operation is about to overwrite.
    #[inline]
    pub(crate) fn note_overwrite(&self, overwrite: Overwrite) {
        let at = self.core.geometry.thread_slot_at(self.slot);
        let [file, blocks] = overwrite.words();
        self.core.set_word(at + Overwrite::FILE, file);
        self.core.set_word(at + Overwrite::BLOCKS, blocks);
    }
}
