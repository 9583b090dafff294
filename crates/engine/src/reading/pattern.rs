//! Access Pattern Identification (the paper's algorithm III.1).

/// A request to an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// Bytes are read or written.
    Bytes {
        /// The first byte.
        offset: u64,
        /// How many.
        len: u64,
    },
    /// The file is closed.
    Close,
}

/// How a file is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pattern {
    /// Nothing is known yet.
    #[default]
    Unknown,
    /// Few pages are touched before it is closed.
    OneShot,
    /// It is read or written on and on.
    Continuous,
}

/// Follows the requests to one open file.
#[derive(Clone, Copy, Debug)]
pub struct Identification {
    threshold_pages: u64,
    pages: u64,
}

impl Identification {
    /// With the threshold T of the cost model.
    pub fn new(threshold_pages: u64) -> Self {
        Self {
            threshold_pages,
            pages: 0,
        }
    }

    /// Takes a request in; gives what is known after it. Pages count as often as they are touched, and
    /// one that is touched in part counts: each is searched for.
    pub fn request(&mut self, access: Touch) -> Pattern {
        match access {
            Touch::Bytes { offset, len } => {
                self.pages += pages_of(offset, len);
                match self.pages > self.threshold_pages {
                    true => Pattern::Continuous,
                    false => Pattern::Unknown,
                }
            }
            Touch::Close => at_close(self.pages, self.threshold_pages),
        }
    }
}

/// What an opening that touched `pages` came to.
pub(crate) fn at_close(pages: u64, threshold_pages: u64) -> Pattern {
    if pages < threshold_pages {
        Pattern::OneShot
    } else {
        Pattern::Continuous
    }
}

/// Pages that a range touches.
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

    fn follow(threshold: u64, requests: &[Touch]) -> Vec<Pattern> {
        let mut file = Identification::new(threshold);
        requests
            .iter()
            .map(|&request| file.request(request))
            .collect()
    }

    fn touch(offset: u64, len: u64) -> Touch {
        Touch::Bytes { offset, len }
    }

    #[test]
    fn a_file_that_is_looked_at_once_is_one_shot() {
        use Pattern::{OneShot, Unknown};
        assert_eq!(
            follow(12, &[touch(0, 100), Touch::Close]),
            [Unknown, OneShot]
        );
        assert_eq!(follow(12, &[Touch::Close]), [OneShot]);
    }

    #[test]
    fn pages_make_a_file_continuous_not_bytes() {
        use Pattern::{Continuous, OneShot, Unknown};
        let bytes: Vec<_> = (0..13).map(|i| touch(i * 8192, 1)).collect();
        let got = follow(12, &bytes);
        assert_eq!(got[11], Unknown, "not more than T");
        assert_eq!(got[12], Continuous);
        assert_eq!(
            follow(12, &[touch(0, 13 * 4096), Touch::Close])[1],
            Continuous
        );
        assert_eq!(follow(12, &[touch(0, 11 * 4096), Touch::Close])[1], OneShot);
        // A range of two bytes may touch two pages.
        assert_eq!(follow(1, &[touch(4095, 2)]), [Continuous]);
    }

    #[test]
    fn pages_read_again_count_again() {
        let got = follow(12, &[touch(0, 4096); 13]);
        assert_eq!(got.last(), Some(&Pattern::Continuous));
    }

    #[test]
    fn ranges_cut_into_pages() {
        assert_eq!(pages_of(0, 0), 0);
        assert_eq!(pages_of(4095, 1), 1);
        assert_eq!(pages_of(4096, 4096), 1);
        assert_eq!(pages_of(1, 4096), 2);
    }
}
