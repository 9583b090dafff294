//! The engine against the reference model: the same operations must have the same outcomes and
//! leave the same tree.
//!
//! `VELLUM_CASES` sets the number of random cases for each test, and `VELLUM_SEED` (0 to 255) their
//! seed. `VELLUM_LONG_CHECKS=<factor>` makes all run longer by this factor.

mod areas;
mod fixture;
mod linear;
mod listing;
mod removed;
mod sequences;
#[path = "../../src/checking/shuttle_memory.rs"]
mod shuttle_memory;
mod shuttled;
mod threads;
mod tree;
