//! The doors that are measured.

use vellum_fuse::{SWITCH, Switch};
use vellum_transport::Door;

use crate::mount::Mount;

/// The doors by which the kernel's requests can come. The kernel's switch is on while this lives,
/// if that is possible, and then as it was.
pub(super) struct Doors {
    pub(super) list: Vec<Door>,
    /// Why one is left out.
    pub(super) note: Option<String>,
    was_turned_on: bool,
}

impl Doors {
    /// Turns the switch on, and tries io_uring.
    pub(super) fn open() -> Self {
        let was_turned_on = Switch::now() == Switch::Off && Switch::turn_on().is_ok();
        let why = match Switch::now() {
            Switch::Missing => Some("this kernel does not have it".to_owned()),
            Switch::Off => Some(format!("its switch {SWITCH} is off, and not this user's")),
            Switch::On => {
                let tried = Mount::null_fs(2, Some(Door::Ring));
                tried.err().map(|error| error.to_string())
            }
        };
        let list = match why {
            None => vec![Door::Ring, Door::Device],
            Some(_) => vec![Door::Device],
        };
        Self {
            list,
            note: why.map(|why| format!("No rows by io_uring: {why}.")),
            was_turned_on,
        }
    }
}

impl Drop for Doors {
    fn drop(&mut self) {
        if self.was_turned_on
            && let Err(error) = Switch::turn_off()
        {
            crate::report::note(format_args!("{SWITCH} stays on: {error}"));
        }
    }
}
