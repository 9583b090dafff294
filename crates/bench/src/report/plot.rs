//! A figure as SVG.
//!
//! Colours of axes and text are set by the page's style, which finds them by the values here, so that
//! a plot is readable on light and on dark ground. Series differ in colour and in shape.

use plotters::coord::ranged1d::{
    AsRangedCoord, KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter,
};
use plotters::coord::{CoordTranslate, Shift};
use plotters::prelude::*;

use crate::Result;
use crate::error::Error;
use crate::figure::{Figure, Point, Scale, Shape, number};

/// Size of a plot, and of its legend at the right.
const WIDTH: u32 = 960;
const HEIGHT: u32 = 440;
const LEGEND_WIDTH: u32 = 190;
const LEGEND_LINE: i32 = 24;
/// Part of a label's width that a group of bars takes.
const GROUP: f64 = 0.8;
/// How far lines' points are moved aside, so that their spreads do not cover one another.
const ASIDE: f64 = 0.04;
/// Labels beyond this many are drawn small.
const LABELS_LARGE: usize = 14;

/// Text, axes and spreads, as the style sheet finds them.
const INK: RGBColor = RGBColor(0x10, 0x10, 0x10);
const RULE: RGBColor = RGBColor(0xD0, 0xD0, 0xD0);
/// Series; of a lightness that light and dark grounds bear.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0x3B, 0x82, 0xC4),
    RGBColor(0xD9, 0x77, 0x06),
    RGBColor(0x2F, 0x9E, 0x58),
    RGBColor(0xD1, 0x49, 0x5B),
    RGBColor(0x8F, 0x63, 0xC9),
    RGBColor(0x14, 0x99, 0xA8),
    RGBColor(0xA0, 0x70, 0x3C),
    RGBColor(0x7F, 0x87, 0x90),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b, Y> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Labels, Y>>;

/// The horizontal axis: labels in a row, one apart; the first is at 0.
struct Labels(Vec<String>);

impl Labels {
    fn of(labels: &[&str]) -> Self {
        Self(labels.iter().map(|&label| label.to_owned()).collect())
    }
}

impl Ranged for Labels {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        let part = (value + 0.5) / self.0.len().max(1) as f64;
        from + (f64::from(to - from) * part).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        (0..self.0.len()).map(|at| at as f64).collect()
    }

    fn range(&self) -> std::ops::Range<f64> {
        -0.5..self.0.len().max(1) as f64 - 0.5
    }
}

impl ValueFormatter<f64> for Labels {
    fn format(at: &f64) -> String {
        at.to_string()
    }

    fn format_ext(&self, at: &f64) -> String {
        self.0.get(at.round() as usize).cloned().unwrap_or_default()
    }
}

/// Draws a figure.
pub(super) fn svg(figure: &Figure) -> Result<String> {
    let mut text = String::new();
    {
        let whole = SVGBackend::with_string(&mut text, (WIDTH, HEIGHT)).into_drawing_area();
        let (plot, legend) = whole.split_horizontally(WIDTH - LEGEND_WIDTH);
        let (low, high) = bounds(figure);
        match figure.y.scale {
            Scale::Linear => draw(&plot, figure, low, low..high)?,
            Scale::Log => draw(&plot, figure, low, (low..high).log_scale())?,
        }
        name_series(&legend, figure)?;
        whole.present().map_err(failed)?;
    }
    let title = super::escaped(&figure.title);
    Ok(text.replacen(
        "<svg ",
        &format!("<svg role=\"img\" aria-label=\"{title}\" "),
        1,
    ))
}

fn failed<E: std::fmt::Display>(error: E) -> Error {
    Error::Wrong(format!("a plot could not be drawn: {error}"))
}

/// Where the vertical axis begins and ends.
fn bounds(figure: &Figure) -> (f64, f64) {
    let points = || figure.series.iter().flat_map(|series| &series.points);
    let high = points().map(|point| point.high).fold(0.0, f64::max);
    match figure.y.scale {
        Scale::Linear => (0.0, if high > 0.0 { high * 1.06 } else { 1.0 }),
        Scale::Log => {
            let lows = points().map(|point| point.low).filter(|&low| low > 0.0);
            let low = lows.fold(f64::INFINITY, f64::min);
            if low < high {
                (low / 1.4, high * 1.4)
            } else {
                let one = if high > 0.0 { high } else { 1.0 };
                (one / 2.0, one * 2.0)
            }
        }
    }
}

fn draw<Y>(area: &Area<'_>, figure: &Figure, base: f64, y: Y) -> Result<()>
where
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let labels = figure.labels();
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(52)
        .y_label_area_size(74)
        .build_cartesian_2d(Labels::of(&labels), y)
        .map_err(failed)?;
    let size = if labels.len() > LABELS_LARGE { 10 } else { 13 };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .bold_line_style(RULE)
        .light_line_style(TRANSPARENT)
        .axis_style(INK)
        .x_desc(figure.x.caption())
        .y_desc(figure.y.caption())
        .axis_desc_style(("sans-serif", 15))
        .x_label_style(("sans-serif", size))
        .y_label_style(("sans-serif", 13))
        .y_label_formatter(&|value| number(*value))
        .draw()
        .map_err(failed)?;
    let count = figure.series.len();
    for (index, series) in figure.series.iter().enumerate() {
        let placed: Vec<(f64, &Point)> = labels
            .iter()
            .zip(0..)
            .filter_map(|(label, at)| Some((f64::from(at), series.at(label)?)))
            .collect();
        match figure.shape {
            Shape::Lines => line(&mut chart, &placed, index, count)?,
            Shape::Bars => bars(&mut chart, &placed, index, count, base)?,
        }
    }
    Ok(())
}

fn line<Y: Ranged<ValueType = f64>>(
    chart: &mut Chart<'_, '_, Y>,
    placed: &[(f64, &Point)],
    index: usize,
    count: usize,
) -> Result<()> {
    let colour = colour(index);
    let aside = (index as f64 - (count as f64 - 1.0) / 2.0) * ASIDE;
    let at = |&(x, point): &(f64, &Point)| (x + aside, point.value);
    let path = PathElement::new(
        placed.iter().map(at).collect::<Vec<_>>(),
        colour.stroke_width(2),
    );
    chart.draw_series([path]).map_err(failed)?;
    let spreads = placed.iter().filter(|(_, point)| point.low < point.high);
    let spread = |&(x, p): &(f64, &Point)| {
        ErrorBar::new_vertical(x + aside, p.low, p.value, p.high, colour.stroke_width(1), 7)
    };
    chart.draw_series(spreads.map(spread)).map_err(failed)?;
    for point in placed {
        mark(chart.plotting_area(), at(point), index)?;
    }
    Ok(())
}

fn bars<Y: Ranged<ValueType = f64>>(
    chart: &mut Chart<'_, '_, Y>,
    placed: &[(f64, &Point)],
    index: usize,
    count: usize,
    base: f64,
) -> Result<()> {
    let width = GROUP / count.max(1) as f64;
    let left = |x: f64| x - GROUP / 2.0 + width * index as f64;
    let bar = |&(x, point): &(f64, &Point)| {
        let (from, to) = (left(x), left(x) + width * 0.9);
        Rectangle::new(
            [(from, base), (to, point.value.max(base))],
            colour(index).filled(),
        )
    };
    chart.draw_series(placed.iter().map(bar)).map_err(failed)?;
    let spreads = placed.iter().filter(|(_, point)| point.low < point.high);
    let spread = |&(x, p): &(f64, &Point)| {
        let middle = left(x) + width * 0.45;
        ErrorBar::new_vertical(
            middle,
            p.low.max(base),
            p.value,
            p.high,
            INK.stroke_width(1),
            5,
        )
    };
    chart.draw_series(spreads.map(spread)).map_err(failed)?;
    Ok(())
}

fn colour(index: usize) -> RGBColor {
    COLOURS[index % COLOURS.len()]
}

/// A point of a series: series next to each other in the legend differ in shape.
fn mark<CT: CoordTranslate>(
    area: &DrawingArea<SVGBackend<'_>, CT>,
    at: CT::From,
    index: usize,
) -> Result<()>
where
    CT::From: Clone + 'static,
{
    let colour = colour(index);
    match index % 3 {
        0 => area.draw(&Circle::new(at, 4, colour.filled())),
        1 => area.draw(&TriangleMarker::new(at, 6, colour.filled())),
        _ => area.draw(&Cross::new(at, 4, colour.stroke_width(2))),
    }
    .map_err(failed)
}

/// The legend.
fn name_series(area: &Area<'_>, figure: &Figure) -> Result<()> {
    for (index, series) in figure.series.iter().enumerate() {
        let (left, y) = (12, 24 + LEGEND_LINE * index as i32);
        let line = colour(index).stroke_width(2);
        match figure.shape {
            Shape::Lines => {
                area.draw(&PathElement::new([(left, y), (left + 24, y)], line))
                    .map_err(failed)?;
                mark(area, (left + 12, y), index)?;
            }
            Shape::Bars => {
                let corners = [(left, y - 6), (left + 24, y + 6)];
                area.draw(&Rectangle::new(corners, colour(index).filled()))
                    .map_err(failed)?;
            }
        }
        let text = Text::new(series.name.clone(), (left + 32, y - 6), ("sans-serif", 14));
        area.draw(&text).map_err(failed)?;
    }
    Ok(())
}
