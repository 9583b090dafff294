//! Tests of the crash explorer: no operation is left out; how it chooses and repeats crashes; what
//! it found once; and its command, with which `make test` explores what is not explored here.

mod command;
mod coverage;
mod document;
mod regressions;
mod replay;
mod strategies;
mod threads;
