//! Random numbers from the distributions that workloads use.

use crate::order::Numbers;

impl Numbers {
    /// A number from 0 up to, but not including, 1.
    pub(super) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// An exponentially distributed number with this mean.
    pub(super) fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }

    /// A gamma distributed number with shape 1.5 and this mean. The sum of an exponential and half
    /// the square of a normal variate (Box and Muller), both of scale 1, has shape 1.5 and mean
    /// 1.5.
    pub(super) fn gamma(&mut self, mean: f64) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        let normal = radius * (std::f64::consts::TAU * self.unit()).cos();
        (self.exponential(1.0) + normal * normal / 2.0) * mean / 1.5
    }

    /// The size in bytes for a variate: at least 1, and at most sixteen times the mean, so that no
    /// random file fills a pool.
    pub(super) fn bytes(variate: f64, mean: u64) -> u64 {
        (variate as u64).clamp(1, mean.saturating_mul(16))
    }

    /// A random element of a list and its position; `None` for an empty list.
    pub(super) fn pick<T: Copy>(&mut self, from: &[T]) -> Option<(usize, T)> {
        let at = self.below(from.len() as u64) as usize;
        Some((at, *from.get(at)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean_of(count: u32, mut draw: impl FnMut() -> f64) -> f64 {
        (0..count).map(|_| draw()).sum::<f64>() / f64::from(count)
    }

    #[test]
    fn means_are_those_that_were_asked_for() {
        let mut numbers = Numbers::new(1);
        let unit = mean_of(100_000, || numbers.unit());
        assert!((unit - 0.5).abs() < 0.01, "{unit}");
        let exponential = mean_of(100_000, || numbers.exponential(16.0));
        assert!((exponential - 16.0).abs() < 0.5, "{exponential}");
        let gamma = mean_of(100_000, || numbers.gamma(128.0));
        assert!((gamma - 128.0).abs() < 4.0, "{gamma}");
        // The variance of this gamma distribution is the square of its mean over 1.5.
        let spread = mean_of(100_000, || (numbers.gamma(1.0) - 1.0).powi(2));
        assert!((spread - 1.0 / 1.5).abs() < 0.05, "{spread}");
    }

    #[test]
    fn sizes_are_bounded() {
        assert_eq!(Numbers::bytes(0.2, 100), 1);
        assert_eq!(Numbers::bytes(70.9, 100), 70);
        assert_eq!(Numbers::bytes(1e9, 100), 1600);
        let mut numbers = Numbers::new(1);
        assert_eq!(numbers.pick::<u8>(&[]), None);
        assert_eq!(numbers.pick(&[7_u8]), Some((0, 7)));
    }
}
