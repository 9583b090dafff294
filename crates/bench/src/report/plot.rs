//! A figure as SVG.
//!
//! The page's style sets the colours of axes and text, which it finds by the values here, so a plot
//! is readable on light and on dark backgrounds. Series differ in colour and in shape.

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::coord::{CoordTranslate, Shift};
use plotters::prelude::*;

use crate::Result;
use crate::error::Error;
use crate::figure::{Figure, Point, Scale, Shape};

/// The size of a plot, and of its legend at the right.
const WIDTH: u32 = 960;
const HEIGHT: u32 = 440;
const LEGEND_WIDTH: u32 = 190;
const LEGEND_LINE: i32 = 24;
/// The height of a line of a mark's text.
const MARK_LINE: i32 = 11;
/// The fraction of a label's width that a group of bars takes.
const GROUP: f64 = 0.8;
/// The shift between points of lines, so that their spreads do not cover one another.
const ASIDE: f64 = 0.04;
/// The approximate number of marks on the vertical axis.
const MARKS: f64 = 8.0;
/// Labels beyond this many are drawn small.
const LABELS_LARGE: usize = 14;

/// Colours of text, axes and spreads, by which the style sheet finds them.
const INK: RGBColor = RGBColor(0x10, 0x10, 0x10);
const RULE: RGBColor = RGBColor(0xD0, 0xD0, 0xD0);
/// Colours of series, whose lightness suits light and dark backgrounds.
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
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Labels, Numbers>>;

/// The horizontal axis: labels in a row, at a distance of one; the first is at 0.
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

/// The vertical axis. (In some ranges plotters' own logarithmic axis looks for its marks forever.)
#[derive(Clone)]
struct Numbers {
    scale: Scale,
    low: f64,
    high: f64,
}

impl Numbers {
    /// A range that includes everything in a figure.
    fn of(figure: &Figure) -> Self {
        let points = || figure.series.iter().flat_map(|series| &series.points);
        let high = points().map(|point| point.high).fold(0.0, f64::max);
        let scale = figure.y.scale;
        let (low, high) = match scale {
            Scale::Linear => (0.0, if high > 0.0 { high * 1.06 } else { 1.0 }),
            Scale::Log => {
                let lows = points().map(|point| point.low).filter(|&low| low > 0.0);
                let low = lows.fold(f64::INFINITY, f64::min);
                match (low.is_finite(), high > 0.0) {
                    (true, true) => (low / 1.4, high * 1.4),
                    _ => (0.5, 2.0),
                }
            }
        };
        Self { scale, low, high }
    }

    /// 1, 2 and 5 times powers of ten; only the powers if there are many.
    fn marks(&self) -> Vec<f64> {
        let powers = |low: f64, high: f64| low.log10().floor() as i32..=high.log10().ceil() as i32;
        let factors = [1.0, 2.0, 5.0];
        let marks: Vec<f64> = match self.scale {
            Scale::Linear => {
                let steps = powers(self.high / 100.0, self.high);
                let steps = steps.flat_map(|power| factors.map(|f| f * 10_f64.powi(power)));
                let step = steps.into_iter().find(|step| self.high / step <= MARKS);
                let step = step.unwrap_or(self.high);
                (0..=MARKS as u32).map(|n| f64::from(n) * step).collect()
            }
            Scale::Log => {
                let decades = (self.high / self.low).log10();
                let factors = if decades > MARKS / 3.0 {
                    &factors[..1]
                } else {
                    &factors[..]
                };
                let powers = powers(self.low, self.high).map(|power| 10_f64.powi(power));
                powers
                    .flat_map(|ten| factors.iter().map(move |f| f * ten))
                    .collect()
            }
        };
        let inside = marks.into_iter();
        inside
            .filter(|mark| (self.low..=self.high).contains(mark))
            .collect()
    }
}

impl Ranged for Numbers {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        let place = |value: f64| match self.scale {
            Scale::Linear => value,
            Scale::Log => value.max(self.low).ln(),
        };
        let (low, high) = (place(self.low), place(self.high));
        from + (f64::from(to - from) * (place(*value) - low) / (high - low)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        self.marks()
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.low..self.high
    }
}

impl ValueFormatter<f64> for Numbers {
    fn format(value: &f64) -> String {
        label(*value)
    }
}

/// The number at a mark.
fn label(value: f64) -> String {
    let digits = 2 - value.abs().max(f64::MIN_POSITIVE).log10().floor() as i32;
    if value == 0.0 || digits <= 0 {
        return format!("{value:.0}");
    }
    let text = format!("{value:.*}", digits as usize);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Draws a figure.
pub(super) fn svg(figure: &Figure) -> Result<String> {
    let mut text = String::new();
    {
        let whole = SVGBackend::with_string(&mut text, (WIDTH, HEIGHT)).into_drawing_area();
        let (plot, legend) = whole.split_horizontally(WIDTH - LEGEND_WIDTH);
        draw(&plot, figure)?;
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

/// A figure as a file of its own, on a white background.
pub(super) fn alone(figure: &Figure) -> Result<String> {
    let background = "<rect width=\"100%\" height=\"100%\" fill=\"#FFFFFF\"/>\n";
    let mut text = svg(figure)?;
    let inside = text.find('>').map_or(0, |at| at + 1);
    text.insert_str(inside, background);
    Ok(text)
}

fn failed<E: std::fmt::Display>(error: E) -> Error {
    Error::Wrong(format!("a plot could not be drawn: {error}"))
}

fn draw(area: &Area<'_>, figure: &Figure) -> Result<()> {
    let labels = figure.labels();
    let numbers = Numbers::of(figure);
    let base = numbers.low;
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(52)
        .y_label_area_size(74)
        .build_cartesian_2d(Labels::of(&labels), numbers)
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
    labels
        .iter()
        .zip(0..)
        .try_for_each(|(label, at)| marks(&mut chart, figure, label, f64::from(at)))
}

/// A line over the whole height where something happened, with a text of several lines.
fn marks(chart: &mut Chart<'_, '_>, figure: &Figure, label: &str, x: f64) -> Result<()> {
    let here = figure.marks.iter().filter(|mark| mark.at == label);
    let area = chart.plotting_area();
    let (top, base) = (area.get_y_range().end, area.get_y_range().start);
    for (row, mark) in here.enumerate() {
        if row == 0 {
            let line = PathElement::new([(x, base), (x, top)], INK.stroke_width(1));
            area.draw(&line).map_err(failed)?;
        }
        let below = MARK_LINE * row as i32;
        let text = EmptyElement::at((x, top))
            + Text::new(mark.what.clone(), (3, below), ("sans-serif", 10));
        area.draw(&text).map_err(failed)?;
    }
    Ok(())
}

fn line(
    chart: &mut Chart<'_, '_>,
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

fn bars(
    chart: &mut Chart<'_, '_>,
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

/// The mark of a point: neighbouring series in the legend differ in shape.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(scale: Scale, low: f64, high: f64) -> Vec<String> {
        let marks = Numbers { scale, low, high }.marks();
        marks.into_iter().map(label).collect()
    }

    #[test]
    fn marks_are_few_and_round() {
        assert_eq!(
            marks(Scale::Linear, 0.0, 7.3),
            ["0", "1", "2", "3", "4", "5", "6", "7"]
        );
        assert_eq!(
            marks(Scale::Linear, 0.0, 0.12),
            ["0", "0.02", "0.04", "0.06", "0.08", "0.1", "0.12"]
        );
        assert_eq!(marks(Scale::Log, 30.0, 900.0), ["50", "100", "200", "500"]);
        assert_eq!(marks(Scale::Log, 0.3, 9000.0), ["1", "10", "100", "1000"]);
        assert_eq!(marks(Scale::Log, 0.11, 0.6), ["0.2", "0.5"]);
    }

    #[test]
    fn every_range_has_an_end() {
        for scale in [Scale::Linear, Scale::Log] {
            for power in -12..15 {
                for spread in [1.0001, 1.3, 7.0, 1e6] {
                    let low = 1.7 * 10_f64.powi(power);
                    let axis = Numbers {
                        scale,
                        low,
                        high: low * spread,
                    };
                    assert!(axis.marks().len() <= 24, "{scale:?} {low} {spread}");
                    assert_eq!(axis.map(&low, (0, 100)), 0);
                    assert_eq!(axis.map(&(low * spread), (0, 100)), 100);
                }
            }
        }
    }
}
