//! Fuzzes the parsers of the command line: any input is parsed or refused with a message.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use clap::Parser;

use crate::args::Cli;
use crate::location::PathInPool;
use crate::units::{parse_size, size};

/// Cases of a target in a run of the tests.
const CASES: usize = 1000;

/// Text for the parsers: the bytes as they are, or translated to characters that matter.
fn text(bytes: &[u8]) -> Vec<u8> {
    const PIECES: &[u8] = b"0123456789.KMGTPkibB :/-+e";
    let (raw, rest) = bytes.split_first().unwrap_or((&0, &[]));
    match raw % 4 {
        0 => rest.to_vec(),
        _ => rest
            .iter()
            .map(|byte| PIECES[usize::from(*byte) % PIECES.len()])
            .collect(),
    }
}

#[test]
fn sizes() {
    vellum_fuzz::target!(CASES, |bytes| {
        let text = String::from_utf8_lossy(&text(bytes)).into_owned();
        match parse_size(&text) {
            Ok(bytes) => {
                assert!(
                    text.contains(|digit: char| digit.is_ascii_digit()),
                    "{text}"
                );
                assert_eq!(parse_size(&bytes.to_string()), Ok(bytes));
                let _ = size(bytes);
            }
            Err(message) => assert!(message.contains("64M"), "{message}"),
        }
    });
}

#[test]
fn places() {
    vellum_fuzz::target!(CASES, |bytes| {
        let text = text(bytes);
        let place = PathInPool::from(OsString::from_vec(text.clone()));
        let path = place.bytes();
        assert!(path.is_empty() || path.starts_with(b"/"), "{place}");
        let pool = place.pool.as_os_str().len();
        // No character is lost: the parts are the pool, the colon, the path, and the slash of a
        // root that the text leaves out.
        let whole = if path.is_empty() {
            pool
        } else {
            pool + 1 + path.len()
        };
        let added = usize::from(text.ends_with(b":") && path == b"/");
        assert_eq!(whole - added, text.len(), "{place}");
    });
}

/// Whole command lines.
#[test]
fn commands() {
    const WORDS: &[&str] = &[
        "mkfs", "mount", "umount", "check", "info", "ls", "cat", "put", "get", "import", "export",
        "mkdir", "rm", "mv", "crash", "run", "replay", "list", "--all", "--budget", "--part",
        "1/2", "dataset", "data", "add", "remove", "--data", "p:n", "ln", "stat", "chmod",
        "truncate", "tree", "du", "df", "bench", "help", "p:/a", "p:", "--size", "4G", "--medium",
        "pmem", "-o", "ro", "--json", "--", "-", "755", "0x9", "-1",
    ];
    vellum_fuzz::target!(CASES, |bytes| {
        let words = bytes.iter().take(8).map(|byte| match byte {
            0..200 => OsString::from(WORDS[usize::from(*byte) % WORDS.len()]),
            _ => OsString::from_vec(text(bytes)),
        });
        let _ = Cli::try_parse_from(std::iter::once("vellum".into()).chain(words));
    });
}
