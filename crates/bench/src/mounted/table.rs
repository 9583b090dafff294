//! The report as text.

use std::fmt;

use super::report::{Operation, Report, Row, Scaling};
use crate::figure::number;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machine = &self.machine;
        writeln!(
            f,
            "{machine}; load {:.2} to {:.2}; vellum {}",
            machine.load_before, machine.load_after, machine.version
        )?;
        writeln!(
            f,
            "pools in {}; {} files; medians of {} rounds; requests by {}",
            machine.pool,
            machine.files,
            machine.rounds,
            self.doors.join(" and ")
        )?;
        self.write_operations(f)?;
        self.write_scaling(f)?;
        write_rows(f, "program", &self.programs)?;
        write_rows(f, "transfer", &self.transfers)?;
        for (number, note) in self.notes.iter().enumerate() {
            let gap = if number == 0 { "\n" } else { "" };
            writeln!(f, "{gap}{note}")?;
        }
        Ok(())
    }
}

impl Report {
    fn write_operations(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cells = |row: &Operation| {
            let [vellum, null] = [row.vellum_ns, row.null_ns].map(|ns| format!("{ns:.0}"));
            let ratio = format!("{:.2}", row.ratio);
            (
                row.op.clone(),
                row.door.clone(),
                vec![vellum, percent(row.spread), null, ratio],
            )
        };
        let rows: Vec<_> = self.requests.iter().map(cells).collect();
        self.write_by_door(
            f,
            "operation, ns",
            &["vellum", "spread", "nothing", "ratio"],
            &rows,
        )?;
        if !rows.is_empty() {
            writeln!(
                f,
                "nothing: a file system that does nothing; ratio: its time over Vellum's"
            )?;
        }
        Ok(())
    }

    fn write_scaling(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cells = |row: &Scaling| {
            let cells = [row.vellum, row.null, row.ratio].map(|value| format!("{value:.2}"));
            (
                format!("{}, {}", row.op, row.directories),
                row.door.clone(),
                cells.into(),
            )
        };
        let rows: Vec<_> = self.scaling.iter().map(cells).collect();
        self.write_by_door(f, "two clients", &["vellum", "nothing", "ratio"], &rows)?;
        if !rows.is_empty() {
            writeln!(
                f,
                "operations a second of two clients, on two processors, over those of one"
            )?;
        }
        Ok(())
    }

    /// Rows with a name, a door and cells: a line for each name, with the cells of every door.
    fn write_by_door(
        &self,
        f: &mut fmt::Formatter<'_>,
        title: &str,
        columns: &[&str],
        rows: &[(String, String, Vec<String>)],
    ) -> fmt::Result {
        let Some((_, first, _)) = rows.first() else {
            return Ok(());
        };
        let width = 8 * columns.len();
        write!(f, "\n{:20}", "")?;
        for door in &self.doors {
            write!(f, " {door:>width$}")?;
        }
        write!(f, "\n{title:<20}")?;
        for _ in &self.doors {
            write!(f, " ")?;
            columns
                .iter()
                .try_for_each(|column| write!(f, "{column:>8}"))?;
        }
        for (name, ..) in rows.iter().filter(|(_, door, _)| door == first) {
            write!(f, "\n{name:<20}")?;
            for (.., cells) in rows.iter().filter(|row| row.0 == *name) {
                write!(f, " ")?;
                cells.iter().try_for_each(|cell| write!(f, "{cell:>8}"))?;
            }
        }
        writeln!(f)
    }
}

fn percent(part: f64) -> String {
    format!("{:.0}%", part * 100.0)
}

/// The rows of programs or transfers, with the requests of each below it.
fn write_rows(f: &mut fmt::Formatter<'_>, title: &str, rows: &[Row]) -> fmt::Result {
    let Some(first) = rows.first() else {
        return Ok(());
    };
    let widest = rows.iter().map(|row| row.subject.len()).max().unwrap_or(0);
    let is_transfer = first.mib_per_second.is_some();
    write!(
        f,
        "\n{title:<9} {:<widest$} {:>8} {:>6}",
        "subject", "seconds", "spread"
    )?;
    if is_transfer {
        write!(f, " {:>7}", "MiB/s")?;
    }
    for ratio in &first.ratios {
        write!(f, "  {}", ratio.peer)?;
    }
    writeln!(f, "  requests")?;
    for of_name in rows.chunk_by(|row, next| row.name == next.name) {
        for (number, row) in of_name.iter().enumerate() {
            let name = if number == 0 { row.name.as_str() } else { "" };
            write_row(f, name, widest, row)?;
        }
        write_kinds(f, of_name)?;
    }
    if !first.ratios.is_empty() {
        writeln!(
            f,
            "under a peer's name: the time there over that of the row"
        )?;
    }
    Ok(())
}

fn write_row(f: &mut fmt::Formatter<'_>, name: &str, widest: usize, row: &Row) -> fmt::Result {
    let spread = percent(row.spread);
    let seconds = number(row.seconds);
    write!(
        f,
        "{name:<9} {:<widest$} {seconds:>8} {spread:>6}",
        row.subject
    )?;
    if let Some(speed) = row.mib_per_second {
        write!(f, " {speed:>7.0}")?;
    }
    for of in &row.ratios {
        write!(f, "  {:>width$.2}", of.ratio, width = of.peer.len())?;
    }
    match row.door {
        Some(_) => writeln!(f, "  {:>8}", row.requests),
        None => writeln!(f, "  {:>8}", "-"),
    }
}

/// The requests of the first subject that has any, the most frequent first.
fn write_kinds(f: &mut fmt::Formatter<'_>, rows: &[Row]) -> fmt::Result {
    let Some(row) = rows.iter().find(|row| row.requests > 0) else {
        return Ok(());
    };
    let mut kinds: Vec<_> = row.requests_by_kind.iter().collect();
    kinds.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let kinds: Vec<_> = kinds
        .into_iter()
        .map(|(kind, count)| format!("{kind} {count}"))
        .collect();
    writeln!(f, "{:9}   {}", "", kinds.join(", "))
}
