//! In which session a pool and its data medium were last used together, so that an old copy of one is not taken for what belongs to the other.
//!
//! An opening for writing draws a new session. The pool says first that the medium may be of it (`next`), then the medium becomes of it, its
//! copy of the head before its head, then the pool says that it is (`session`). Each step is durable before the next, so that the medium is of
//! one of the two sessions at every instant, and one of its two heads is sound.

use std::io;

use vellum_layout::{MEDIUM_HEAD_BYTES, MediumHead, MediumPlaces};
use vellum_media::Disk;
use zerocopy::IntoBytes;

use crate::disk_sites;

/// A data medium by its heads.
pub(crate) struct Heads<'a> {
    disk: &'a dyn Disk,
    /// The head that counts.
    pub(crate) counts: MediumHead,
    /// Whether it is the first one.
    is_first: bool,
}

impl<'a> Heads<'a> {
    /// The heads of a medium: the first one counts, or else the copy of it that there would be on the medium that is expected.
    pub(crate) fn find(disk: &'a dyn Disk, expected: Option<&MediumHead>) -> Option<Self> {
        let head = |at| {
            let mut block = [0; MEDIUM_HEAD_BYTES];
            disk.read(at, &mut block).ok()?;
            MediumHead::unseal(&block)
        };
        let first = head(0);
        let is_first = first.is_some();
        let counts = first.or_else(|| head(expected?.copy_at()))?;
        Some(Self {
            disk,
            counts,
            is_first,
        })
    }

    fn write(&self, at: u64, head: &MediumHead) -> io::Result<()> {
        self.disk.write(at, head.as_bytes())?;
        self.disk.sync(disk_sites::SESSION_MEDIUM_DURABLE)
    }

    /// Makes the medium one of this session, durably.
    fn enter(&self, session: u64) -> io::Result<()> {
        if !self.is_first {
            // The copy is not to be written while nothing else is sound.
            self.write(0, &self.counts)?;
        }
        let new = self.counts.in_session(session);
        self.write(new.copy_at(), &new)?;
        self.write(0, &new)
    }
}

/// Whether a medium of this session belongs to a pool whose block of places has these bytes. A block that is not sound does not say: all belong.
pub(crate) fn belongs(places: &[u8], session: u64) -> bool {
    MediumPlaces::sessions(places).is_none_or(|known| known.contains(&session))
}

/// Draws the next session of a pool and its medium, which belong together; `set` stores a word of the pool's block of places, by its offset,
/// durably.
///
/// # Errors
/// What either said; they belong together all the same.
pub(crate) fn begin(
    places: &[u8],
    heads: &Heads<'_>,
    new: u64,
    set: &dyn Fn(u64, u64) -> io::Result<()>,
) -> io::Result<()> {
    let now = heads.counts.session;
    if MediumPlaces::sessions(places).is_none_or(|[session, _]| session != now) {
        // The last opening was cut short behind the medium's step.
        set(MediumPlaces::SESSION, now)?;
    }
    set(MediumPlaces::NEXT, new)?;
    heads.enter(new)?;
    set(MediumPlaces::SESSION, new)
}

#[cfg(test)]
mod tests;
