//! Sound pools are found sound, whatever they are read from.

mod testimage;

use std::cell::Cell;
use std::io::Write;

use testimage::{TestImage, closed, sample};
use vellum_check::{Options, Phase, Stage, check};

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
fn a_pool_with_something_of_everything_is_sound() {
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
fn progress_is_told() {
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
