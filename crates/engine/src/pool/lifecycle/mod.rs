//! Formatting, opening, recovering and closing pools.

mod close;
mod format;
mod grow;
mod inherit;
mod open;
mod recover;

pub use format::{FormatOptions, format};
pub(crate) use open::{COMMIT_INTERVAL, check_at_rest, give_up_image, settle_image};
pub use open::{MountOptions, Opened, attach};
