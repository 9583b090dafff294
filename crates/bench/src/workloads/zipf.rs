//! Zipfian numbers as in YCSB (Gray et al., "Quickly generating billion-record synthetic
//! databases", SIGMOD 1994).

use crate::order::Numbers;

/// YCSB's constant of skew.
const THETA: f64 = 0.99;

/// Random numbers below a count; 0 is the most frequent, then 1, and so on.
#[derive(Clone, Debug)]
pub(super) struct Zipf {
    count: u64,
    alpha: f64,
    zeta: f64,
    eta: f64,
}

impl Zipf {
    /// Creates a generator in time proportional to `count`, which is at least 2.
    pub(super) fn new(count: u64) -> Self {
        let zeta_of = |count: u64| -> f64 { (1..=count).map(|i| (i as f64).powf(-THETA)).sum() };
        let zeta = zeta_of(count);
        let eta = (1.0 - (2.0 / count as f64).powf(1.0 - THETA)) / (1.0 - zeta_of(2) / zeta);
        Self {
            count,
            alpha: 1.0 / (1.0 - THETA),
            zeta,
            eta,
        }
    }

    pub(super) fn draw(&self, numbers: &mut Numbers) -> u64 {
        let u = numbers.unit();
        let scaled = u * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5_f64.powf(THETA) {
            return 1;
        }
        let at = self.count as f64 * (self.eta * u - self.eta + 1.0).powf(self.alpha);
        (at as u64).min(self.count - 1)
    }
}

/// The FNV-1a hash of a number's bytes, with which YCSB scatters frequent records over all records.
pub(super) fn fnv(number: u64) -> u64 {
    number
        .to_le_bytes()
        .iter()
        .fold(0xCBF2_9CE4_8422_2325, |hash, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequencies_fall_as_zipf_says() {
        let count = 1000;
        let zipf = Zipf::new(count);
        let mut numbers = Numbers::new(3);
        let draws = 400_000;
        let mut seen = vec![0_u32; count as usize];
        for _ in 0..draws {
            seen[zipf.draw(&mut numbers) as usize] += 1;
        }
        // The first two are exact, and the rest is an approximation, so whole decades are compared.
        let zeta: f64 = (1..=count).map(|i| (i as f64).powf(-THETA)).sum();
        let expected = |range: std::ops::Range<u64>| -> f64 {
            range.map(|i| ((i + 1) as f64).powf(-THETA)).sum::<f64>() / zeta * f64::from(draws)
        };
        for range in [0..1, 1..2, 2..10, 10..100, 100..1000] {
            let found: u32 = seen[range.start as usize..range.end as usize].iter().sum();
            let ratio = f64::from(found) / expected(range.clone());
            assert!((0.85..1.15).contains(&ratio), "{range:?}: {ratio}");
        }
    }

    #[test]
    fn the_hash_is_fnv_1a() {
        // For eight zero bytes, the hash is computed by multiplication alone.
        let prime = 0x0100_0000_01B3_u64;
        let expected = (0..8).fold(0xCBF2_9CE4_8422_2325_u64, |hash, _| {
            hash.wrapping_mul(prime)
        });
        assert_eq!(fnv(0), expected);
        assert_ne!(fnv(1), fnv(2));
    }
}
