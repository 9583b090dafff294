//! What was measured, as JSON and as text.

use std::fmt;

use serde::Serialize;

use crate::figure::Figure;
use crate::machine::Machine;
use crate::mapping::write_figure;
use crate::target::Target;

/// All that was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// On what.
    pub machine: Machine,
    /// How the measurement was asked for: options and values.
    pub settings: Vec<(&'static str, String)>,
    /// What came out.
    pub figures: Vec<Figure>,
    /// What was to be reached.
    pub targets: Vec<Target>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machine = &self.machine;
        writeln!(
            f,
            "{}, {} cores, load {:.1} to {:.1}; medians of {} rounds, the spread in percent; in brackets what \
             the namespace tree takes over what this takes; p: probes an operation",
            machine.cpu, machine.cores, machine.load_before, machine.load_after, machine.rounds
        )?;
        for figure in &self.figures {
            write_figure(f, figure)?;
            counts(f, figure)?;
        }
        writeln!(f)?;
        for target in &self.targets {
            writeln!(f, "{target}")?;
        }
        Ok(())
    }
}

/// Lines flushed and fences of an operation, which don't depend on the machine.
fn counts(f: &mut fmt::Formatter<'_>, figure: &Figure) -> fmt::Result {
    for series in &figure.series {
        let points = series.points.iter();
        let counted = points.filter_map(|point| Some((&point.at, point.counts?)));
        let flushed = counted.filter(|(_, counts)| counts.lines_flushed > 0.0);
        let each: Vec<String> = flushed
            .map(|(at, counts)| {
                let (lines, fences) = (counts.lines_flushed, counts.fences);
                format!("{at} {lines:.2} lines, {fences:.2} fences")
            })
            .collect();
        if !each.is_empty() {
            writeln!(f, "  {}: {}", series.name, each.join("; "))?;
        }
    }
    Ok(())
}
