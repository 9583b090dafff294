//! Hostile bytes and arguments, by themselves, in pools, and as requests of a mount.

mod arguments;
mod damage;
mod requests;
mod structures;
#[path = "../../../repair/tests/support/mod.rs"]
mod support;
