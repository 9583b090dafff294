//! Damage to pools that the engine made: what checker, repair and engine make of it; conversions of
//! them; and what the targets of the fuzzer found.

mod convert;
mod logged;
mod namespaces;
mod records;
mod regressions;
mod repair;
mod segments;
mod undo;
