//! The crash explorer: that no operation is left out, how it chooses and repeats crashes, and what it found once.

mod coverage;
mod document;
mod pairs;
mod regressions;
mod replay;
mod single_operations;
mod strategies;
mod threads;
