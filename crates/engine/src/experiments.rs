//! What experiments look at one by one: parts of operations that users only meet together.

pub use crate::fs::{MappingAlone, gather_metadata, settle};
