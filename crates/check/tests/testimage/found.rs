//! The findings of a check of a test's pool.

use vellum_check::{Class, Finding, Image, Options, Report, Severity, check};

/// The report on an image.
pub(crate) fn checked(image: &dyn Image) -> Report {
    check(image, Options::default())
}

/// Fails unless the report has this finding.
#[track_caller]
pub(crate) fn assert_found(report: &Report, class: Class, place: &str, severity: Severity) {
    let fits = |found: &Finding| found.place == place && found.severity == severity;
    assert!(
        report.of(class).any(fits),
        "{class:?} at {place} is not in:\n{report}"
    );
}
