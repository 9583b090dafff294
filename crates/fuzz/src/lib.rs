//! What the fuzz targets in `tests/` have in common.
//!
//! A target is given bytes. [`decode`] hands them to the decoders as they are. An [`Input`] reads
//! them as a few changes of a valid small pool (a [`Sample`], see [`change`]); checksums are made
//! to fit again unless the input says otherwise, so that the fuzzer gets past them. [`judge`] then
//! holds checker and engine to what they promise of any image: an answer or an error that names a
//! place, never a panic, never an endless loop, and no contradiction between the two. A
//! [`Watchdog`] ends what does not end by itself.
//!
//! `docs/TESTING.md` says how to run the targets for long and what to do with what they find.
#![forbid(unsafe_code)]

mod decode;
mod draw;
mod inject;
mod input;
mod judge;
mod maps;
mod sample;
mod watchdog;

pub use decode::decode;
pub use draw::draw;
pub use inject::{change, inject_raw, seal};
pub use input::Input;
pub use judge::{Memories, judge, mount};
pub use sample::{Sample, Structure, StructureKind, samples};
pub use watchdog::Watchdog;
