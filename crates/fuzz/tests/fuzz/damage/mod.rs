//! Damage to pools that the engine made, and how the checker, the repair and the engine handle it;
//! conversions of such pools; and regressions that the targets found.

mod convert;
mod flags;
mod logged;
mod namespaces;
mod records;
mod regressions;
mod repair;
mod segments;
mod undo;
mod xattrs;
