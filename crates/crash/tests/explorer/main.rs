//! The crash explorer: that no operation is left out, how it chooses and repeats crashes, what it
//! found once, and its command, which `make test` has explore what is not explored here.

mod command;
mod coverage;
mod document;
mod regressions;
mod replay;
mod strategies;
mod threads;
