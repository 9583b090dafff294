//! Repair: every class of damage is mended, everything readable survives, and power cuts in the
//! middle change nothing about that.

mod areas;
mod classes;
mod cuckoo;
mod keyed;
mod level;
mod logged;
#[path = "../support/mod.rs"]
mod support;
#[path = "../../../check/tests/testimage/mod.rs"]
mod testimage;
mod trees;
mod unreadable;
mod writing;
mod xattrs;
