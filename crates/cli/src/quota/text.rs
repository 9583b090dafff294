//! Quotas as text.

use std::time::{SystemTime, UNIX_EPOCH};

use nix::unistd::{Gid, Group, Uid, User};

use crate::units::{duration, size};

use super::answer::{Defaults, Kind, Limits, Line, Use};

const HEAD: [&str; 8] = [
    "bytes", "soft", "hard", "grace", "files", "soft", "hard", "grace",
];

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Group => "group",
            Self::Project => "project",
        }
    }
}

impl Line {
    /// The name of the user or group, if it has one.
    pub(super) fn name(&self) -> Option<String> {
        match self.kind {
            Kind::User => User::from_uid(Uid::from_raw(self.id))
                .ok()?
                .map(|user| user.name),
            Kind::Group => Group::from_gid(Gid::from_raw(self.id))
                .ok()?
                .map(|group| group.name),
            Kind::Project => None,
        }
    }

    fn row(&self) -> Vec<String> {
        let mark = |of: &Use| if of.is_over() { '+' } else { '-' };
        let marks = [mark(&self.bytes), mark(&self.files)];
        let name = self.name().unwrap_or_else(|| self.id.to_string());
        let mut row = vec![name, marks.into_iter().collect()];
        row.extend(self.bytes.cells(size));
        row.extend(self.files.cells(|files| files.to_string()));
        row
    }

    /// The limits, in a sentence.
    pub(super) fn told(&self) -> String {
        let name = self.name().unwrap_or_else(|| self.id.to_string());
        let whose = match self.own_limits {
            true => "",
            false => " (the defaults)",
        };
        format!(
            "{} {name}: bytes {}; files {}{whose}",
            self.kind.name(),
            limits(self.bytes.soft, self.bytes.hard, size),
            limits(self.files.soft, self.files.hard, |files| files.to_string()),
        )
    }
}

impl Defaults {
    /// The limits and grace periods, in a sentence.
    pub(super) fn told(&self) -> String {
        let told = |of: &Limits, shown: fn(u64) -> String| {
            format!(
                "{}, grace {}",
                limits(of.soft, of.hard, shown),
                duration(of.grace_s)
            )
        };
        format!(
            "{}s: bytes {}; files {}",
            self.kind.name(),
            told(&self.bytes, size),
            told(&self.files, |files| files.to_string()),
        )
    }
}

impl Use {
    /// The seconds until the soft limit may no longer be exceeded, if it is.
    pub(super) fn grace_left_s(&self) -> Option<u64> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now_s = now.map_or(0, |now| now.as_secs());
        let until_s = self.until_ns?.unsigned_abs() / 1_000_000_000;
        Some(until_s.saturating_sub(now_s))
    }

    fn cells(&self, shown: impl Fn(u64) -> String) -> [String; 4] {
        let limit = |limit: Option<u64>| limit.map_or_else(|| "-".into(), &shown);
        let grace = match self.grace_left_s() {
            None => "-".into(),
            Some(0) => "ended".into(),
            Some(left) => duration(left),
        };
        [shown(self.used), limit(self.soft), limit(self.hard), grace]
    }
}

fn limits(soft: Option<u64>, hard: Option<u64>, shown: impl Fn(u64) -> String) -> String {
    let told = |limit: Option<u64>| limit.map_or_else(|| "none".into(), &shown);
    format!("soft {}, hard {}", told(soft), told(hard))
}

/// A table for each kind.
pub(super) fn table(lines: &[Line]) -> String {
    let mut tables = Vec::new();
    for kind in [Kind::User, Kind::Group, Kind::Project] {
        let of = lines.iter().filter(|line| line.kind == kind);
        let rows: Vec<_> = of.map(Line::row).collect();
        if !rows.is_empty() {
            let head = [kind.name(), ""].into_iter().chain(HEAD);
            tables.push(aligned(head.map(str::to_owned).collect(), rows));
        }
    }
    tables.join("\n")
}

/// Rows below a head. The first two columns begin at the left, the others end at the right.
fn aligned(head: Vec<String>, rows: Vec<Vec<String>>) -> String {
    let mut widths = vec![0; head.len()];
    for row in std::iter::once(&head).chain(&rows) {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for row in std::iter::once(&head).chain(&rows) {
        let cells = row.iter().zip(&widths).enumerate();
        let cells = cells.map(|(at, (cell, &width))| match at {
            0 | 1 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        text += &cells.collect::<Vec<_>>().join("  ");
        text.push('\n');
    }
    text
}
