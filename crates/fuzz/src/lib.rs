//! Common code of the fuzz targets in `tests/`.
//!
//! A target receives bytes. [`decode`] passes them unchanged to the decoders. An [`Input`] reads
//! them as a few changes of a valid small pool (a [`Sample`], see [`change`]). Checksums are made
//! to fit again unless the input says otherwise, so that the fuzzer gets past them. [`judge`] then
//! tests what the checker and the engine promise of any image: a result, or an error that names a
//! location; no panic, no endless loop, and no contradiction between the two. A [`Watchdog`] ends
//! cases that do not end by themselves.
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
