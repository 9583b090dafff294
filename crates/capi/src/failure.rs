//! What a call of C returns when it fails: -1, `errno`, and a text for `vellum_last_error`.
//!
//! No panic leaves a call. It becomes `EIO` with a text of its own.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::CStr;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

use libc::c_char;
use vellum::Error;

use crate::borrowed::CPath;

pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// Why a call failed.
pub(crate) enum Failure {
    Engine(Error),
    /// What this library finds wrong by itself: an errno, and a text.
    Own(i32, &'static str),
    Panic(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}

impl Failure {
    pub(crate) const NO_HANDLE: Self = Self::Own(
        libc::EBADF,
        "no open handle has this number: it was closed, or is none",
    );
    pub(crate) const TOO_MANY_HANDLES: Self = Self::Own(
        libc::EMFILE,
        "the process has 1048576 handles open, which is the limit: close some",
    );
    pub(crate) const NO_PLACE: Self = Self::Own(
        libc::EDEADLK,
        "a call within a call: a signal handler may call no function",
    );
    pub(crate) const NULL: Self = Self::Own(libc::EFAULT, "a pointer is NULL that may not be");

    pub(crate) const fn invalid(text: &'static str) -> Self {
        Self::Own(libc::EINVAL, text)
    }

    fn of_panic(payload: &(dyn Any + Send)) -> Self {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
        Self::Panic(text.unwrap_or("a panic").to_owned())
    }

    fn errno(&self) -> i32 {
        match self {
            Self::Engine(error) => error.errno(),
            Self::Own(errno, _) => *errno,
            Self::Panic(_) => libc::EIO,
        }
    }
}

/// The last failure of a thread. Its text is made when somebody asks for it.
struct Last {
    call: &'static str,
    failure: Option<Failure>,
    /// The paths of the call. They keep their memory from one failure to the next.
    paths: [Vec<u8>; 2],
    /// The text, and a zero byte behind it.
    text: String,
}

thread_local! {
    static LAST: RefCell<Last> = const {
        RefCell::new(Last {
            call: "",
            failure: None,
            paths: [Vec::new(), Vec::new()],
            text: String::new(),
        })
    };
}

/// What calls return on failure: -1.
pub(crate) trait Returned {
    const FAILED: Self;
}

macro_rules! returned {
    ($($number:ty),*) => {$(
        impl Returned for $number {
            const FAILED: Self = -1;
        }
    )*};
}

returned!(i32, i64, isize);

/// Runs the body of the call named `name`, and turns a failure into -1, `errno`, and a text that
/// names the call and `paths`, at most two.
#[inline]
pub(crate) fn call<T: Returned>(
    name: &'static str,
    paths: &[CPath],
    body: impl FnOnce() -> Result<T>,
) -> T {
    // After a panic, nothing of the call is looked at again but what it shares with others. The
    // engine's locks and lists stay usable after one.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(returned)) => returned,
        Ok(Err(failure)) => fail(name, paths, failure),
        Err(payload) => fail(name, paths, Failure::of_panic(&*payload)),
    }
}

#[cold]
fn fail<T: Returned>(call: &'static str, paths: &[CPath], failure: Failure) -> T {
    let errno = failure.errno();
    // A thread that is ending may have no such memory any more. Then there is only errno.
    let _ = LAST.try_with(|last| {
        let mut last = last.borrow_mut();
        last.call = call;
        last.failure = Some(failure);
        last.text.clear();
        for (kept, path) in last.paths.iter_mut().zip(0..) {
            kept.clear();
            kept.extend_from_slice(paths.get(path).map_or(b"", CPath::for_message));
        }
    });
    errno::set_errno(errno::Errno(errno));
    T::FAILED
}

/// Returns what the last call that failed in this thread has to say: which call and path, what is
/// wrong and where in the pool, and what helps. `errno` has the number for it. Never NULL; empty if
/// no call has failed yet. Calls that succeed do not change it. The text stays until the next call
/// fails in this thread, or the thread ends.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_last_error() -> *const c_char {
    let text = LAST.try_with(|last| {
        let mut last = last.borrow_mut();
        if last.text.is_empty() {
            last.text = last.to_text();
        }
        last.text.as_ptr().cast()
    });
    text.unwrap_or(CStr::as_ptr(c""))
}

impl Last {
    fn to_text(&self) -> String {
        let mut text = String::from(self.call);
        let paths = self.paths.iter().filter(|path| !path.is_empty());
        let paths: Vec<_> = paths.map(|path| String::from_utf8_lossy(path)).collect();
        if !paths.is_empty() {
            let _ = write!(text, "({})", paths.join(", "));
        }
        let _ = match &self.failure {
            None => Ok(()),
            Some(Failure::Engine(error)) => write!(text, ": {error}"),
            Some(Failure::Own(_, what)) => write!(text, ": {what}"),
            Some(Failure::Panic(what)) => {
                write!(text, ": a fault of Vellum, which you should report: {what}")
            }
        };
        // It ends at its first zero byte, as C sees it.
        text.push('\0');
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last_text() -> String {
        LAST.with(|last| last.borrow().to_text())
    }

    #[test]
    fn a_panic_stays_inside_and_is_eio() {
        let returned: i64 = call("vellum_read", &[], || panic!("wrong at {}", 7));
        assert_eq!((returned, errno::errno().0), (-1, libc::EIO));
        assert!(last_text().ends_with("you should report: wrong at 7\0"));
        let returned: i32 = call("vellum_read", &[], || {
            std::panic::resume_unwind(Box::new(7));
        });
        assert_eq!((returned, errno::errno().0), (-1, libc::EIO));
    }

    #[test]
    fn a_success_leaves_errno_and_text() {
        let _: i32 = call("vellum_fsync", &[], || Err(Error::NotEmpty.into()));
        let text = last_text();
        assert_eq!(text, "vellum_fsync: the directory is not empty\0");
        assert_eq!(call("vellum_fsync", &[], || Ok(5)), 5);
        assert_eq!((last_text(), errno::errno().0), (text, libc::ENOTEMPTY));
    }
}
