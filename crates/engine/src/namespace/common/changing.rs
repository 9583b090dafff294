//! The version of paths: who found a directory by its path knows by this whether it would still be
//! found so.
//!
//! Whoever moves or removes a directory, or takes permission to search it from somebody, says so
//! while it does. As long as anybody does, there is no version; afterwards it is another one.

use std::sync::atomic::Ordering;

use vellum_layout::NamespaceKind;
use vellum_media::{Memories, Memory};

use crate::core::{Core, header};

/// Added by each change that is over; below it, changes under way.
const OVER: u64 = 1 << 16;

/// A change of paths under way, until this is dropped.
pub(crate) struct PathsChange<'a, M: Memories>(&'a Core<M>);

impl<M: Memories> Drop for PathsChange<'_, M> {
    fn drop(&mut self) {
        self.0.arena.fetch_add(header::PATHS, OVER - 1);
    }
}

impl<M: Memories> Core<M> {
    /// Begins a change of paths, if it is one `of_directory`, and the namespace goes by versions;
    /// what is seen of it is stored before this is dropped.
    pub(crate) fn change_paths(&self, of_directory: bool) -> Option<PathsChange<'_, M>> {
        let is_one = of_directory && self.geometry.namespace == NamespaceKind::Adaptive;
        is_one.then(|| {
            self.arena.fetch_add(header::PATHS, 1);
            PathsChange(self)
        })
    }

    /// The version of paths; `None` while they change. What was loaded between two calls that gave
    /// one version was of one instant, as far as it says which directory a path leads to.
    pub(crate) fn version_of_paths(&self) -> Option<u64> {
        let word = self.arena.load(header::PATHS, Ordering::SeqCst);
        word.is_multiple_of(OVER).then_some(word)
    }
}
