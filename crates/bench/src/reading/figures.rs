//! Draws the measurements as figures, and compares them with the paper's claims.

use std::collections::BTreeSet;

use vellum::reading::Rule;

use super::openings::{Opening, worst};
use super::report::{Competition, Report, Row};
use super::{Figure, SIDES, targets};
use crate::figure::{self, Axis, Point, Scale, Series, Shape, bytes, number};
use crate::target::Target;
use crate::variant::Variant;
use crate::workloads::{figure_of, filebench, traces};

/// The smallest request for which the paper's file systems build a page table at once.
const PAPER_LARGE_BYTES: u64 = 48 << 10;

/// All figures of a report.
pub(super) fn draw(report: &Report) -> Vec<figure::Figure> {
    let mut figures = Vec::new();
    for pool in &report.pools {
        let rows = |figure: Figure, order: &str| -> Vec<&Row> {
            let rows = report.rows.iter();
            rows.filter(|row| {
                row.figure == figure.name() && row.variant == pool.variant && row.order == order
            })
            .collect()
        };
        for order in ["sequential", "random"] {
            figures.extend(block_size(
                pool.variant,
                order,
                &rows(Figure::BlockSize, order),
            ));
        }
        figures.extend(file_size(
            pool.variant,
            &rows(Figure::FileSize, "sequential"),
        ));
        figures.extend(openings(pool.variant, &report.openings_of(pool.variant)));
        figures.extend(views(pool.variant, &rows(Figure::View, "random")));
    }
    for order in ["sequential", "random"] {
        figures.extend(mappings(report, order));
    }
    figures.extend(competitions(&report.competitive));
    figures.extend(figure_of(filebench::OF_READING, &report.workloads));
    figures.extend(figure_of(traces::ABOUT, &report.workloads));
    figures
}

/// The name of a figure, distinct for each kind of pool.
fn name(figure: &str, variant: Variant) -> String {
    format!("{figure}-{}", variant.label().replace(' ', "-"))
}

/// MiB per second: the median, and the extremes of the rounds.
fn throughput(row: &Row, side: &str, at: String) -> Option<Point> {
    let speed = |ns: f64| row.request_bytes as f64 / (1 << 20) as f64 / (ns * 1e-9);
    let [least_ns, greatest_ns] = *row.spread_ns.get(side)?;
    let value = speed(*row.ns_per_request.get(side)?);
    Some(Point::between(
        at,
        value,
        [speed(greatest_ns), speed(least_ns)],
    ))
}

/// A series for each side with values.
fn by_side(rows: &[&Row], at: impl Fn(&Row) -> String) -> Vec<Series> {
    let series = SIDES.iter().map(|(side, name)| Series {
        name: (*name).into(),
        points: rows
            .iter()
            .filter_map(|row| throughput(row, side, at(row)))
            .collect(),
    });
    series.filter(|series| !series.points.is_empty()).collect()
}

fn speed_axis() -> Axis {
    Axis::of("Throughput", "MiB/s", Scale::Log)
}

/// Where a side gains least and most over search.
fn extremes<'r>(rows: &[&'r Row], side: &str) -> Option<[(f64, &'r Row); 2]> {
    let mut gains: Vec<(f64, &Row)> = rows
        .iter()
        .filter_map(|row| Some((*row.search_over.get(side)?, *row)))
        .collect();
    gains.sort_by(|a, b| a.0.total_cmp(&b.0));
    Some([*gains.first()?, *gains.last()?])
}

/// A sentence about how a side compares with search.
fn against_search(
    rows: &[&Row],
    side: &str,
    name: &str,
    size: impl Fn(&Row) -> u64,
) -> Option<String> {
    let [least, most] = extremes(rows, side)?;
    Some(format!(
        "{name}: {} times the throughput of search at {} to {} times at {}.",
        number(least.0),
        bytes(size(least.1)),
        number(most.0),
        bytes(size(most.1))
    ))
}

/// Targets as sentences.
fn told(targets: &[Target]) -> Vec<String> {
    targets.iter().map(Target::to_string).collect()
}

/// How the default rule compares with a copy of memory.
fn against_memory(rows: &[&Row], size: impl Fn(&Row) -> u64) -> Option<String> {
    let over = rows
        .iter()
        .filter_map(|row| Some((*row.over_memcpy.get("layout")?, size(row))));
    let mut over: Vec<(f64, u64)> = over.collect();
    over.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (least, most) = (over.first()?, over.last()?);
    Some(format!(
        "The default rule: {} times the time of memcpy at {} to {} times at {}.",
        number(least.0),
        bytes(least.1),
        number(most.0),
        bytes(most.1)
    ))
}

/// The page tables that were built, one sentence for the worst of each rule.
fn page_tables(rows: &[&Row]) -> Vec<String> {
    let rules = SIDES.iter().filter_map(|(rule, name)| {
        let tables = rows
            .iter()
            .filter_map(|row| Some((row.page_tables.get(rule)?, *row)));
        let (laid, row) = tables.min_by(|a, b| a.0.part.total_cmp(&b.0.part))?;
        Some(format!("{name}, {}: {laid}.", bytes(row.file_bytes)))
    });
    rules.collect()
}

/// Fig 6.
fn block_size(variant: Variant, order: &str, rows: &[&Row]) -> Option<figure::Figure> {
    let file = rows.first()?.file_bytes;
    let size = |row: &Row| row.request_bytes;
    let (small, large): (Vec<&Row>, Vec<&Row>) = rows
        .iter()
        .partition(|row| row.request_bytes < PAPER_LARGE_BYTES);
    let mut found = told(&targets::block_size(rows));
    found.extend(against_search(
        &small,
        "layout",
        "Below 48 KiB, the default rule",
        size,
    ));
    found.extend(against_search(
        &large,
        "layout",
        "From 48 KiB on, the default rule",
        size,
    ));
    found.extend(against_search(
        &large,
        "threshold",
        "From 48 KiB on, the paper's rule",
        size,
    ));
    found.extend(against_search(rows, "mmu", "A page table at once", size));
    found.extend(against_memory(rows, size));
    found.extend(page_tables(rows));
    Some(figure::Figure {
        name: name(&format!("block-size-{order}"), variant),
        title: format!(
            "Throughput against the size of a request, {order}, {}",
            variant.label()
        ),
        claim: "AFPT, Fig 6: with a file of 4 GB, the same as search for requests below 48 KB (at \
                most 2 % slower); above that up to 19.34 % (NOVA) and 21.15 % (PMFS) faster."
            .into(),
        found,
        x: Axis::labels("Bytes of a request"),
        y: speed_axis(),
        shape: Shape::Lines,
        series: by_side(rows, |row| bytes(row.request_bytes)),
        marks: Vec::new(),
        notes: vec![
            format!(
                "A file of {} that stays open, and was read until its page table was complete; \
                 the locations of a round are read once before they are timed.",
                bytes(file)
            ),
            "Memcpy: the pool's own copy routine, from contiguous memory of the pool's kind, on \
             large pages and on pages of 4 KiB."
                .into(),
        ],
    })
}

/// Fig 10.
fn file_size(variant: Variant, rows: &[&Row]) -> Option<figure::Figure> {
    let request = rows.first()?.request_bytes;
    let size = |row: &Row| row.file_bytes;
    let mut found = told(&targets::file_size(rows));
    found.extend(against_search(rows, "layout", "The default rule", size));
    found.extend(against_search(rows, "threshold", "The paper's rule", size));
    found.extend(against_search(rows, "mmu", "A page table at once", size));
    found.extend(page_tables(rows));
    Some(figure::Figure {
        name: name("file-size", variant),
        title: format!("Reading a file again against its size, {}", variant.label()),
        claim: "AFPT, Fig 10: files of every size are read faster once their page table exists, \
                large files most; at most 7874 MB/s (NOVA) and 7709 MB/s (PMFS)."
            .into(),
        found,
        x: Axis::labels("Bytes of the file"),
        y: speed_axis(),
        shape: Shape::Lines,
        series: by_side(rows, |row| bytes(row.file_bytes)),
        marks: Vec::new(),
        notes: vec![format!(
            "In sequential requests of {}; each file was read until its page table was complete.",
            bytes(request)
        )],
    })
}

/// Files from their opening, including the costs of page tables.
fn openings(variant: Variant, all: &[&Opening]) -> Option<figure::Figure> {
    let file = all.iter().map(|opening| opening.file_bytes).max()?;
    let mut found: Vec<String> = told(targets::from_opening(all).as_slice());
    found.extend(worst(all, Rule::Threshold).map(|(ratio, opening)| {
        format!(
            "The paper's rule: at worst {} times the better path, after {} readings of {}.",
            number(ratio),
            opening.readings,
            bytes(opening.file_bytes)
        )
    }));
    let series = SIDES.iter().map(|(side, name)| {
        let of_file = all.iter().filter(|opening| opening.file_bytes == file);
        let points = of_file.filter_map(|opening| {
            let ratio = *opening.over_best.get(side)?;
            Some(Point::exact(opening.readings.to_string(), ratio))
        });
        Series {
            name: (*name).into(),
            points: points.collect(),
        }
    });
    let series = series.filter(|series| !series.points.is_empty());
    Some(figure::Figure {
        name: name("openings", variant),
        title: format!(
            "Reading a file of {} from its opening on, {}",
            bytes(file),
            variant.label()
        ),
        claim: "AFPT, Section III-D: adaptive switching costs at most 1.38 times the optimum."
            .into(),
        found,
        x: Axis::labels("Times that the file was read"),
        y: Axis::of("Time over that of the better path", "", Scale::Linear),
        shape: Shape::Lines,
        series: series.collect(),
        marks: Vec::new(),
        notes: vec![
            "The better path is the faster of search and a page table at once, after as many \
             readings in the same round. All times include the cost of page tables. `--json` also \
             prints the numbers for other sizes."
                .into(),
        ],
    })
}

/// Views of a range, and copies of it.
fn views(variant: Variant, rows: &[&Row]) -> Option<figure::Figure> {
    let row = rows.first()?;
    let labels = [
        ("search", "copy"),
        ("view", "view"),
        ("view-again", "view of the same again"),
    ];
    let points = labels.iter().filter_map(|(side, label)| {
        let value = *row.ns_per_request.get(side)?;
        Some(Point::between(*label, value, *row.spread_ns.get(side)?))
    });
    let mut found = told(&targets::view(rows));
    found.extend(labels[1..].iter().filter_map(|(side, label)| {
        let gain = number(*row.search_over.get(side)?);
        Some(format!("A {label} is {gain} times as fast as a copy."))
    }));
    Some(figure::Figure {
        name: name("view", variant),
        title: format!(
            "Looking at {} in place, {}",
            bytes(row.request_bytes),
            variant.label()
        ),
        claim: "Not a paper's claim: the library's own way to read without a copy.".into(),
        found,
        x: Axis::labels("Way to the bytes"),
        y: Axis::of("Time of a request", "ns", Scale::Log),
        shape: Shape::Bars,
        series: vec![Series {
            name: format!("random in {}", bytes(row.file_bytes)),
            points: points.collect(),
        }],
        marks: Vec::new(),
        notes: Vec::new(),
    })
}

/// Search on each kind of pool, if there are several.
fn mappings(report: &Report, order: &str) -> Option<figure::Figure> {
    if report.pools.len() < 2 {
        return None;
    }
    let rows = |variant: Variant| {
        report.rows.iter().filter(move |row| {
            row.figure == Figure::BlockSize.name() && row.variant == variant && row.order == order
        })
    };
    let series = report.pools.iter().map(|pool| Series {
        name: pool.variant.label(),
        points: rows(pool.variant)
            .filter_map(|row| throughput(row, "search", bytes(row.request_bytes)))
            .collect(),
    });
    let series: Vec<Series> = series.filter(|series| !series.points.is_empty()).collect();
    let first = series.first()?;
    let found = first.points.iter().map(|point| point.at.as_str());
    let found: BTreeSet<&str> = found.filter(|at| ["4 KiB", "1 MiB"].contains(at)).collect();
    let found = found.into_iter().filter_map(|at| {
        let best = series
            .iter()
            .filter_map(|series| Some((&series.name, series.at(at)?.value)));
        let best = best.max_by(|a, b| a.1.total_cmp(&b.1))?;
        Some(format!(
            "Fastest at {at}: {}, {} MiB/s.",
            best.0,
            number(best.1)
        ))
    });
    Some(figure::Figure {
        name: format!("mappings-{order}"),
        title: format!("Search on each kind of pool, {order}"),
        claim:
            "HashFS, Sections 4.1, 4.2 and 4.4: hot sequential reads cost about the same on every \
             mapping; extent trees suffer from fragmentation, hash tables do not; the longer \
             requests are, the closer mappings come to each other."
                .into(),
        found: found.collect(),
        x: Axis::labels("Bytes of a request"),
        y: speed_axis(),
        shape: Shape::Lines,
        series,
        marks: Vec::new(),
        notes: vec![
            "The pools are measured one after the other and not in turns, so compare them with \
             care."
                .into(),
        ],
    })
}

/// The costs of the rules on traces, for each machine's costs.
fn competitions(rows: &[Competition]) -> Vec<figure::Figure> {
    let mut machines: Vec<(&str, Option<Variant>)> = Vec::new();
    for row in rows {
        if !machines.contains(&(row.machine, row.pool)) {
            machines.push((row.machine, row.pool));
        }
    }
    let of = |machine: (&str, Option<Variant>)| -> Vec<&Competition> {
        let rows = rows.iter();
        rows.filter(|row| (row.machine, row.pool) == machine)
            .collect()
    };
    let figures = machines
        .into_iter()
        .map(|machine| competition(machine, &of(machine)));
    figures.collect()
}

fn competition(machine: (&str, Option<Variant>), rows: &[&Competition]) -> figure::Figure {
    let series = |rule: &str, name: &str, ratio: fn(&Competition) -> f64| Series {
        name: name.into(),
        points: rows
            .iter()
            .filter(|row| row.rule == rule)
            .map(|row| Point::exact(&*row.layout, ratio(row)))
            .collect(),
    };
    let worst = |rule: &str| {
        let of_rule = rows.iter().filter(|row| row.rule == rule);
        number(of_rule.map(|row| row.worst_ratio).fold(1.0, f64::max))
    };
    let whose = match machine.1 {
        Some(pool) => format!("costs measured here, {}", pool.label()),
        None => "the paper's costs".into(),
    };
    figure::Figure {
        name: match machine.1 {
            Some(pool) => name("competitive", pool),
            None => "competitive-paper".into(),
        },
        title: format!("What the rules pay over the best, {whose}"),
        claim: "AFPT, Section III-D: the threshold costs at most 1.38 times the optimum, which is \
                assumed to build the page table whenever more than T pages are read."
            .into(),
        found: vec![
            format!(
                "In the worst trace the paper's rule costs {} times the optimum that knows the \
                 future.",
                worst("threshold")
            ),
            format!(
                "The default rule costs at most {} times the optimum.",
                worst("layout")
            ),
        ],
        x: Axis::labels("How the blocks of 2 MiB lie"),
        y: Axis::of("Paid over the best", "", Scale::Log),
        shape: Shape::Bars,
        series: vec![
            series("threshold", "paper's rule, worst", |row| row.worst_ratio),
            series("threshold", "paper's rule, mean", |row| row.mean_ratio),
            series("layout", "default rule, worst", |row| row.worst_ratio),
            series("layout", "default rule, mean", |row| row.mean_ratio),
        ],
        marks: Vec::new(),
        notes: vec![
            "Simulated on random traces with a fixed seed: only the costs vary from run to run."
                .into(),
        ],
    }
}
