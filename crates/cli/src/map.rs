//! `vellum map`: draws areas as nested boxes.

use std::fmt::Write;
use vellum_terminal::{Failure, Outcome};

use crate::areas::{self, Areas, Gone, Shown};
use crate::args::Map;

/// The size of the picture, and the margin and the title of a box, in pixels.
const WIDTH: f64 = 1200.0;
const HEIGHT: f64 = 800.0;
const LEGEND: f64 = 30.0;
const MARGIN: f64 = 3.0;
const TITLE: f64 = 16.0;
/// The width of a character of a title.
const LETTER: f64 = 7.0;

/// Labels and their colours.
const COLOURS: [(&str, &str); 4] = [
    ("no label", "#e8e8e8"),
    ("cold", "#9ecae1"),
    ("warm", "#fdd0a2"),
    ("hot", "#f16913"),
];

/// The number of areas that are shown as formed last, ...
const LAST: usize = 5;
/// ... with this border.
const LAST_BORDER: &str = "stroke=\"#c51b8a\" stroke-width=\"3\"";
const BORDER: &str = "stroke=\"#555\"";

/// A rectangle.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rectangle {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

impl Rectangle {
    /// Splits the rectangle along its longer side into parts with sizes in proportion to `weights`.
    fn divided(self, weights: &[f64]) -> Vec<Self> {
        let sum: f64 = weights.iter().sum();
        let is_wide = self.width >= self.height;
        let mut before = 0.0;
        let part = |weight: &f64| {
            let (from, share) = (before / sum, weight / sum);
            before += weight;
            if is_wide {
                Self {
                    x: self.x + self.width * from,
                    width: self.width * share,
                    ..self
                }
            } else {
                Self {
                    y: self.y + self.height * from,
                    height: self.height * share,
                    ..self
                }
            }
        };
        weights.iter().map(part).collect()
    }

    /// The rectangle without the margin and the title.
    fn inside(self) -> Self {
        Self {
            x: self.x + MARGIN,
            y: self.y + TITLE,
            width: (self.width - 2.0 * MARGIN).max(0.0),
            height: (self.height - TITLE - MARGIN).max(0.0),
        }
    }
}

/// Draws a pool's areas.
pub(crate) fn run(args: &Map) -> Outcome {
    let shown = areas::look(&args.pool, &args.opening)?;
    let name = args.pool.display().to_string();
    std::fs::write(&args.out, drawn(&name, &shown))
        .map_err(|error| Failure::io(args.out.display(), &error))
}

/// The picture.
fn drawn(pool: &str, areas: &Areas) -> String {
    let Areas { areas, merged } = areas;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{0}\" viewBox=\"0 0 \
         {WIDTH} {0}\" font-family=\"sans-serif\" font-size=\"12\">\n<title>Areas of \
         {1}</title>\n",
        HEIGHT + LEGEND,
        escaped(pool)
    );
    let place = Rectangle {
        x: 0.0,
        y: 0.0,
        width: WIDTH,
        height: HEIGHT,
    };
    let first: Vec<&Shown> = areas.iter().filter(|area| area.above == 0).collect();
    let picture = Picture {
        areas,
        merged,
        last: formed_last(areas),
    };
    picture.draw_side_by_side(&mut svg, &first, place);
    let colours = COLOURS.map(|(label, colour)| (label, colour, BORDER));
    let last = ("formed last", "#ffffff", LAST_BORDER);
    for (number, (label, colour, border)) in (0..).zip(colours.into_iter().chain([last])) {
        let x = 10.0 + 120.0 * f64::from(number);
        let y = HEIGHT + 8.0;
        svg += &format!(
            "<rect x=\"{x}\" y=\"{y}\" width=\"14\" height=\"14\" fill=\"{colour}\" {border}/>\n\
             <text x=\"{}\" y=\"{}\">{label}</text>\n",
            x + 20.0,
            y + 12.0
        );
    }
    svg + "</svg>\n"
}

/// The numbers of the areas that were formed last, without the area of the pool's root, which was
/// formed with the pool.
fn formed_last(areas: &[Shown]) -> Vec<u32> {
    let formed = areas.iter().filter(|area| area.above != 0);
    let mut times: Vec<_> = formed
        .filter_map(|area| Some((area.formed?, area.number)))
        .collect();
    times.sort_unstable();
    times
        .iter()
        .rev()
        .take(LAST)
        .map(|&(_, area)| area)
        .collect()
}

/// The names in an area and in all areas inside it, plus one for each, so that empty areas are
/// visible.
fn weight(areas: &[Shown], area: &Shown) -> f64 {
    let within: f64 = within(areas, area).map(|one| weight(areas, one)).sum();
    area.names as f64 + 1.0 + within
}

/// The areas directly inside another one.
fn within<'a>(areas: &'a [Shown], area: &Shown) -> impl Iterator<Item = &'a Shown> {
    let number = area.number;
    areas.iter().filter(move |one| one.above == number)
}

/// The areas to draw.
struct Picture<'a> {
    areas: &'a [Shown],
    merged: &'a [Gone],
    /// Numbers of the areas that were formed last.
    last: Vec<u32>,
}

impl Picture<'_> {
    fn draw_side_by_side(&self, svg: &mut String, some: &[&Shown], place: Rectangle) {
        let weights: Vec<f64> = some.iter().map(|area| weight(self.areas, area)).collect();
        for (area, place) in some.iter().zip(place.divided(&weights)) {
            self.draw(svg, area, place);
        }
    }

    fn draw(&self, svg: &mut String, area: &Shown, place: Rectangle) {
        self.draw_box(svg, area, place);
        let inner: Vec<&Shown> = within(self.areas, area).collect();
        if inner.is_empty() {
            return;
        }
        // The names of the area itself come first.
        let own = area.names as f64 + 1.0;
        let [_, rest] = place
            .inside()
            .divided(&[own, weight(self.areas, area) - own])
            .try_into()
            .unwrap_or([place; 2]);
        self.draw_side_by_side(svg, &inner, rest);
    }

    /// The text about the areas that were merged into an area. Areas that were merged into an
    /// earlier area with the same number are left out.
    fn taken_in(&self, area: &Shown) -> String {
        let is_its = |gone: &&Gone| {
            gone.into == area.number && (area.above == 0 || gone.merged >= area.formed)
        };
        let told = |gone: &Gone| {
            let [merged, why] = gone.told();
            let path = escaped(gone.path.as_deref().unwrap_or("a directory that is gone"));
            format!("; {path} was merged into it {merged} ({why})")
        };
        self.merged.iter().filter(is_its).map(told).collect()
    }

    fn draw_box(&self, svg: &mut String, area: &Shown, place: Rectangle) {
        let label = area.label.as_deref().unwrap_or(COLOURS[0].0);
        let colour = COLOURS.iter().find(|(name, _)| *name == label);
        let colour = colour.map_or(COLOURS[0].1, |(_, colour)| colour);
        let is_new = self.last.contains(&area.number);
        let border = if is_new { LAST_BORDER } else { BORDER };
        let Rectangle {
            x,
            y,
            width,
            height,
        } = place;
        let path = escaped(&area.path);
        let [formed, had] = area.formed();
        // Writing to a string does not fail.
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
             fill=\"{colour}\" {border}><title>{path}: area {}, {label}, {} names; formed {formed} \
             with {had}{}</title></rect>",
            area.number,
            area.names,
            self.taken_in(area)
        );
        if area.path.chars().count() as f64 * LETTER < width && height > TITLE {
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\">{path}</text>",
                x + MARGIN,
                y + 12.0
            );
        }
    }
}

/// Escapes text for XML.
fn escaped(text: &str) -> String {
    let escape = |c: char| match c {
        '&' => "&amp;".to_owned(),
        '<' => "&lt;".to_owned(),
        '>' => "&gt;".to_owned(),
        '"' => "&quot;".to_owned(),
        // XML allows no other control characters.
        c if c.is_control() => '\u{FFFD}'.to_string(),
        c => c.to_string(),
    };
    text.chars().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn area(number: u32, above: u32, names: u64, path: &str) -> Shown {
        Shown {
            number,
            above,
            label: (above != 0).then(|| "warm".into()),
            names,
            bytes: names * 128,
            formed: Some(number),
            formed_bytes: None,
            formed_reads: None,
            path: path.to_owned(),
        }
    }

    #[test]
    fn those_formed_last_are_the_last() {
        let mut areas: Vec<Shown> = (2..12).map(|number| area(number, 1, 1, "/a")).collect();
        areas[0].formed = Some(100);
        areas[9].formed = None;
        assert_eq!(formed_last(&areas), [2, 10, 9, 8, 7]);
    }

    #[test]
    fn boxes_are_in_boxes_and_as_large_as_names_are_many() {
        let place = Rectangle {
            x: 10.0,
            y: 20.0,
            width: 400.0,
            height: 100.0,
        };
        let parts = place.divided(&[1.0, 3.0]);
        assert_eq!((parts[0].x, parts[0].width), (10.0, 100.0));
        assert_eq!((parts[1].x, parts[1].width), (110.0, 300.0));
        let high = Rectangle {
            height: 800.0,
            ..place
        };
        let parts = high.divided(&[1.0, 1.0]);
        assert_eq!((parts[1].y, parts[1].height), (420.0, 400.0));
    }

    #[test]
    fn every_area_is_drawn_once() {
        let areas = vec![
            area(1, 0, 10, "/"),
            area(2, 1, 100, "/a & <b>"),
            area(3, 2, 0, "/a & <b>/c"),
        ];
        // One was merged into an earlier area 3.
        let merged = [(4, 2, Some(5)), (5, 3, Some(2)), (6, 1, None)];
        let merged = merged.map(|(number, into, merged)| Gone {
            number,
            into,
            merged,
            reason: "asked".into(),
            bytes: None,
            reads: None,
            average_reads: None,
            path: (number == 4).then(|| "/<d>".to_owned()),
        });
        let merged = merged.into();
        let svg = drawn("p.img", &Areas { areas, merged });
        // Three areas, the colours and a border.
        assert_eq!(svg.matches("<rect").count(), 3 + COLOURS.len() + 1);
        // Area 1 is that of the pool's root.
        assert_eq!(svg.matches(LAST_BORDER).count(), 2 + 1);
        assert!(svg.contains("/a &amp; &lt;b&gt;: area 2, warm, 100 names"));
        assert!(svg.contains("/: area 1, no label, 10 names"));
        assert!(
            svg.contains("; /&lt;d&gt; was merged into it 1970-01-01 00:00:05 (asked)</title>")
        );
        assert!(svg.contains("; a directory that is gone was merged into it - (asked)</title>"));
        assert_eq!(svg.matches(" was merged into it ").count(), 2);
        assert!(!svg.contains("& <"));
    }
}
