//! Error numbers with names.

use std::fmt;

/// A Linux error number; `Debug` and `Display` print its name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
#[error("{self:?}")]
pub struct Errno(pub i32);

/// The result of every operation.
pub type Result<T> = std::result::Result<T, Errno>;

macro_rules! names {
    ($($name:ident)*) => {
        impl Errno {
            $(
                #[doc = concat!("`", stringify!($name), "`")]
                pub const $name: Errno = Errno(libc::$name);
            )*

            /// The symbolic name, if it is one that a file system returns.
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $(libc::$name => Some(stringify!($name)),)*
                    _ => None,
                }
            }

            /// The error with this symbolic name.
            pub fn from_name(name: &str) -> Option<Errno> {
                match name {
                    $(stringify!($name) => Some(Errno(libc::$name)),)*
                    _ => None,
                }
            }
        }
    };
}

names! {
    E2BIG EACCES EAGAIN EBADF EBUSY EDEADLK EDQUOT EEXIST EFAULT EFBIG EINTR EINVAL EIO EISDIR
    ELOOP EMFILE EMLINK ENAMETOOLONG
    ENFILE ENODATA ENODEV ENOENT ENOLCK ENOMEM ENOSPC ENOSYS ENOTDIR ENOTEMPTY ENOTTY ENXIO
    EOPNOTSUPP EOVERFLOW EPERM ERANGE
    EROFS ESPIPE ESRCH ESTALE ETXTBSY EUCLEAN EXDEV
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "E{}", self.0),
        }
    }
}

impl From<Errno> for std::io::Error {
    fn from(errno: Errno) -> Self {
        std::io::Error::from_raw_os_error(errno.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_both_ways() {
        assert_eq!(
            format!("{:?} {}", Errno::ENOENT, Errno(9999)),
            "ENOENT E9999"
        );
        assert_eq!(Errno::from_name("ELOOP"), Some(Errno::ELOOP));
    }
}
