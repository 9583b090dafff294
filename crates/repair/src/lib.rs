//! Repairs damaged pools.
//!
//! A repair has three parts, so that nothing is changed before all damage is understood:
//! 1. [`plan()`] reads the pool with the checker's own reading code and overlays it with words in
//!    memory, step by step, until the checker finds nothing more. The pool is not touched.
//! 2. [`undo::write`] saves what the plan will overwrite.
//! 3. [`apply()`] writes the plan, in an order in which a power cut anywhere leaves a pool that
//!    another repair mends, with no readable file lost.
//!
//! `docs/crash/damage.md` lists the repair of each kind of damage. The rules: nothing readable is
//! discarded; if two structures contradict each other, the one confirmed by more checksums is
//! right; what has lost its name goes to `/lost+found`.
//!
//! Conversion of a pool to another namespace ([`plan_conversion`]) works in the same way.
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
mod xattrs;

pub use apply::{ApplyError, Written, apply, apply_watched};
pub use convert::{
    Conversion, ConvertError, FinishError, convert, finish_conversion, plan_conversion,
};
pub use lost::LostBytes;
pub use plan::{Action, Options, Plan, Stage, plan};
