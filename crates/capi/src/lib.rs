//! Vellum for C: `libvellum`, and the header `vellum.h`.
//!
//! Each function is one call of the engine, in POSIX's form: a number, -1 and `errno`. A handle is
//! a number that is looked up in a `table`, never a pointer. `borrowed` reaches the memory
//! of the C program; `failure` keeps panics inside, and what `vellum_last_error` returns.
//!
//! The functions are for C. From Rust, use the crate `vellum`.
#![deny(unsafe_code)]
#![allow(non_camel_case_types)]

mod borrowed;
mod objects;
mod paths;
mod table;
mod threads;
mod users;

// In the order of the header.
#[expect(unsafe_code, reason = "exported names")]
mod failure;

#[expect(unsafe_code, reason = "exported names")]
mod pools;

#[expect(unsafe_code, reason = "exported names")]
mod files;

#[expect(unsafe_code, reason = "exported names")]
mod attrs;

#[expect(unsafe_code, reason = "exported names")]
mod names;

#[expect(unsafe_code, reason = "exported names")]
mod dirs;

#[expect(unsafe_code, reason = "exported names")]
mod xattrs;

#[expect(unsafe_code, reason = "exported names")]
mod locks;

#[expect(unsafe_code, reason = "exported names")]
mod space;

#[expect(unsafe_code, reason = "exported names")]
mod views;

pub use attrs::*;
pub use borrowed::{CPath, In, InBytes, Out, OutBytes};
pub use dirs::*;
pub use failure::vellum_last_error;
pub use files::*;
pub use locks::*;
pub use names::*;
pub use pools::*;
pub use space::*;
pub use views::*;
pub use xattrs::*;

/// A number that stands for something open: a pool, a volume (a pool as one user), a file or
/// directory, a view. Never negative and never reused within hours, so a stale one is EBADF.
pub type vellum_handle = i64;
