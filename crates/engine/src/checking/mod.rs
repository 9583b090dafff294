//! The lock-free code under model checkers: the very code that ships, on other memories.
//!
//! *Scenarios* are whole file systems on [`shuttle`], which draws schedules at random, seeded.
//! `VELLUM_LONG_CHECKS=<factor>` makes them run that many times longer.

mod histories;
mod scenarios;
mod shuttle_memory;
mod world;

/// How much longer than usual to look, if that is asked for.
fn long_factor() -> Option<usize> {
    std::env::var("VELLUM_LONG_CHECKS").ok()?.parse().ok()
}
