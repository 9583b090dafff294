//! Listing a directory from a position that also records how far it reached when the listing began.
//!
//! A user of a listing keeps only the position of the last entry that it took, because the kernel
//! keeps nothing more of an open directory. A new name, and the new name of a rename, gets a cookie
//! above all others. So a listing that continued to the present end would meet what its own user
//! renames again and again. A position therefore carries two numbers: the cookie of the entry, and
//! the *horizon*, the last cookie that was assigned when the listing began. Entries beyond the
//! horizon belong to no listing that began earlier.
//!
//! A name that a rename replaces exists throughout, yet its new entry lies beyond the horizon.
//! After such a rename, a listing of the directory has a second pass, over the entries between its
//! horizon and the last cookie assigned when the second pass begins. So a listing ends, whatever
//! its user renames, and returns no name more than twice.

use vellum_layout::FileKind;
use vellum_media::Memories;

use crate::core::cachelet::{Cachelet, flag};
use crate::core::slots::Op;
use crate::error::{Error, Result};
use crate::fs::{Fs, Node};
use crate::namespace::{COOKIE_MAX, FIRST_COOKIE, ListEntry, ListHint, ListRange};

/// The state of a listing; keep it between calls of [`Fs::list`]. It is only a hint: the position
/// of the entry decides.
///
/// ```
/// # let pool = vellum::Pool::memory(16 << 20)?;
/// # let (fs, root, cred) = (pool.fs(), pool.fs().root(), vellum::Cred::root());
/// # fs.mkdir(&cred, &root, b"a", 0o755)?;
/// # fs.mkdir(&cred, &root, b"b", 0o755)?;
/// let (mut position, mut after, mut names) = (vellum::ListPosition::default(), 0, Vec::new());
/// for wanted in 1..=2 {
///     fs.list(&root, after, &mut position, &mut |entry| {
///         if names.len() == wanted {
///             return false; // this entry comes first in the next call
///         }
///         names.push(entry.name.to_vec());
///         after = entry.cookie;
///         true
///     })?;
/// }
/// assert_eq!(names.len(), 2);
/// # Ok::<(), vellum::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct ListPosition {
    hint: ListHint,
}

/// Horizons below this are exact; see [`Cursor`].
const HORIZON_END: u64 = 1 << 31;
/// Added to the cookie in positions without a horizon.
const ENDLESS: u64 = HORIZON_END * HORIZON_END;

/// A pass over a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    /// Everything up to the horizon.
    First,
    /// Entries that replaced names of the first pass.
    Second,
}

/// A decoded position of a listing: the pass, the cookie after which it continues, and the cookie
/// up to which it goes.
///
/// As a number, with horizon `h` and cookie `c`: h² + c in the first pass, h² + h + c in the
/// second. A cookie is at most `h`, so each number is one cursor, and numbers ascend along a
/// listing. They stay small in small directories, for programs with 32-bit positions. From a
/// horizon of 2^31 on the number is 2^62 + c. Such a listing has no horizon, and meets names that
/// are created meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cursor {
    range: ListRange,
    pass: Pass,
}

impl Cursor {
    /// Decodes a position. `None`: a listing begins there.
    fn decode(position: u64) -> Option<Self> {
        if position >= ENDLESS {
            return Some(Self::new(Pass::First, position - ENDLESS, u64::MAX));
        }
        let horizon = position.isqrt();
        if horizon < FIRST_COOKIE {
            return None;
        }
        let rest = position - horizon * horizon;
        let (pass, after) = match rest.checked_sub(horizon + 1) {
            None => (Pass::First, rest),
            Some(less_one) => (Pass::Second, less_one + 1),
        };
        Some(Self::new(pass, after, horizon))
    }

    /// A pass over the cookies above `after` and up to `until`.
    fn new(pass: Pass, after: u64, until: u64) -> Self {
        let (until, offset) = match (until, pass) {
            (HORIZON_END.., _) => (u64::MAX, ENDLESS),
            (horizon, Pass::First) => (horizon, horizon * horizon),
            (horizon, Pass::Second) => (horizon, horizon * horizon + horizon),
        };
        let range = ListRange {
            after,
            until,
            offset,
        };
        Self { range, pass }
    }
}

impl<M: Memories> Fs<M> {
    /// Lists a directory behind the position `after` (0: from the beginning), without `.` and `..`,
    /// until `each` returns false; that entry is not consumed. The position of an entry is its
    /// [`ListEntry::cookie`]; positions ascend. `each` borrows the name.
    ///
    /// ```
    /// # let pool = vellum::Pool::memory(16 << 20)?;
    /// # let (fs, root, cred) = (pool.fs(), pool.fs().root(), vellum::Cred::root());
    /// fs.mkdir(&cred, &root, b"d", 0o755)?;
    /// let mut names = Vec::new();
    /// fs.list(&root, 0, &mut Default::default(), &mut |entry| {
    ///     names.push(entry.name.to_vec());
    ///     true // go on
    /// })?;
    /// assert_eq!(names, [b"d"]);
    /// # Ok::<(), vellum::Error>(())
    /// ```
    ///
    /// The closure must not call the file system.
    ///
    /// # Errors
    /// Fails if it is not a directory, or media are damaged. Permission to read is checked at
    /// opening.
    pub fn list(
        &self,
        dir: &Node<M>,
        after: u64,
        position: &mut ListPosition,
        each: &mut dyn FnMut(ListEntry<'_>) -> bool,
    ) -> Result<()> {
        // A repetition would return the same entries again.
        self.with_op_once(|op| {
            if op.core.kind(dir.cachelet) != FileKind::Directory {
                return Err(Error::NotDirectory);
            }
            self.list_from(op, dir.cachelet, after, &mut position.hint, each)?;
            op.core.touch(dir.cachelet, FileKind::Directory);
            Ok(())
        })
    }

    fn list_from(
        &self,
        op: &Op<'_, M>,
        dir: Cachelet,
        after: u64,
        hint: &mut ListHint,
        each: &mut dyn FnMut(ListEntry<'_>) -> bool,
    ) -> Result<()> {
        let cursor = match Cursor::decode(after) {
            Some(cursor) => cursor,
            None => {
                let until = self.horizon(op, dir)?;
                Cursor::new(Pass::First, 0, until)
            }
        };
        let Some(last) = self.namespace.list(op, dir, cursor.range, hint, each)? else {
            return Ok(());
        };
        if cursor.pass == Pass::Second || !op.core.has_flag(dir, flag::REPLACED) {
            return Ok(());
        }
        let until = self.horizon(op, dir)?;
        if until > cursor.range.until {
            let second = Cursor::new(Pass::Second, last, until);
            self.namespace.list(op, dir, second.range, hint, each)?;
        }
        Ok(())
    }

    /// The last cookie assigned so far. A damaged directory has no horizon: everything readable in
    /// it is listed.
    fn horizon(&self, op: &Op<'_, M>, dir: Cachelet) -> Result<u64> {
        match self.namespace.last_cookie(op, dir) {
            Err(Error::Damaged { .. }) => Ok(COOKIE_MAX),
            known => known,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Cursor {
        /// The position of the entry with this cookie.
        fn position_of(self, cookie: u64) -> u64 {
            self.range.offset + cookie
        }
    }

    #[test]
    fn a_position_is_one_cursor() {
        let horizons = [3, 4, 5, 100, 65_535, 1 << 20, HORIZON_END - 1];
        for until in horizons {
            for after in [3, until.div_ceil(2).max(3), until] {
                for pass in [Pass::First, Pass::Second] {
                    let cursor = Cursor::new(pass, after, until);
                    let position = cursor.position_of(after);
                    assert_eq!(Cursor::decode(position), Some(cursor), "{position}");
                }
            }
        }
    }

    #[test]
    fn positions_ascend_along_a_listing() {
        for until in [3, 9, 1000, HORIZON_END - 2] {
            let first = Cursor::new(Pass::First, 0, until);
            let second = Cursor::new(Pass::Second, until, until + 1);
            assert!(first.position_of(3) > 2, "1 and 2 are `.` and `..`");
            assert!(first.position_of(until) < second.position_of(3));
            assert!(second.position_of(until + 1) < ENDLESS);
        }
    }

    #[test]
    fn beyond_the_last_horizon_a_position_is_a_cookie_alone() {
        let cookies = [3, HORIZON_END, COOKIE_MAX];
        for cookie in cookies {
            let endless = Cursor::new(Pass::First, 0, HORIZON_END);
            let position = endless.position_of(cookie);
            assert!(i64::try_from(position).is_ok(), "positions are signed");
            let decoded = Cursor::decode(position).map(|cursor| cursor.range);
            let range = ListRange {
                offset: ENDLESS,
                ..ListRange::behind(cookie)
            };
            assert_eq!(decoded, Some(range));
        }
    }

    #[test]
    fn a_listing_begins_where_no_entry_is() {
        for position in 0..9 {
            assert_eq!(Cursor::decode(position), None, "{position}");
        }
        // A program may seek to any position.
        for position in [9, 1 << 40, ENDLESS - 1, ENDLESS, u64::MAX] {
            assert!(Cursor::decode(position).is_some(), "{position}");
        }
    }
}
