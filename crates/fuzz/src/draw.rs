//! Inputs for a run of the tests, the same ones every time.

/// The environment variable with the seed.
const SEED: &str = "VELLUM_FUZZ_SEED";
/// The longest input. A target reads far less of one.
const BYTES_MAX: u64 = 1024;

/// Tries a target on `cases` inputs of any length and content, drawn by the seed in
/// `VELLUM_FUZZ_SEED` (default 0). Prints the input on which it panics.
///
/// Does nothing under a fuzzer, which has its own inputs.
pub fn draw(cases: usize, target: fn(&[u8])) {
    for bytes in drawn(cases) {
        let _shown = Shown(&bytes);
        target(&bytes);
    }
}

/// An input that is shown if its case panics.
struct Shown<'a>(&'a [u8]);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the input: {:02x?}", self.0);
        }
    }
}

fn drawn(cases: usize) -> impl Iterator<Item = Vec<u8>> {
    let seed = std::env::var(SEED).ok().and_then(|seed| seed.parse().ok());
    let mut numbers = Numbers(seed.unwrap_or(0));
    let cases = if cfg!(fuzzing) { 0 } else { cases };
    (0..cases).map(move |_| {
        // Half of them are short, so that few changes come together.
        let most = BYTES_MAX >> (numbers.next() % 6);
        let len = numbers.next() % most;
        (0..len).map(|_| numbers.next() as u8).collect()
    })
}

/// Sebastiano Vigna's SplitMix64.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

/// Defines the body of a target: a function of bytes. It is tried on inputs that are drawn
/// ([`draw`]) and on those kept for it (see `docs/TESTING.md`), or by the fuzzer that the test was
/// built for.
#[macro_export]
macro_rules! target {
    ($cases:expr, $target:expr) => {{
        let target: fn(&[u8]) = $target;
        $crate::draw($cases, target);
        bolero::check!().with_iterations(0).for_each(target);
    }};
}
