//! What experiments look at one by one: parts of operations that users only meet together.

use vellum_media::Memories;

pub use crate::devices::replica::attach_copy;
use crate::fs::Handle;
pub use crate::fs::{MappingProbe, gather_metadata, settle};
pub use crate::pool::copies::{settle_cut, settle_table, write_table};
pub use crate::pool::datasets::remove_dataset;
pub use crate::pool::grow::set_table_aside;
use crate::reading::PageTable;

/// What the page table of an open file has come to, as far as this opening uses it.
pub fn page_table<M: Memories>(handle: &Handle<M>) -> PageTable {
    handle.page_table()
}
