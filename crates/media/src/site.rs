//! Sites: names of the steps in the source that make stores durable, and the lines of source that
//! change memory.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::panic::Location;

/// A step in the source that flushes, fences, or stores past the cache. Simulated pools record it;
/// others ignore it, so that it costs nothing. [`sites!`](crate::sites) declares sites.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Site(u16);

impl Site {
    /// For plain stores, and for tests of code without sites.
    pub const UNNAMED: Self = Self(0);

    /// The site with this number; the numbers of a list begin at 1.
    pub const fn numbered(number: u16) -> Self {
        Self(number)
    }

    /// The number within its list.
    pub const fn number(self) -> u16 {
        self.0
    }
}

/// A line of the source. The operations of [`Memory`](crate::Memory) and
/// [`Persistent`](crate::Persistent) that change memory know that of their caller
/// (`#[track_caller]`). Simulated pools record it; other pools do not use it, so that inlining
/// removes it.
#[derive(Clone, Copy, Debug)]
pub struct Caller(&'static Location<'static>);

impl Caller {
    /// The caller's line.
    #[must_use]
    #[track_caller]
    pub const fn here() -> Self {
        Self(Location::caller())
    }

    /// The path of the source file within its crate's `src`.
    #[must_use]
    pub fn file(self) -> &'static str {
        let path = self.0.file();
        path.rsplit_once("/src/").map_or(path, |(_, file)| file)
    }

    /// The line, from 1.
    #[must_use]
    pub const fn line(self) -> u32 {
        self.0.line()
    }

    fn key(self) -> (u32, &'static str) {
        (self.line(), self.0.file())
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file(), self.line())
    }
}

impl PartialEq for Caller {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0) || self.key() == other.key()
    }
}

impl Eq for Caller {}

impl Ord for Caller {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.0.file(), self.line()).cmp(&(other.0.file(), other.line()))
    }
}

impl PartialOrd for Caller {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Hash for Caller {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.line().hash(state);
    }
}

/// Declares sites: a public constant for each, `ALL` with their names in this order, and `name`,
/// which finds the name of a site. With `from N;` in front, numbers begin above N, so that they
/// differ from those of another list.
///
/// ```
/// mod sites {
///     vellum_media::sites! {
///         /// The new entry.
///         CREATE_ENTRY = "create/entry",
///         /// The entry is durable before a log names it.
///         CREATE_ENTRY_DURABLE = "create/entry-durable",
///     }
/// }
/// assert_eq!(sites::ALL[0], (sites::CREATE_ENTRY, "create/entry"));
/// assert_eq!(sites::name(sites::CREATE_ENTRY_DURABLE), "create/entry-durable");
/// ```
#[macro_export]
macro_rules! sites {
    ($($(#[$doc:meta])+ $site:ident = $name:literal),+ $(,)?) => {
        $crate::sites! { from 0; $($(#[$doc])+ $site = $name),+ }
    };
    (from $first:expr; $($(#[$doc:meta])+ $site:ident = $name:literal),+ $(,)?) => {
        /// The number before the first.
        const FIRST: u16 = $first;

        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        #[repr(u16)]
        enum Number { UNNAMED, $($site),+ }

        $(
            $(#[$doc])+
            pub const $site: $crate::Site = $crate::Site::numbered(FIRST + Number::$site as u16);
        )+

        /// Every site with its name.
        pub const ALL: &[($crate::Site, &str)] = &[$(($site, $name)),+];

        /// The name of a site of this list; `unnamed` for any other.
        pub fn name(site: $crate::Site) -> &'static str {
            let _ = Number::UNNAMED;
            match ALL.get(usize::from(site.number()).wrapping_sub(1 + usize::from(FIRST))) {
                Some(&(_, name)) => name,
                None => "unnamed",
            }
        }
    };
}
