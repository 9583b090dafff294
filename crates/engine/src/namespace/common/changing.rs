//! The version of paths. By it an operation that found a directory by its path knows whether the
//! path would still lead there.
//!
//! An operation that moves or removes a directory, or takes permission to search it from somebody,
//! announces that for its duration. Meanwhile there is no version; afterwards it is another one.

use std::sync::atomic::Ordering;

use vellum_layout::NamespaceKind;
use vellum_media::{Memories, Memory};

use crate::core::{Core, header};

/// Added by each completed change. The bits below count changes in flight.
const OVER: u64 = 1 << 16;

/// A change of paths in flight, until this is dropped.
pub(crate) struct PathsChange<'a, M: Memories>(&'a Core<M>);

impl<M: Memories> Drop for PathsChange<'_, M> {
    fn drop(&mut self) {
        self.0.arena.fetch_add(header::PATHS, OVER - 1);
    }
}

impl<M: Memories> Core<M> {
    /// Begins a change of paths, if it is a change `of_directory` and the namespace uses versions.
    /// The caller stores everything visible of the change before it drops this.
    pub(crate) fn change_paths(&self, of_directory: bool) -> Option<PathsChange<'_, M>> {
        let is_one = of_directory && self.geometry.namespace == NamespaceKind::Adaptive;
        is_one.then(|| {
            self.arena.fetch_add(header::PATHS, 1);
            PathsChange(self)
        })
    }

    /// The version of paths; `None` while they change. If two calls return the same version,
    /// everything loaded between them that determines where a path leads is of one instant.
    pub(crate) fn version_of_paths(&self) -> Option<u64> {
        let word = self.arena.load(header::PATHS, Ordering::SeqCst);
        word.is_multiple_of(OVER).then_some(word)
    }
}
