//! Sound pools are found sound, whatever they are read from.

use std::cell::Cell;
use std::io::{self, Write};
use std::time::Instant;

use crate::testimage::{TestImage, closed, sample};
use vellum_check::{Class, Image, MemoryImage, Options, Phase, Stage, check};
use vellum_media::{Memory, SimPool};

#[test]
fn an_empty_pool_is_sound() {
    let mut image = TestImage::empty();
    assert_eq!(check(&image.bytes, Options::default()).findings, []);
    image.close();
    let report = check(&image.bytes, Options::default());
    assert_eq!(report.findings, []);
    assert_eq!((report.exit_code(), report.phase), (0, Phase::Clean));
    assert_eq!(report.summary.inodes, 1);
}

#[test]
fn a_pool_with_every_kind_of_structure_is_sound() {
    for strict_clean in [false, true] {
        let options = Options {
            strict_clean,
            progress: None,
        };
        let report = check(&sample().image.bytes, options);
        assert_eq!(report.findings, [], "{report}");
        assert_eq!(report.phase, Phase::Dirty);
        let report = check(&closed().image.bytes, options);
        assert_eq!(report.findings, [], "{report}");
        let summary = report.summary;
        assert_eq!(
            (
                summary.inodes,
                summary.directories,
                summary.files,
                summary.symlinks
            ),
            (28, 3, 22, 2)
        );
        assert_eq!((summary.entries, summary.entries_dead), (28, 1));
        assert_eq!((summary.blocks_mapped, summary.blocks_unwritten), (4, 1));
        assert_eq!((summary.log_extents, summary.specials), (3, 1));
    }
}

#[test]
fn a_live_map_ends_with_a_whole_word() {
    // 65 chunks of 32 slots.
    let mut image = TestImage::of_size(1 << 20, Some(65 << 12));
    assert_eq!(image.geometry.region_slots() % 64, 32);
    image.close();
    let report = check(&image.bytes, Options::default());
    assert_eq!(report.findings, [], "{report}");
    // The last slot, marked but unused, with a correct checksum.
    let last = image.geometry.region_slots() as usize - 1;
    image.leak(last);
    image.close();
    let report = check(&image.bytes, Options::default());
    assert!(report.has(Class::LiveMap), "{report}");
}

#[test]
fn files_are_read_as_well() {
    let sample = closed();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&sample.image.bytes).unwrap();
    let report = check(&file, Options::default());
    assert_eq!(report.findings, []);
    assert_eq!(report, check(&sample.image.bytes[..], Options::default()));
}

#[test]
fn a_report_survives_json() {
    let mut sample = closed();
    sample.image.bytes[9] ^= 1;
    let report = check(&sample.image.bytes, Options::default());
    let json = serde_json::to_string(&report).unwrap();
    assert_eq!(
        serde_json::from_str::<vellum_check::Report>(&json).unwrap(),
        report
    );
    assert!(json.contains("superblock-copy"), "{json}");
}

#[test]
fn progress_is_reported() {
    let told = Cell::new(0);
    let progress = |stage: Stage, done: u64, of: u64| {
        assert!(of == 0 || done <= of, "{stage:?}");
        told.set(told.get() + 1);
    };
    let options = Options {
        strict_clean: false,
        progress: Some(&progress),
    };
    check(&closed().image.bytes, options);
    assert!(told.get() > 1);
}

/// An image with a block that cannot be read.
struct Poisoned {
    bytes: Vec<u8>,
    at: u64,
}

impl Image for Poisoned {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        if at < self.at + 4096 && self.at < at + out.len() as u64 {
            return Err(io::Error::from_raw_os_error(5));
        }
        Image::read(&self.bytes, at, out)
    }
}

#[test]
fn unreadable_bytes_are_reported() {
    let sample = closed();
    let at = sample.image.geometry.meta_at / 4096 * 4096;
    for at in [0, 4096, sample.image.geometry.table_at, at] {
        let poisoned = Poisoned {
            bytes: sample.image.bytes.clone(),
            at,
        };
        let report = check(&poisoned, Options::default());
        let found: Vec<_> = report.of(Class::Unreadable).collect();
        assert_eq!(found.len(), 1, "{report}");
        assert_eq!(found[0].place, format!("offset {at}"));
        assert_eq!(report.exit_code() & 8, 8);
    }
}

#[test]
fn memories_are_read_as_well() {
    let sample = closed();
    let pool = SimPool::from_image(sample.image.bytes.clone());
    let report = check(&MemoryImage(&pool), Options::default());
    assert_eq!(report, check(&sample.image.bytes, Options::default()));
    assert_eq!(pool.damaged(), None);
}

/// A pool with a million files in a thousand directories.
#[test]
#[ignore = "long: lays out 1.5 GiB"]
fn a_million_files() {
    let mut image = TestImage::of_size(3 << 29, Some(512 << 20));
    for d in 0..1000 {
        let directory = image.directory(1, format!("directory {d}").as_bytes());
        for f in 0..1000 {
            let blocks = u32::from((d * 1000 + f) % 8 == 0);
            image.file(directory, format!("file {f}").as_bytes(), blocks);
        }
    }
    image.close();
    let start = Instant::now();
    let report = check(&image.bytes, Options::default());
    let took = start.elapsed();
    assert_eq!(report.findings, [], "{report}");
    println!("{report}\nchecked in {took:?}");
}
