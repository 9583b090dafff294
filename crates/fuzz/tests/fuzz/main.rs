//! Hostile bytes and arguments, by themselves and in pools.

mod arguments;
mod damage;
mod structures;
#[path = "../../../repair/tests/support/mod.rs"]
mod support;
