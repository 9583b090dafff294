//! The session in which a pool and its external data devices were last used together, which shows
//! an old copy of one of them.
//!
//! An opening for writing draws a new session. First the pool stores that devices may be in it
//! (`next`), then the device stores it, in the copy of its head before the head, then the pool
//! stores it as its own (`session`). Each step is durable before the next. So the device is in one
//! of the two sessions at every instant, and one of its two heads is valid. Several devices store
//! it one after the other; an opening that finds devices of both sessions first brings all to one.
//!
//! What is read may be in a cache only, after a kill between a step and its sync, or after a failed
//! sync. So the valid head is made durable before anything relies on it. The pool's two words are
//! in one line and one sector, and become durable together.

use std::io;

use vellum_layout::{BLOCK_BYTES, DevicePaths, MEDIUM_HEAD_BYTES, MediumHead};
use vellum_media::Disk;
use zerocopy::IntoBytes;

use crate::disk_sites;

/// The heads of an external data device.
pub(crate) struct Heads<'a> {
    disk: &'a dyn Disk,
    /// The valid head.
    pub(crate) counts: MediumHead,
}

/// Why no session could be begun; pool and devices still belong together.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The pool failed.
    Pool(io::Error),
    /// A write to the device failed.
    Write(io::Error),
    /// A sync of the device failed. The error may be about bytes that a killed process wrote, and
    /// is reported only once.
    Sync(io::Error),
}

impl Failed {
    /// Returns the error of the pool or the device.
    pub(crate) fn into_io(self) -> io::Error {
        let (Self::Pool(error) | Self::Write(error) | Self::Sync(error)) = self;
        error
    }
}

impl<'a> Heads<'a> {
    /// Returns the heads of a device. The first one is valid, or else its copy at the location for
    /// the expected device.
    pub(crate) fn find(disk: &'a dyn Disk, expected: Option<&MediumHead>) -> Option<Self> {
        let head = |at| {
            let mut block = [0; MEDIUM_HEAD_BYTES];
            disk.read(at, &mut block).ok()?;
            MediumHead::unseal(&block)
        };
        let counts = head(0).or_else(|| head(expected?.copy_at()))?;
        Some(Self { disk, counts })
    }

    /// Writes a head, durably. It is alone in its block, and a whole block can be written even if
    /// it cannot be read.
    fn write(&self, at: u64, head: &MediumHead) -> Result<(), Failed> {
        let mut block = [0; BLOCK_BYTES as usize];
        block[..MEDIUM_HEAD_BYTES].copy_from_slice(head.as_bytes());
        self.disk.write(at, &block).map_err(Failed::Write)?;
        let synced = self.disk.sync(disk_sites::SESSION_MEDIUM_DURABLE);
        synced.map_err(Failed::Sync)
    }

    /// Makes the device store this session, durably.
    pub(crate) fn enter(&self, session: u64) -> Result<(), Failed> {
        let new = self.counts.in_session(session);
        self.write(new.copy_at(), &new)?;
        self.write(0, &new)
    }
}

/// Whether a device of this session belongs to the pool with this block of device paths. If the
/// block is not valid, every device does.
pub(crate) fn belongs(places: &[u8], session: u64) -> bool {
    DevicePaths::sessions(places).is_none_or(|known| known.contains(&session))
}

/// Begins the next session of a pool and its devices, which belong together and are at least one.
/// `set` stores a word of the pool's block of device paths durably, at an offset in it.
///
/// # Errors
/// Fails if the pool fails, or the device of the returned number.
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
    // The last opening was cut short between two devices, so both sessions that the pool knows
    // occur. All devices go to the first one's.
    each(&|heads| match heads.counts.session == now {
        true => Ok(()),
        false => heads.enter(now),
    })?;
    let set = |at, value| set(at, value).map_err(|error| (0, Failed::Pool(error)));
    if DevicePaths::sessions(places).is_none_or(|[session, _]| session != now) {
        // The last opening was cut short after the device's step.
        set(DevicePaths::SESSION, now)?;
    }
    set(DevicePaths::NEXT, new)?;
    each(&|heads| heads.enter(new))?;
    set(DevicePaths::SESSION, new)
}

#[cfg(test)]
mod tests;
