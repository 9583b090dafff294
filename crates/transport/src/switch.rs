//! The kernel's switch for requests by io_uring.

use std::fs;
use std::io;

/// Where the switch is, for all FUSE file systems.
pub const PATH: &str = "/sys/module/fuse/parameters/enable_uring";

/// The state of the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// The kernel has none: it is older than Linux 6.14, or built without it.
    Missing,
    /// Requests come by `/dev/fuse` only.
    Off,
    /// Mounts from now on can have them by io_uring.
    On,
}

impl Switch {
    /// Its state now.
    pub fn now() -> Self {
        // Without an open device, the kernel may not have loaded the module yet.
        let _module = fs::File::open("/dev/fuse");
        Self::of(fs::read_to_string(PATH).ok().as_deref())
    }

    fn of(text: Option<&str>) -> Self {
        match text.map(str::trim) {
            None => Self::Missing,
            Some("Y" | "1") => Self::On,
            Some(_) => Self::Off,
        }
    }

    /// Turns it on.
    ///
    /// # Errors
    /// Fails if there is none, or if this is not root.
    pub fn turn_on() -> io::Result<()> {
        fs::write(PATH, "1")
    }

    /// Turns it off.
    ///
    /// # Errors
    /// As [`Switch::turn_on`].
    pub fn turn_off() -> io::Result<()> {
        fs::write(PATH, "0")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_switch_is_read_as_the_kernel_shows_it() {
        assert_eq!(Switch::of(None), Switch::Missing);
        assert_eq!(Switch::of(Some("N\n")), Switch::Off);
        assert_eq!(Switch::of(Some("Y\n")), Switch::On);
    }
}
