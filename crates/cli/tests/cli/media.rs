//! Pools with several external data devices.

use std::os::unix::fs::FileExt;

use crate::support::{Bench, Mounted, has_fuse};
use serde_json::Value;
use vellum_check::survey;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// A pool whose first external data device is full of `/a`, and whose second one, with `/b`, has
/// been added; with the bytes of both files.
fn grown(mapping: &str) -> (Bench, [Vec<u8>; 2]) {
    let bench = Bench::empty();
    let mkfs = [
        "mkfs",
        "p.img",
        "--data",
        "d1",
        "--data-size",
        "8M",
        "-O",
        &format!("mapping={mapping},metadata=2M"),
    ];
    bench.run(&mkfs).ok();
    let of = |seed: usize| (0..5 << 20).map(move |at: usize| (at / 4096 * seed + at % 251) as u8);
    let files = [of(3).collect::<Vec<u8>>(), of(5).collect()];
    for (name, bytes) in ["a", "b"].into_iter().zip(&files) {
        std::fs::write(bench.join(name), bytes).expect("write");
    }
    bench.run(&["put", "a", "p.img:/a"]).ok();
    bench
        .run(&["put", "b", "p.img:/b"])
        .failed(1, &["no space left", "vellum data add"]);
    let added = bench
        .run(&["data", "add", "p.img", "d2", "--size", "8M"])
        .ok();
    assert!(added.out.contains("more for data, on d2"), "{}", added.out);
    bench.run(&["put", "b", "p.img:/b"]).ok();
    (bench, files)
}

fn has(bench: &Bench, files: &[Vec<u8>; 2]) {
    for (name, bytes) in ["/a", "/b"].into_iter().zip(files) {
        let to = format!("got{}", &name[1..]);
        let _ = std::fs::remove_file(bench.join(&to));
        bench.run(&["get", &format!("p.img:{name}"), &to]).ok();
        assert!(
            std::fs::read(bench.join(&to)).expect("read") == *bytes,
            "{name}"
        );
    }
}

#[test]
fn a_full_pool_gets_a_second_data_device() {
    for mapping in ["hashfs", "extent", "radix"] {
        let (bench, files) = grown(mapping);
        has(&bench, &files);
        bench.run(&["check", "p.img"]).ok();
        let said = json(&bench.run(&["info", "--json", "p.img"]).ok().out);
        let media = &said["media"];
        assert!(
            media["data"]["path"]
                .as_str()
                .is_some_and(|path| path.ends_with("/d1"))
        );
        assert!(
            media["added_data"][0]["path"]
                .as_str()
                .is_some_and(|path| path.ends_with("/d2"))
        );
        let text = bench.run(&["info", "p.img"]).ok().out;
        assert!(
            text.contains("/d1 (8.0 MiB)") && text.contains("/d2 (8.0 MiB)"),
            "{text}"
        );
        // The conversion changes names, not blocks.
        bench
            .run(&["convert", "p.img", "--namespace", "adaptive"])
            .ok();
        bench.run(&["check", "p.img"]).ok();
        has(&bench, &files);
    }
}

#[test]
fn each_data_device_is_needed_and_checked() {
    let (bench, files) = grown("extent");
    std::fs::rename(bench.join("d2"), bench.join("moved")).expect("rename");
    bench.run(&["check", "p.img"]).failed(8, &["d2", "--data"]);
    bench.run(&["check", "p.img", "--data", "moved"]).ok();
    // Opening for writing stores the new path in the pool.
    bench.run(&["mkdir", "p.img:/d", "--data", "moved"]).ok();
    has(&bench, &files);
    let full = ["data", "add", "p.img", "moved", "--size", "8M"];
    bench.run(&full).failed(1, &["moved"]);
    bench
        .run(&[&full[..], &["--force"]].concat())
        .failed(1, &["has data of the pool already"]);
    has(&bench, &files);
    bench.run(&["data", "add", "p.img", "more"]).failed(
        2,
        &["the size is missing", "vellum data add p.img more --size"],
    );
    let said = bench
        .run(&["data", "add", "p.img", "more", "--size", "4M", "--json"])
        .ok();
    assert_eq!(json(&said.out)["medium"], "more");
}

/// The lost word of a chunk with words of blocks is restored, because exactly one segment lacks a
/// chunk.
#[test]
fn a_chunk_of_words_is_restored() {
    let (bench, files) = grown("hashfs");
    let pool = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(bench.join("p.img"))
        .expect("open");
    let superblock = survey::header(&pool).expect("a superblock");
    let table_at = superblock.geometry().chunk_table_at;
    let word = |chunk: u64| {
        let mut word = [0; 8];
        pool.read_exact_at(&mut word, table_at + chunk * 8)
            .expect("read");
        u64::from_le_bytes(word)
    };
    let chunk = (0..)
        .find(|&chunk| word(chunk) & 0xFFFF == 0x0105)
        .expect("a chunk");
    pool.write_all_at(&7u64.to_le_bytes(), table_at + chunk * 8)
        .expect("write");
    bench.run(&["check", "p.img"]).failed(4, &["vellum repair"]);
    bench.run(&["repair", "p.img", "--yes"]).failed(1, &[]);
    bench.run(&["check", "p.img"]).ok();
    has(&bench, &files);
}

#[test]
fn a_mount_uses_all_data_devices() {
    if !has_fuse("a_mount_uses_all_data_devices") {
        return;
    }
    let (bench, files) = grown("extent");
    let mounted = Mounted::of(bench, &[]);
    let read = std::fs::read(mounted.path("b")).expect("read");
    assert!(read == files[1]);
}
