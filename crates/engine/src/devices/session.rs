//! In which session a pool and its external data device were last used together, so that an old
//! copy of one is not taken for what belongs to the other.
//!
//! An opening for writing draws a new session. The pool says first that the medium may be of it
//! (`next`), then the medium becomes of it, its copy of the head before its head, then the pool
//! says that it is (`session`). Each step is durable before the next, so that the medium is of one
//! of the two sessions at every instant, and one of its two heads is sound. Several media become of
//! it one after the other; who finds them of both makes them of one before he draws another.
//!
//! What is read may be in a cache only, left by who was killed between a step and its sync, or
//! failed in that: so the head that counts is made durable before anything is built upon it. The
//! pool's two words lie in one line and one sector, and get durable together.

use std::io;

use vellum_layout::{BLOCK_BYTES, DevicePaths, MEDIUM_HEAD_BYTES, MediumHead};
use vellum_media::Disk;
use zerocopy::IntoBytes;

use crate::disk_sites;

/// An external data device by its heads.
pub(crate) struct Heads<'a> {
    disk: &'a dyn Disk,
    /// The head that counts.
    pub(crate) counts: MediumHead,
}

/// Why no session was drawn; pool and medium belong together all the same.
#[derive(Debug)]
pub(crate) enum Failed {
    /// What the pool said.
    Pool(io::Error),
    /// What the medium said to a write.
    Write(io::Error),
    /// What the medium said to a sync. It may have been about bytes that a killed process wrote,
    /// which it says once.
    Sync(io::Error),
}

impl Failed {
    /// What the pool or the medium said.
    pub(crate) fn into_io(self) -> io::Error {
        let (Self::Pool(error) | Self::Write(error) | Self::Sync(error)) = self;
        error
    }
}

impl<'a> Heads<'a> {
    /// The heads of a medium: the first one counts, or else the copy of it that there would be on
    /// the medium that is expected.
    pub(crate) fn find(disk: &'a dyn Disk, expected: Option<&MediumHead>) -> Option<Self> {
        let head = |at| {
            let mut block = [0; MEDIUM_HEAD_BYTES];
            disk.read(at, &mut block).ok()?;
            MediumHead::unseal(&block)
        };
        let counts = head(0).or_else(|| head(expected?.copy_at()))?;
        Some(Self { disk, counts })
    }

    /// Writes a head, durably. It is all that is in its block, and a whole block can be written
    /// that cannot be read.
    fn write(&self, at: u64, head: &MediumHead) -> Result<(), Failed> {
        let mut block = [0; BLOCK_BYTES as usize];
        block[..MEDIUM_HEAD_BYTES].copy_from_slice(head.as_bytes());
        self.disk.write(at, &block).map_err(Failed::Write)?;
        let synced = self.disk.sync(disk_sites::SESSION_MEDIUM_DURABLE);
        synced.map_err(Failed::Sync)
    }

    /// Makes the medium one of this session, durably.
    pub(crate) fn enter(&self, session: u64) -> Result<(), Failed> {
        let new = self.counts.in_session(session);
        self.write(new.copy_at(), &new)?;
        self.write(0, &new)
    }
}

/// Whether a medium of this session belongs to a pool whose block of places has these bytes. A
/// block that is not sound does not say: all belong.
pub(crate) fn belongs(places: &[u8], session: u64) -> bool {
    DevicePaths::sessions(places).is_none_or(|known| known.contains(&session))
}

/// Draws the next session of a pool and its media, of which there are some, and which belong
/// together; `set` stores a word of the pool's block of places, by its offset, durably.
///
/// # Errors
/// What the pool said, or the medium of this number.
pub(crate) fn begin(
    places: &[u8],
    media: &[Heads<'_>],
    new: u64,
    set: &dyn Fn(u64, u64) -> io::Result<()>,
) -> Result<(), (usize, Failed)> {
    let each = |step: &dyn Fn(&Heads<'_>) -> Result<(), Failed>| {
        let mut numbered = media.iter().enumerate();
        numbered.try_for_each(|(number, heads)| step(heads).map_err(|failed| (number, failed)))
    };
    each(&|heads| heads.write(0, &heads.counts))?;
    let now = media.first().map_or(0, |first| first.counts.session);
    // The last opening was cut short between two media: of both sessions that the pool knows, all
    // become of the first one's.
    each(&|heads| match heads.counts.session == now {
        true => Ok(()),
        false => heads.enter(now),
    })?;
    let set = |at, value| set(at, value).map_err(|error| (0, Failed::Pool(error)));
    if DevicePaths::sessions(places).is_none_or(|[session, _]| session != now) {
        // It was cut short behind the media's step.
        set(DevicePaths::SESSION, now)?;
    }
    set(DevicePaths::NEXT, new)?;
    each(&|heads| heads.enter(new))?;
    set(DevicePaths::SESSION, new)
}

#[cfg(test)]
mod tests;
