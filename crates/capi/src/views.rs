//! Views: bytes of files in place.

use std::ffi::c_void;
use std::ptr;

use libc::c_int;

use crate::borrowed::{HeldView, Out};
use crate::failure::call;
use crate::files::offset_of;
use crate::objects::Object;
use crate::{table, vellum_handle};

/// Shows `length` bytes of an open file from `offset` on, or as many as the file has: in
/// place if they are contiguous in the pool, else as a copy. `*bytes` and `*shown` become their
/// address (NULL if there are none) and number. They stay, and stay readable, until
/// `vellum_view_release`, also if the file is closed; nobody may write to them. Until then, whoever
/// would change bytes that are shown in place waits; in the thread that took the view such a call
/// fails with EDEADLK. Any thread may release a view. Returns a handle for `vellum_view_release`;
/// or -1 with EBADF (not open for reading), EISDIR, EINVAL, EFAULT, ENOMEM, EMFILE, EIO or EUCLEAN.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_view(
    file: vellum_handle,
    offset: i64,
    length: usize,
    mut bytes: Out<*const c_void>,
    mut shown: Out<usize>,
) -> vellum_handle {
    call("vellum_view", &[], || {
        bytes.check()?;
        shown.check()?;
        let from = offset_of(offset)?;
        let to = from.saturating_add(length as u64);
        let held = table::get(file)?;
        held.file()?;
        let view = HeldView::new(&held, |file| Ok(file.file()?.handle.view(from..to)?))?;
        let found: &[u8] = view.view();
        let (at, len) = (found.as_ptr(), found.len());
        let handle = table::insert(Object::View(view))?;
        bytes.set(if len == 0 { ptr::null() } else { at.cast() });
        shown.set(len);
        Ok(handle)
    })
}

/// Checks that the medium lost no byte since a view was taken: lost bytes look like zeros. Call it
/// after using them. Returns 0, or -1 with EIO (some bytes of the pool were lost), EBADF.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_view_check(view: vellum_handle) -> c_int {
    call("vellum_view_check", &[], || {
        table::get(view)?.view()?.view().check()?;
        Ok(0)
    })
}

/// Releases a view. Its bytes must not be looked at any more. Returns 0, or -1 with EBADF.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_view_release(view: vellum_handle) -> c_int {
    call("vellum_view_release", &[], || {
        table::get(view)?.view()?;
        table::close(view)?;
        Ok(0)
    })
}
