//! The order in which files are visited: always the same, whatever is measured.

use std::ffi::CString;

/// The seed of all orders.
pub(crate) const SEED: u64 = 0x5EED_0F7E_1106;

/// The directory whose listing is measured.
pub(crate) const LISTED: &str = "list";

/// SplitMix64: the same numbers on every machine.
#[derive(Clone, Debug)]
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(salt: u64) -> Self {
        Self(SEED ^ salt.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

/// The numbers below `count`, shuffled (Fisher and Yates).
pub(crate) fn shuffled(count: usize, salt: u64) -> Vec<usize> {
    let mut numbers = Numbers::new(salt);
    let mut order: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        order.swap(last, numbers.below(last as u64 + 1) as usize);
    }
    order
}

/// `count` names with the prefix `prefix`, ascending.
pub(crate) fn names(prefix: &str, count: usize) -> Vec<CString> {
    (0..count).map(|number| name(prefix, number)).collect()
}

/// The names of [`names`] in a shuffled order. They are also stored in that order, so that reading
/// them costs as little as possible.
pub(crate) fn shuffled_names(prefix: &str, count: usize, salt: u64) -> Vec<CString> {
    let order = shuffled(count, salt);
    order
        .into_iter()
        .map(|number| name(prefix, number))
        .collect()
}

fn name(prefix: &str, number: usize) -> CString {
    CString::new(format!("{prefix}{number:05}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_visits_everything_once_and_stays() {
        let order = shuffled(1000, 1);
        assert_eq!(order, shuffled(1000, 1));
        assert_ne!(order, shuffled(1000, 2));
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..1000).collect::<Vec<_>>());
        let moved = order
            .iter()
            .enumerate()
            .filter(|(at, to)| at != *to)
            .count();
        assert!(moved > 900);
    }

    #[test]
    fn names_are_the_same_in_both_orders() {
        let mut shuffled = shuffled_names("a/", 100, 7);
        assert_ne!(shuffled, names("a/", 100));
        shuffled.sort();
        assert_eq!(shuffled, names("a/", 100));
    }
}
