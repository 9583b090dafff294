//! Access Pattern Identification (the paper's algorithm III.1).

use std::sync::atomic::{AtomicU64, Ordering};

/// T while it is unknown: the paper's value. Measured values are close to it (7 to 12).
pub(crate) const ASSUMED_THRESHOLD_PAGES: u64 = 12;

/// How a file is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// Nothing is known yet.
    #[default]
    Unknown,
    /// Few pages are touched before the close.
    OneShot,
    /// The file is read or written continuously.
    Continuous,
}

/// Follows the requests to one open file. A page counts each time it is touched, and also if it is
/// touched in part, because each time is a search.
#[derive(Debug, Default)]
pub(crate) struct Identification {
    /// Number of pages touched. Counted without a locked instruction: threads that share the
    /// opening may lose a few.
    pages: AtomicU64,
}

impl Identification {
    /// Counts a request that touches `pages`. Returns the new total.
    #[inline]
    pub(crate) fn touch(&self, pages: u64) -> u64 {
        let touched = self.pages() + pages;
        self.pages.store(touched, Ordering::Relaxed);
        touched
    }

    /// Pages touched so far.
    #[inline]
    pub(crate) fn pages(&self) -> u64 {
        self.pages.load(Ordering::Relaxed)
    }

    /// The pattern while the file is open, by the threshold T of the cost model.
    pub(crate) fn so_far(&self, threshold_pages: u64) -> Pattern {
        if self.pages() > threshold_pages {
            Pattern::Continuous
        } else {
            Pattern::Unknown
        }
    }

    /// The pattern of the whole opening.
    pub(crate) fn at_close(&self, threshold_pages: u64) -> Pattern {
        if self.pages() < threshold_pages {
            Pattern::OneShot
        } else {
            Pattern::Continuous
        }
    }
}

/// Number of pages that a range touches.
pub(crate) fn pages_of(offset: u64, len: u64) -> u64 {
    use vellum_layout::BLOCK_BYTES;
    match len {
        0 => 0,
        len => offset.saturating_add(len - 1) / BLOCK_BYTES - offset / BLOCK_BYTES + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: u64 = 12;

    /// The pattern after each request to a range, and at the close.
    fn follow(requests: &[(u64, u64)]) -> (Vec<Pattern>, Pattern) {
        let file = Identification::default();
        let known = requests.iter().map(|&(offset, len)| {
            file.touch(pages_of(offset, len));
            file.so_far(T)
        });
        (known.collect(), file.at_close(T))
    }

    #[test]
    fn a_file_that_is_read_once_is_one_shot() {
        use Pattern::{OneShot, Unknown};
        assert_eq!(follow(&[(0, 100)]), (vec![Unknown], OneShot));
        assert_eq!(follow(&[]), (vec![], OneShot));
    }

    #[test]
    fn pages_make_a_file_continuous_not_bytes() {
        use Pattern::{Continuous, OneShot, Unknown};
        let bytes: Vec<_> = (0..13).map(|i| (i * 8192, 1)).collect();
        let (got, _) = follow(&bytes);
        assert_eq!(got[11], Unknown, "not more than T");
        assert_eq!(got[12], Continuous);
        assert_eq!(follow(&[(0, 13 * 4096)]), (vec![Continuous], Continuous));
        assert_eq!(follow(&[(0, 12 * 4096)]), (vec![Unknown], Continuous));
        assert_eq!(follow(&[(0, 11 * 4096)]), (vec![Unknown], OneShot));
    }

    #[test]
    fn pages_read_again_count_again() {
        let (got, at_close) = follow(&[(0, 4096); 13]);
        assert_eq!(got.last(), Some(&Pattern::Continuous));
        assert_eq!(at_close, Pattern::Continuous);
    }

    #[test]
    fn ranges_cut_into_pages() {
        assert_eq!(pages_of(0, 0), 0);
        assert_eq!(pages_of(4095, 1), 1);
        assert_eq!(pages_of(4096, 4096), 1);
        assert_eq!(pages_of(1, 4096), 2);
        // A range of two bytes may touch two pages.
        assert_eq!(pages_of(4095, 2), 2);
    }
}
