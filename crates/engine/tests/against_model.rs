//! The engine against the reference model: the same operations must have the same outcomes and
//! leave the same tree.
//!
//! `VELLUM_CASES` says how many random cases each test runs, `VELLUM_SEED` (0 to 255) which;
//! `VELLUM_LONG_CHECKS=<factor>` makes all run that many times longer.

#[path = "against_model/areas.rs"]
mod areas;
#[path = "against_model/kit.rs"]
mod kit;
#[path = "against_model/linear/mod.rs"]
mod linear;
#[path = "against_model/listing.rs"]
mod listing;
#[path = "against_model/random.rs"]
mod random;
#[path = "against_model/removed.rs"]
mod removed;
#[path = "against_model/sequences.rs"]
mod sequences;
#[path = "../src/checking/shuttle_memory.rs"]
mod shuttle_memory;
#[path = "against_model/shuttled.rs"]
mod shuttled;
#[path = "against_model/subject.rs"]
mod subject;
#[path = "against_model/threads.rs"]
mod threads;
#[path = "against_model/tree.rs"]
mod tree;
