//! What only Vellum's own programs, tests and benchmarks use.

pub use crate::core::Clock;
pub use crate::core::slots::prefer_thread_slot;
pub use crate::mapping::timed::{MappingTime, MappingTimer};
pub use crate::namespace::{Area, Decided, Evolution, Label, MergedArea, Outcome, RENAMED_ROUNDS};
pub use crate::pool::datasets::own_bytes;
pub use crate::pool::external::open_bytes;
pub use crate::pool::lifecycle::{FormatOptions, MountOptions, Opened, attach, format};
pub use crate::pool::{boot_id, media_of_new_pool};
pub use vellum_layout::{Formed, MergeReason, Merged, Settings, uuid_text};
pub use vellum_media as media;
