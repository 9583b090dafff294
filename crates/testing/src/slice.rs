//! Slices of cases. A short run tries some of many cases. The selection depends on their names and
//! on the tested sources, so a run fails because of a change and not by chance. A long run
//! (`VELLUM_WHOLE=1`) tries all cases.

use xxhash_rust::xxh3::xxh3_64;

/// Whether this is a long run, which tries every case.
pub fn is_whole() -> bool {
    std::env::var_os("VELLUM_WHOLE").is_some_and(|value| value == "1")
}

/// Returns one in `of` of the `cases` (at least one if there are any), in their order: those whose
/// keys have the lowest hashes. A key is the name of a case and the tested source. Returns all
/// cases in a long run.
pub fn slice<T>(
    of: usize,
    cases: impl IntoIterator<Item = T>,
    key: impl Fn(&T) -> String,
) -> Vec<T> {
    let hash = |case: T| (xxh3_64(key(&case).as_bytes()), case);
    let cases: Vec<(u64, T)> = cases.into_iter().map(hash).collect();
    let chosen = if is_whole() {
        cases.len()
    } else {
        cases.len().div_ceil(of)
    };
    let mut hashes: Vec<u64> = cases.iter().map(|(hash, _)| *hash).collect();
    hashes.sort_unstable();
    let highest = hashes.get(chosen.saturating_sub(1)).copied();
    let cases = cases.into_iter().filter(|(hash, _)| Some(*hash) <= highest);
    cases.map(|(_, case)| case).collect()
}

/// The text of the source file that contains this macro call.
#[macro_export]
macro_rules! own_source {
    () => {{
        // `file!` is relative to the root of the workspace.
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../");
        std::fs::read_to_string(root.to_owned() + file!()).expect("the source of a test")
    }};
}

#[cfg(test)]
mod tests {
    use super::slice;

    #[test]
    fn a_slice_follows_from_names_and_source() {
        let of = |of, source: &str| slice(of, 0..100, |case| format!("{case} {source}"));
        assert_eq!(of(1, "a"), (0..100).collect::<Vec<_>>());
        let (one, other) = (of(10, "a"), of(10, "b"));
        assert_eq!(one.len(), 10);
        assert_eq!(one, of(10, "a"));
        assert_ne!(one, other);
        assert!(one.is_sorted());
        assert_eq!(slice(10, [7], ToString::to_string), [7]);
        assert_eq!(slice(10, [0_u8; 0], ToString::to_string), []);
    }
}
