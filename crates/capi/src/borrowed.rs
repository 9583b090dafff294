//! What a C program lends for the time of a call: paths, buffers, structures.
//!
//! The types here are pointers that come from C as parameters. Nothing in safe Rust makes one, so
//! whoever has one may rely on the promise of `vellum.h`: a pointer is NULL, or points to what its
//! parameter's type and length say, which nobody else changes before the call returns. NULL is
//! found, and everything else is believed, as everywhere in C.
//!
//! All unsafe blocks of the library are here, in `table` and in `threads`.
#![expect(
    unsafe_code,
    reason = "a C program's memory is reached by its pointers"
)]

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::slice;

use libc::{c_char, c_void};
use vellum::View;
use vellum::media::Real;
use zerocopy::{Immutable, IntoBytes};

use crate::failure::{Failure, Result};
use crate::locks::vellum_lock_range;
use crate::objects::Object;
use crate::pools::{vellum_create_options, vellum_cred, vellum_open_options};
use crate::table::{Held, Pinned};

/// A path, or another text that ends at a zero byte. May be NULL.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct CPath(*const c_char);

/// Bytes that a call reads. May be NULL if there are none.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct InBytes(*const c_void);

/// Bytes that a call writes. May be NULL if there are none.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct OutBytes(*mut c_void);

/// A structure, or an array of them, that a call reads. May be NULL.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct In<T>(*const T);

/// A place for a structure or number, which a call may also read first. May be NULL.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Out<T>(*mut T);

/// Numbers, pointers, and structures of these: any bytes are one, zeros too.
///
/// # Safety
/// Only for types that fulfil this.
pub unsafe trait FromC: Copy {}

macro_rules! from_c {
    ($($type:ty),*) => {$(
        // SAFETY: numbers and pointers.
        unsafe impl FromC for $type {}
    )*};
}

from_c!(
    CPath,
    i64,
    u32,
    libc::iovec,
    libc::timespec,
    vellum_create_options,
    vellum_cred,
    vellum_lock_range,
    vellum_open_options
);

/// The longest buffer: what Rust's slices and `ssize_t` can count.
const LEN_MAX: usize = isize::MAX as usize;

impl CPath {
    /// # Errors
    /// Fails with `EFAULT` if it is NULL.
    pub(crate) fn bytes(&self) -> Result<&[u8]> {
        self.text().ok_or(Failure::NULL)
    }

    /// The text without its zero byte; `None` if it is NULL.
    pub(crate) fn text(&self) -> Option<&[u8]> {
        // SAFETY: it is not NULL, so it points to a text that ends at a zero byte and does not
        // change before the call returns. What is returned borrows from a parameter of the call.
        (!self.0.is_null()).then(|| unsafe { CStr::from_ptr(self.0) }.to_bytes())
    }

    /// The text for a message; nothing if it is NULL.
    pub(crate) fn for_message(&self) -> &[u8] {
        self.text().unwrap_or(b"")
    }
}

impl InBytes {
    /// # Errors
    /// Fails with `EFAULT` if it is NULL, and with `EINVAL` if the length is impossible.
    #[inline]
    pub(crate) fn of(&self, len: usize) -> Result<&[u8]> {
        if check_buffer(self.0, len)? == 0 {
            return Ok(&[]);
        }
        // SAFETY: it is not NULL, so `len` bytes are there, which nobody changes before the call
        // returns; they are at most `isize::MAX`. Memory of a C program has some value in each
        // byte. What is returned borrows from a parameter of the call.
        Ok(unsafe { slice::from_raw_parts(self.0.cast(), len) })
    }

    /// The bytes of a segment, which came from C.
    pub(crate) fn of_segment(segment: &libc::iovec) -> Self {
        Self(segment.iov_base)
    }
}

impl OutBytes {
    /// # Errors
    /// Fails with `EFAULT` if it is NULL, and with `EINVAL` if the length is impossible.
    #[inline]
    pub(crate) fn of(&mut self, len: usize) -> Result<&mut [u8]> {
        if check_buffer(self.0, len)? == 0 {
            return Ok(&mut []);
        }
        // SAFETY: it is not NULL, so `len` bytes are there, which nobody else looks at before the
        // call returns; they are at most `isize::MAX`. Memory of a C program has some value in each
        // byte. A call makes one such slice at a time: it borrows from the parameter.
        Ok(unsafe { slice::from_raw_parts_mut(self.0.cast(), len) })
    }

    /// The bytes of a segment, which came from C.
    pub(crate) fn of_segment(segment: &libc::iovec) -> Self {
        Self(segment.iov_base)
    }
}

#[inline]
fn check_buffer(at: *const c_void, len: usize) -> Result<usize> {
    match len {
        0 => Ok(0),
        _ if at.is_null() => Err(Failure::NULL),
        1..=LEN_MAX => Ok(len),
        _ => Err(Failure::invalid("a buffer of more than 2^63 - 1 bytes")),
    }
}

impl<T> In<T> {
    pub(crate) fn is_null(&self) -> bool {
        self.0.is_null()
    }
}

impl<T: FromC> In<T> {
    /// An array.
    ///
    /// # Errors
    /// Fails with `EFAULT` if it is NULL and has elements.
    pub(crate) fn array(&self, len: usize) -> Result<&[T]> {
        match len {
            0 => Ok(&[]),
            _ if self.0.is_null() => Err(Failure::NULL),
            // SAFETY: it is not NULL, so `len` elements are there, which nobody changes before the
            // call returns. What is returned borrows from a parameter of the call.
            _ => Ok(unsafe { slice::from_raw_parts(self.0, len) }),
        }
    }

    /// A structure. The caller knows its first `size` bytes. The rest is zero, and so is
    /// all of it if the pointer is NULL.
    ///
    /// # Errors
    /// Fails with `E2BIG` if the caller has set a part that this release does not know.
    pub(crate) fn sized(&self, size: usize) -> Result<T> {
        let mut known = MaybeUninit::<T>::zeroed();
        if !self.0.is_null() {
            let given = InBytes(self.0.cast());
            let (given, unknown) = given.of(size)?.split_at(size.min(size_of::<T>()));
            if unknown.iter().any(|&byte| byte != 0) {
                let text = "the structure has parts that this release of the library lacks";
                return Err(Failure::Own(libc::E2BIG, text));
            }
            // SAFETY: the bytes are those of `known` and no more; `given` is not part of it.
            let bytes =
                unsafe { slice::from_raw_parts_mut(known.as_mut_ptr().cast(), given.len()) };
            bytes.copy_from_slice(given);
        }
        // SAFETY: any bytes are a `FromC`, and all were set, to zero first.
        Ok(unsafe { known.assume_init() })
    }
}

impl<T> Out<T> {
    /// # Errors
    /// Fails with `EFAULT` if it is NULL.
    pub(crate) fn check(&self) -> Result<()> {
        match self.0.is_null() {
            true => Err(Failure::NULL),
            false => Ok(()),
        }
    }

    /// # Errors
    /// Fails with `EFAULT` if it is NULL, and with `EINVAL` if the size is less than `least`, that
    /// of the structure in the first release.
    #[inline]
    pub(crate) fn check_size(&self, size: usize, least: usize) -> Result<()> {
        self.check()?;
        match size < least {
            false => Ok(()),
            true => Err(Failure::invalid(
                "the size is less than that of the structure in any release",
            )),
        }
    }

    /// Writes a value, unless it is NULL.
    pub(crate) fn set(&mut self, value: T) {
        if !self.0.is_null() {
            // SAFETY: it is not NULL, so there is a place for a value, which nobody else looks at.
            unsafe { self.0.write(value) };
        }
    }
}

impl<T: FromC> Out<T> {
    /// Reads what is there; `None` if it is NULL.
    pub(crate) fn get(&self) -> Option<T> {
        // SAFETY: it is not NULL, so it points to a value, and any bytes are one.
        (!self.0.is_null()).then(|| unsafe { self.0.read() })
    }
}

impl<T: IntoBytes + Immutable> Out<T> {
    /// Writes a structure. The caller knows its first `size` bytes. What the caller knows
    /// and this release does not is set to zero.
    ///
    /// # Errors
    /// As [`Self::check_size`].
    #[inline]
    pub(crate) fn set_sized(&mut self, size: usize, least: usize, value: &T) -> Result<()> {
        self.check_size(size, least)?;
        let mut out = OutBytes(self.0.cast());
        let (known, unknown) = out.of(size)?.split_at_mut(size.min(size_of::<T>()));
        known.copy_from_slice(&value.as_bytes()[..known.len()]);
        unknown.fill(0);
        Ok(())
    }
}

/// A view of a file, and the open file that it borrows, which stays as long as the view.
pub(crate) struct HeldView {
    /// Dropped first.
    view: View<'static, Real>,
    _file: Pinned,
}

impl HeldView {
    /// # Errors
    /// Fails as `take` does.
    pub(crate) fn new(
        file: &Held,
        take: impl for<'f> FnOnce(&'f Object) -> Result<View<'f, Real>>,
    ) -> Result<Self> {
        let file = file.pin();
        let view = take(&file)?;
        // SAFETY: the view borrows the object behind `file`. That object stays where it is until
        // the pin `file` is dropped, which happens after the view is dropped. Nobody outside sees
        // the longer lifetime: `view` is returned for the time of a borrow of this.
        let view = unsafe { std::mem::transmute::<View<'_, Real>, View<'static, Real>>(view) };
        Ok(Self { view, _file: file })
    }

    pub(crate) fn view<'a>(&'a self) -> &'a View<'a, Real> {
        &self.view
    }
}
