//! Targets, and whether they were met.

use std::fmt;

use serde::Serialize;

use crate::figure::number;

/// A target and the value that was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Target {
    /// The quantity.
    pub what: String,
    /// The measured value.
    pub value: f64,
    /// The bound.
    pub bound: f64,
    /// Whether the target is `value >= bound`; otherwise it is `value <= bound`.
    pub at_least: bool,
    /// Whether the target was met.
    pub met: bool,
}

impl Target {
    /// The target that `value` is at least `bound`.
    pub(crate) fn at_least(what: impl Into<String>, value: f64, bound: f64) -> Self {
        Self {
            what: what.into(),
            value,
            bound,
            at_least: true,
            met: value >= bound,
        }
    }

    /// The target that `value` is at most `bound`.
    pub(crate) fn at_most(what: impl Into<String>, value: f64, bound: f64) -> Self {
        Self {
            what: what.into(),
            value,
            bound,
            at_least: false,
            met: value <= bound,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let asked = if self.at_least { "at least" } else { "at most" };
        let verdict = if self.met { "met" } else { "missed" };
        let (what, value, bound) = (&self.what, number(self.value), number(self.bound));
        write!(f, "{what}: {value}, asked {asked} {bound}: {verdict}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_know_whether_they_are_met() {
        assert!(Target::at_least("", 3.0, 3.0).met);
        assert!(!Target::at_least("", 2.9, 3.0).met);
        assert!(Target::at_most("", 1.3, 1.3).met);
        assert!(!Target::at_most("", 1.31, 1.3).met);
        let text = Target::at_most("probes", 1.31, 1.3).to_string();
        assert_eq!(text, "probes: 1.31, asked at most 1.30: missed");
    }
}
