//! Mends damaged pools.
//!
//! A repair is made in three parts, so that nothing is changed on the strength of half an
//! understanding:
//! 1. [`plan`] reads the pool with the checker's own reading code and lays words over it in memory,
//!    step by step, until the checker finds nothing any more. The pool is not touched.
//! 2. [`undo::write`] saves what the plan will overwrite.
//! 3. [`apply`] writes the plan, in an order in which a power cut anywhere leaves a pool that
//!    another repair mends, with no file lost that could be read.
//!
//! What is mended how is listed in `docs/crash/damage.md`. The rules behind it: nothing that can
//! be read is given up; where two structures contradict each other, the one that more checksums
//! vouch for is right; what has lost its place goes to `/lost+found`.
//!
//! Converting a pool to another namespace ([`plan_conversion`]) is made in the same way.
#![forbid(unsafe_code)]

mod apply;
mod areas;
mod blocks;
mod convert;
mod draft;
mod extents;
mod header;
mod inodes;
mod keyed;
mod logs;
mod lost;
mod plan;
mod records;
mod redo;
mod room;
mod tree;
mod trees;
pub mod undo;

pub use apply::{ApplyError, Written, apply, apply_watched};
pub use convert::{
    Conversion, ConvertError, FinishError, convert, finish_conversion, plan_conversion,
};
pub use lost::LostBytes;
pub use plan::{Action, Options, Plan, Stage, plan};
