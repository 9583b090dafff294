//! Open files of a volume.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use vellum_media::Real;

use super::metadata::{Metadata, Permissions, ns_of};
use crate::error::{Error, Result};
use crate::fs::{Handle, SetAttr, SetTime, View};
use crate::reading::Rule;

/// An open file. Reads, writes and seeks share one position; `read_at` and `write_at` do not use
/// it.
///
/// Threads that share a `File` take turns at the position, like threads that share a file
/// descriptor: a read, a write or a seek begins where the one before ended. So each byte of the
/// file goes to one reader, and one call does not overwrite what another wrote.
///
/// ```
/// # let pool = vellum::Pool::memory(16 << 20)?;
/// # let volume = pool.volume();
/// use std::io::{Read, Seek, Write};
///
/// let mut file = volume.create("/f")?;
/// file.write_all(b"one two")?;
/// file.seek(std::io::SeekFrom::Start(4))?;
/// let mut text = String::new();
/// file.read_to_string(&mut text)?;
/// assert_eq!(text, "two");
/// # Ok::<(), vellum::Error>(())
/// ```
#[derive(Debug)]
pub struct File {
    handle: Handle<Real>,
    /// Held from reading the position until it is moved.
    position: Mutex<u64>,
}

impl File {
    /// Returns the handle, which reads and writes by offset.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// # let file = volume.create("/f")?;
    /// use vellum::Allocate;
    ///
    /// file.handle().allocate(Allocate::KeepSize, 0, 1 << 20)?;
    /// assert_eq!(file.metadata()?.blocks() * 512, 1 << 20);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    pub fn handle(&self) -> &Handle<Real> {
        &self.handle
    }

    pub(super) fn new(handle: Handle<Real>) -> Self {
        Self {
            handle,
            position: Mutex::new(0),
        }
    }

    /// Reads at an offset. Returns fewer bytes than asked for only at the end of the file.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// volume.write("/f", "one two")?;
    /// let mut out = [0; 10];
    /// assert_eq!(volume.open("/f")?.read_at(&mut out, 4)?, 3);
    /// assert_eq!(&out[..3], b"two");
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the file is not open for reading, or the medium is damaged.
    pub fn read_at(&self, out: &mut [u8], offset: u64) -> Result<usize> {
        self.handle.read_at(offset, out)
    }

    /// Fills `out` from an offset on.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// volume.write("/f", "one two")?;
    /// let (file, mut out) = (volume.open("/f")?, [0; 3]);
    /// file.read_exact_at(&mut out, 4)?;
    /// assert_eq!(&out, b"two");
    /// assert!(file.read_exact_at(&mut out, 5).is_err());
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails as [`Self::read_at`], or if the file ends too early.
    pub fn read_exact_at(&self, out: &mut [u8], offset: u64) -> Result<()> {
        match self.read_at(out, offset)? {
            len if len == out.len() => Ok(()),
            _ => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
        }
    }

    /// Returns a view of a range of the file, up to the end of the file: in place if possible, else
    /// a copy. Writers of bytes in place wait until the view is dropped; see [`View`].
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// volume.write("/f", "one two")?;
    /// let file = volume.open("/f")?;
    /// assert_eq!(&*file.view(4..7)?, b"two");
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the file is not open for reading, or the medium is damaged.
    pub fn view(&self, range: Range<u64>) -> Result<View<'_, Real>> {
        self.handle.view(range)
    }

    /// Returns a [`view`](Self::view), with a rule of its own for building a page table:
    /// [`Rule::Mmu`](crate::reading::Rule::Mmu) asks for one. See [`Handle::view_by`].
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// use vellum::reading::Rule;
    ///
    /// volume.write("/f", vec![7; 1 << 20])?;
    /// let file = volume.open("/f")?;
    /// assert_eq!(file.view_by(0..1 << 20, Rule::Mmu)?[1000], 7);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails as [`Self::view`].
    pub fn view_by(&self, range: Range<u64>, rule: Rule) -> Result<View<'_, Real>> {
        self.handle.view_by(range, rule)
    }

    /// Writes at an offset. Returns how many bytes were written.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// # let file = volume.create("/f")?;
    /// assert_eq!(file.write_at(b"two", 4)?, 3);
    /// assert_eq!(volume.read("/f")?, b"\0\0\0\0two");
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the file is not open for writing, space is short, the file would be too large, or
    /// the medium is damaged.
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<usize> {
        self.handle.write_at(offset, data)
    }

    /// Writes all of `data` at an offset.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// # let file = volume.create("/f")?;
    /// file.write_all_at(b"one two", 0)?;
    /// file.write_all_at(b"six", 4)?;
    /// assert_eq!(volume.read("/f")?, b"one six");
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails as [`Self::write_at`], possibly after writing some of the data.
    pub fn write_all_at(&self, data: &[u8], offset: u64) -> Result<()> {
        let mut done = 0;
        while done < data.len() {
            done += self.write_at(&data[done..], offset + done as u64)?;
        }
        Ok(())
    }

    /// Truncates or extends the file.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// # let file = volume.create("/f")?;
    /// file.write_all_at(b"one two", 0)?;
    /// file.set_len(3)?;
    /// assert_eq!(volume.read("/f")?, b"one");
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails as [`Self::write_at`].
    pub fn set_len(&self, size: u64) -> Result<()> {
        self.handle.truncate(size)
    }

    /// Makes every change of this file durable, as far as the medium can.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("pool");
    /// # let options = vellum::CreateOptions::new(64 << 20).media(vellum::MediaChoice::Logged);
    /// # options.create(&path)?.close()?;
    /// # let pool = vellum::Pool::open(&path)?;
    /// let file = pool.volume().create("/f")?;
    /// file.write_all_at(b"kept", 0)?;
    /// file.sync_all()?; // survives a power cut from here on
    /// assert!(pool.fs().log_counts().is_some_and(|log| log.commits > 0));
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the medium fails.
    pub fn sync_all(&self) -> Result<()> {
        self.handle.sync()
    }

    /// Makes the content of this file, and the attributes needed to read it, durable. The same as
    /// [`Self::sync_all`].
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// # let file = volume.create("/f")?;
    /// file.write_all_at(b"kept", 0)?;
    /// file.sync_data()?;
    /// assert_eq!(volume.read("/f")?, b"kept");
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the medium fails.
    pub fn sync_data(&self) -> Result<()> {
        self.sync_all()
    }

    /// Returns the file's attributes.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// # let file = volume.create("/f")?;
    /// file.write_all_at(b"text", 0)?;
    /// assert_eq!(file.metadata()?.len(), 4);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the medium is damaged.
    pub fn metadata(&self) -> Result<Metadata> {
        self.handle.attr().map(Metadata::new)
    }

    /// Changes the permission bits, as the user who opened the file.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// # let file = volume.create("/f")?;
    /// file.set_permissions(vellum::Permissions::from_mode(0o400))?;
    /// assert!(file.metadata()?.permissions().readonly());
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `fchmod(2)`.
    pub fn set_permissions(&self, permissions: Permissions) -> Result<()> {
        self.set(&SetAttr {
            mode: Some(permissions.mode() as u16),
            ..SetAttr::default()
        })
    }

    /// Changes the time of the last modification.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let volume = pool.volume();
    /// # let file = volume.create("/f")?;
    /// use std::time::{Duration, SystemTime};
    ///
    /// let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    /// file.set_modified(time)?;
    /// assert_eq!(file.metadata()?.modified()?, time);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `futimens(2)`.
    pub fn set_modified(&self, time: SystemTime) -> Result<()> {
        self.set(&SetAttr {
            mtime: Some(SetTime::At(ns_of(time))),
            ..SetAttr::default()
        })
    }

    fn set(&self, set: &SetAttr) -> Result<()> {
        self.handle.set_attr(set).map(drop)
    }

    /// Waits for this call's turn at the position. A call that panicked has not moved it, so it is
    /// valid.
    ///
    /// # Errors
    /// Fails if this process may not use the pool: in a forked child, a lock that a thread of the
    /// parent held is never released.
    fn turn(&self) -> Result<MutexGuard<'_, u64>> {
        self.handle.check_use()?;
        Ok(self.position.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn read_on(&self, out: &mut [u8]) -> io::Result<usize> {
        let mut position = self.turn()?;
        let len = self.handle.read_at(*position, out)?;
        *position += len as u64;
        Ok(len)
    }

    fn write_on(&self, data: &[u8]) -> io::Result<usize> {
        let mut position = self.turn()?;
        let (at, len) = if self.handle.options().append {
            self.handle.append(data)?
        } else {
            (*position, self.handle.write_at(*position, data)?)
        };
        *position = at + len as u64;
        Ok(len)
    }

    fn seek_to(&self, to: SeekFrom) -> io::Result<u64> {
        let mut position = self.turn()?;
        let (base, offset) = match to {
            SeekFrom::Start(at) => (at, 0),
            SeekFrom::Current(offset) => (*position, offset),
            SeekFrom::End(offset) => (self.metadata()?.len(), offset),
        };
        *position = base
            .checked_add_signed(offset)
            .ok_or(Error::Invalid("a seek to before the start of the file"))?;
        Ok(*position)
    }
}

macro_rules! io_traits {
    ($($file:ty),*) => {$(
        impl Read for $file {
            fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
                self.read_on(out)
            }
        }

        impl Write for $file {
            fn write(&mut self, data: &[u8]) -> io::Result<usize> {
                self.write_on(data)
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }

        impl Seek for $file {
            fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
                self.seek_to(to)
            }
        }
    )*};
}

io_traits!(File, &File);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Pool;

    #[test]
    fn calls_with_an_offset_do_not_wait_for_the_position() {
        let pool = Pool::memory(16 << 20).expect("made");
        let file = pool.volume().create("/f").expect("made");
        let turn = file.turn().expect("given");
        assert_eq!(file.write_at(b"abc", 0).expect("written"), 3);
        let mut read = [0; 3];
        assert_eq!(file.read_at(&mut read, 0).expect("read"), 3);
        assert_eq!(
            (&read, &*file.view(0..3).expect("seen")),
            (b"abc", &b"abc"[..])
        );
        file.set_len(2).expect("cut");
        assert_eq!(file.metadata().expect("told").len(), 2);
        file.sync_all().expect("synced");
        drop(turn);
    }

    #[test]
    fn a_call_that_panicked_leaves_the_position_to_others() {
        let pool = Pool::memory(16 << 20).expect("made");
        let mut file = pool.volume().create("/f").expect("made");
        file.write_all(b"abc").expect("written");
        std::thread::scope(|scope| {
            let panicking = scope.spawn(|| {
                let _turn = file.turn().expect("given");
                std::panic::resume_unwind(Box::new("in the middle of a call"));
            });
            panicking.join().expect_err("it panicked");
        });
        file.write_all(b"def").expect("written");
        assert_eq!(pool.volume().read("/f").expect("read"), b"abcdef");
    }
}
