//! Coverage of the combinations of namespace, mapping and medium by the suites through a mount.
//! Every pair is covered by the conformance suite alone.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use vellum::media::MediaKind;
use vellum::{MappingKind, NamespaceKind};

/// The POSIX conformance suite.
const CONFORMANCE: &str = "00-pjdfstest.sh";

/// Every kind of medium. [`is_for_suites`] selects those for suites.
const MEDIA: [MediaKind; 5] = [
    MediaKind::Dax,
    MediaKind::File,
    MediaKind::Logged,
    MediaKind::Memory,
    MediaKind::Sim,
];

/// A pool with a log whose data are read and written past the page cache.
const UNCACHED: &str = "uncached";
/// A pool with a log and an external data device.
const EXTERNAL: &str = "external";
/// The same, with most data on a second external data device.
const GROWN: &str = "grown";
/// A pool in memory with an external data device.
const SPLIT: &str = "split";

/// Whether every machine can mount a pool on this medium.
fn is_for_suites(medium: MediaKind) -> bool {
    match medium {
        MediaKind::File | MediaKind::Logged | MediaKind::Memory => true,
        // This needs a machine with persistent memory: tests/long/dax-qemu.sh starts one.
        MediaKind::Dax => false,
        // Only the crash explorer and the tests of the library use it.
        MediaKind::Sim => false,
    }
}

/// Two of the three choices in a combination, by name.
type Pair = (String, String);

/// The combinations that a suite declares: mapping, namespace and medium of each pool.
fn combinations(suite: &Path) -> Vec<[String; 3]> {
    let program = Path::new(env!("CARGO_BIN_EXE_vellum"));
    let listed = Command::new(suite)
        .env("VELLUM_LIST", "1")
        .env_remove("VELLUM_COMBINATION")
        .env("VELLUM_BIN", program.parent().expect("a directory"))
        .env("CARGO_HOME", "/nonexistent")
        .output()
        .expect("a suite runs");
    let said = String::from_utf8(listed.stdout).expect("text");
    assert!(listed.status.success(), "{}: {said}", suite.display());
    let combination = |line: &str| {
        let words: Vec<String> = line.split(' ').map(String::from).collect();
        words
            .try_into()
            .unwrap_or_else(|words| panic!("{}: {words:?}", suite.display()))
    };
    said.lines().map(combination).collect()
}

/// The pairs in combinations.
fn pairs(combinations: &[[String; 3]]) -> BTreeSet<Pair> {
    let each = combinations
        .iter()
        .flat_map(|[mapping, namespace, medium]| {
            [(namespace, mapping), (namespace, medium), (mapping, medium)]
        });
    each.map(|(a, b)| (a.clone(), b.clone())).collect()
}

/// All pairs.
fn all_pairs() -> BTreeSet<Pair> {
    let namespaces = NamespaceKind::ALL.map(|kind| kind.name());
    let mappings = MappingKind::ALL.map(|kind| kind.name());
    let media = MEDIA.into_iter().filter(|medium| is_for_suites(*medium));
    let media: Vec<&str> = media
        .map(MediaKind::name)
        .chain([UNCACHED, EXTERNAL, SPLIT, GROWN])
        .collect();
    let mut all = BTreeSet::new();
    let mut cross = |these: &[&str], those: &[&str]| {
        let pairs = these
            .iter()
            .flat_map(|a| those.iter().map(|b| (a.to_string(), b.to_string())));
        all.extend(pairs);
    };
    cross(&namespaces, &mappings);
    cross(&namespaces, &media);
    cross(&mappings, &media);
    let fixed = MappingKind::ALL.into_iter();
    for mapping in fixed.filter(|kind| !kind.takes_segments()) {
        all.remove(&(mapping.name().to_owned(), GROWN.to_owned()));
    }
    all
}

fn suites() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/mount");
    let entries = std::fs::read_dir(dir).expect("the suites");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut suites: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|it| it == "sh"))
        .collect();
    suites.sort();
    suites
}

#[test]
fn the_conformance_suite_covers_every_pair() {
    let suites = suites();
    let conformance = suites.iter().find(|path| path.ends_with(CONFORMANCE));
    let met = pairs(&combinations(conformance.expect("the conformance suite")));
    assert_eq!(met, all_pairs());
}

#[test]
fn every_suite_declares_its_combinations_and_kinds_have_several() {
    let all = all_pairs();
    let mut kinds: BTreeSet<String> = BTreeSet::new();
    for suite in suites() {
        let runs_on = combinations(&suite);
        assert!(!runs_on.is_empty(), "{}", suite.display());
        let unknown: Vec<_> = pairs(&runs_on).difference(&all).cloned().collect();
        assert_eq!(unknown, [], "{}", suite.display());
        if !suite.ends_with(CONFORMANCE) {
            kinds.extend(runs_on.into_iter().flatten());
        }
    }
    let there: BTreeSet<String> = all.into_iter().flat_map(|(a, b)| [a, b]).collect();
    assert_eq!(kinds, there, "suites beside the one of conformance");
}
