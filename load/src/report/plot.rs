//! Line plots as SVG.

use std::f64::consts::LOG10_2;
use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::prelude::*;

use super::escape::escaped;
use super::figure;

/// `plotters` draws on whole pixels, so the drawing is larger than its displayed size by this factor.
pub(super) const SCALE: u32 = 4;

/// The factor by which `plotters` divides the font size.
const LETTERS: f64 = 1.24;

/// Number of CSS classes for lines. Further designs start again with the first one.
pub(super) const SERIES: usize = 8;

/// A style of drawn elements. Each has CSS classes: `s0` and `f0` for the line and the marks of a series, and so on.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ink {
    /// Grid lines behind the data.
    Grid,
    /// The axis lines.
    Axis,
    /// Text in the normal style.
    Text,
    /// Text in an emphasized style.
    Strong,
    /// The background of a picture.
    Ground,
    /// The line of a design, by its index in the report.
    Series(usize),
}

impl Ink {
    /// Returns a colour that is replaced by the class after the drawing.
    pub(super) fn colour(self) -> RGBColor {
        match self {
            Self::Grid => RGBColor(1, 0, 0),
            Self::Axis => RGBColor(1, 0, 1),
            Self::Text => RGBColor(1, 0, 2),
            Self::Strong => RGBColor(1, 0, 3),
            Self::Ground => RGBColor(1, 0, 4),
            Self::Series(at) => RGBColor(1, 1, (at % SERIES) as u8),
        }
    }

    /// Returns the classes for its lines and for its filled areas.
    fn classes(self) -> (String, String) {
        match self {
            Self::Grid => ("g".to_owned(), "gf".to_owned()),
            Self::Axis => ("a".to_owned(), "af".to_owned()),
            Self::Text => ("t".to_owned(), "t".to_owned()),
            Self::Strong => ("h".to_owned(), "h".to_owned()),
            Self::Ground => ("b".to_owned(), "b".to_owned()),
            Self::Series(at) => (format!("s{at}"), format!("f{at}")),
        }
    }

    fn all() -> impl Iterator<Item = Self> {
        let others = [Self::Grid, Self::Axis, Self::Text, Self::Strong, Self::Ground];
        others.into_iter().chain((0..SERIES).map(Self::Series))
    }
}

/// The error of a drawing. Drawing into a string does not fail.
pub(super) type DrawError = DrawingAreaErrorKind<std::io::Error>;

/// The area of a drawing.
pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// The texts of a drawing for screen readers.
pub struct Words<'a> {
    /// A unique id on the page, of letters, digits and `-`.
    pub id: &'a str,
    /// The title of the drawing.
    pub title: &'a str,
    /// A description of the drawing.
    pub description: &'a str,
}

/// The line of a design in a plot.
pub struct Line {
    /// Its index in the report, which gives it the same style in every plot.
    pub series: usize,
    /// The points from left to right.
    pub points: Vec<(f64, f64)>,
}

/// Ticks on the axis of shares, in nines: 50, 90, 99, 99.9 %, and so on.
const MARKED_NINES: [f64; 6] = [LOG10_2, 1.0, 2.0, 3.0, 4.0, 5.0];

/// Draws latencies: share (0 to 1) and microseconds. Each further nine of the share has the same width.
pub fn latencies(words: &Words<'_>, lines: &[Line]) -> String {
    let stretched: Vec<Line> =
        lines.iter().map(|line| Line { series: line.series, points: nines(&line.points) }).collect();
    let most = greatest(&stretched, |point| point.0).clamp(2.05, 5.0);
    let marks: Vec<f64> = MARKED_NINES.into_iter().filter(|nines| *nines <= most).collect();
    let label = |nines: &f64| percent(*nines);
    let axes =
        Axes { x: 0.0..most, x_ticks: marks.clone(), x_label: &label, y_label: &|us| plain(&figure::time_us(*us)) };
    chart(words, &axes, &stretched, |line| {
        marks.iter().filter_map(|at| Some((*at, height(&line.points, *at)?))).collect()
    })
}

/// Draws values of a unit over seconds.
pub fn over_time(words: &Words<'_>, lines: &[Line], unit: &str) -> String {
    let end = greatest(lines, |point| point.0).max(0.1);
    let step = round_step(end / 5.0);
    let ticks: Vec<f64> = (0..=12).map(|tick| f64::from(tick) * step).filter(|at| *at <= end * 1.001).collect();
    let label = |at: &f64| if step < 1.0 { format!("{at:.1} s") } else { format!("{at:.0} s") };
    let y_label = |value: &f64| plain(&figure::of_unit(unit, *value));
    let axes = Axes { x: 0.0..end, x_ticks: ticks, x_label: &label, y_label: &y_label };
    // Six marks per line at different positions for each design, so that they do not hide each other.
    chart(words, &axes, lines, |line| {
        let apart = (line.points.len() / 6).max(1);
        line.points.iter().skip((line.series * apart / 3) % apart).step_by(apart).copied().collect()
    })
}

/// Draws a short piece of a line in its plot style, to be placed beside a name.
pub fn swatch(series: usize) -> String {
    let at = series % SERIES;
    let marks: Vec<String> = mark(series).iter().map(|(x, y)| format!("{},{}", x + 64, y + 20)).collect();
    format!(
        "<svg class=\"plot swatch\" viewBox=\"0 0 128 40\" aria-hidden=\"true\"><path class=\"s{at}\" fill=\"none\" \
         stroke-width=\"8\" d=\"M0 20H128\"/><polygon class=\"f{at}\" points=\"{}\"/></svg>",
        marks.join(" ")
    )
}

/// Draws on an empty area. `size` is the displayed size in pixels.
pub(super) fn drawn(
    words: &Words<'_>,
    size: (u32, u32),
    draw: impl FnOnce(&Area<'_>) -> Result<(), DrawError>,
) -> String {
    let mut svg = String::new();
    let outcome = {
        let area = SVGBackend::with_string(&mut svg, (size.0 * SCALE, size.1 * SCALE)).into_drawing_area();
        draw(&area).and_then(|()| area.present())
    };
    match outcome {
        Ok(()) => in_classes(words, size, &svg),
        // No plot is better than half a plot; the table beside it has the data.
        Err(_) => String::new(),
    }
}

/// Returns a text style of a displayed size in pixels.
pub(super) fn letters(pixels: f64, ink: Ink) -> TextStyle<'static> {
    ("sans-serif", pixels * f64::from(SCALE) * LETTERS).into_font().color(&ink.colour())
}

/// An axis with ticks at given values.
struct Scale {
    range: Range<f64>,
    ticks: Vec<f64>,
    is_log: bool,
}

impl Ranged for Scale {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        let place = |value: f64| if self.is_log { value.log10() } else { value };
        let (start, end) = (place(self.range.start), place(self.range.end));
        from + (f64::from(to - from) * (place(*value) - start) / (end - start)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() { Vec::new() } else { self.ticks.clone() }
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

struct Axes<'a> {
    x: Range<f64>,
    x_ticks: Vec<f64>,
    x_label: &'a dyn Fn(&f64) -> String,
    y_label: &'a dyn Fn(&f64) -> String,
}

fn chart(words: &Words<'_>, axes: &Axes<'_>, lines: &[Line], marks: impl Fn(&Line) -> Vec<(f64, f64)>) -> String {
    drawn(words, (440, 270), |area| draw_chart(area, axes, lines, marks))
}

fn draw_chart(
    area: &Area<'_>,
    axes: &Axes<'_>,
    lines: &[Line],
    marks: impl Fn(&Line) -> Vec<(f64, f64)>,
) -> Result<(), DrawError> {
    let (low, high) = decades(lines);
    let x = Scale { range: axes.x.clone(), ticks: axes.x_ticks.clone(), is_log: false };
    let y_ticks = (low..=high).map(|exponent| 10_f64.powi(exponent)).collect();
    let y = Scale { range: 10_f64.powi(low)..10_f64.powi(high), ticks: y_ticks, is_log: true };
    let mut chart = ChartBuilder::on(area)
        .margin_top(10 * SCALE)
        .margin_right(18 * SCALE)
        .x_label_area_size(26 * SCALE)
        .y_label_area_size(62 * SCALE)
        .build_cartesian_2d(x, y)?;
    chart
        .configure_mesh()
        .bold_line_style(Ink::Grid.colour().stroke_width(SCALE))
        .light_line_style(TRANSPARENT)
        .axis_style(Ink::Axis.colour().stroke_width(SCALE))
        .set_all_tick_mark_size(4 * SCALE)
        .label_style(letters(12.0, Ink::Text))
        .x_label_formatter(axes.x_label)
        .y_label_formatter(axes.y_label)
        .draw()?;
    // Draw the first design last, above the others.
    for line in lines.iter().rev() {
        let colour = Ink::Series(line.series).colour();
        let points = line.points.iter().copied().filter(|(x, y)| *x <= axes.x.end && *y > 0.0);
        let width = if line.series == 0 { 5 * SCALE / 2 } else { 2 * SCALE };
        chart.draw_series(LineSeries::new(points, colour.stroke_width(width)))?;
        let shape = mark(line.series);
        let marks = marks(line).into_iter().filter(|(_, y)| *y > 0.0);
        chart.draw_series(marks.map(|at| EmptyElement::at(at) + Polygon::new(shape.clone(), colour.filled())))?;
    }
    Ok(())
}

/// Returns the shape of the marks of a design: disc, square, triangle, diamond, inverted triangle, hexagon, flat bar, upright bar.
fn mark(series: usize) -> Vec<(i32, i32)> {
    let round = |corners: u32, radius: f64| {
        let corner = |at| std::f64::consts::TAU * f64::from(at) / f64::from(corners);
        (0..corners).map(|at| ((radius * corner(at).cos()) as i32, (radius * corner(at).sin()) as i32)).collect()
    };
    match series % SERIES {
        0 => round(16, 15.0),
        1 => vec![(-13, -13), (13, -13), (13, 13), (-13, 13)],
        2 => vec![(0, -17), (16, 13), (-16, 13)],
        3 => vec![(0, -18), (18, 0), (0, 18), (-18, 0)],
        4 => vec![(0, 17), (16, -13), (-16, -13)],
        5 => round(6, 15.0),
        6 => vec![(-17, -8), (17, -8), (17, 8), (-17, 8)],
        _ => vec![(-8, -17), (8, -17), (8, 17), (-8, 17)],
    }
}

/// Converts shares to nines, the unit of the axis: 0.9 has one nine, 0.99 two.
fn nines(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let last_seen = points.iter().map(|point| point.0).filter(|share| *share < 1.0).fold(0.0, f64::max);
    let nines = |share: f64| -(1.0 - share).log10();
    // The maximum has an infinite number of nines. It is placed in the middle of the remaining share.
    let place = |share: f64| if share < 1.0 { nines(share) } else { nines(last_seen.midpoint(1.0)) };
    points.iter().map(|(share, us)| (place(*share), *us)).collect()
}

/// Returns the height of a line between its points by interpolation, or `None` outside of it.
fn height(points: &[(f64, f64)], at: f64) -> Option<f64> {
    let around = points.windows(2).find(|two| two[0].0 <= at && at <= two[1].0)?;
    let (from, to) = (around[0], around[1]);
    let share = if to.0 > from.0 { (at - from.0) / (to.0 - from.0) } else { 1.0 };
    // The interpolation is linear on a logarithmic axis.
    Some(from.1 * (to.1 / from.1).powf(share))
}

fn greatest(lines: &[Line], of: impl Fn(&(f64, f64)) -> f64) -> f64 {
    lines.iter().flat_map(|line| line.points.iter().map(&of)).filter(|value| value.is_finite()).fold(0.0, f64::max)
}

/// Returns the powers of ten that enclose all heights.
pub(super) fn decades(lines: &[Line]) -> (i32, i32) {
    let heights = lines.iter().flat_map(|line| line.points.iter().map(|point| point.1));
    let heights = heights.filter(|height| height.is_finite() && *height > 0.0);
    let (least, most) =
        heights.fold((f64::MAX, 0.0_f64), |(least, most), height| (least.min(height), most.max(height)));
    if most == 0.0 {
        return (0, 1);
    }
    let low = least.log10().floor() as i32;
    (low, (most.log10().ceil() as i32).max(low + 1))
}

/// Returns the smallest step of the form 1, 2 or 5 times a power of ten that is at least this long.
fn round_step(least: f64) -> f64 {
    let decade = 10_f64.powf(least.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * decade >= least * 0.999).unwrap_or(10.0);
    factor * decade
}

fn percent(nines: f64) -> String {
    if nines < 0.9 {
        return "50 %".to_owned();
    }
    let decimals = (nines.round() as usize).saturating_sub(2);
    format!("{:.decimals$} %", 100.0 - 100.0 * 10_f64.powf(-nines.round()))
}

/// Formats a round number at a tick: `1 ms`, not `1.0 ms`.
pub(super) fn plain(figure: &str) -> String {
    figure.replace(".00", "").replace(".0", "")
}

/// Replaces the placeholder colours by classes, and adds the texts for screen readers.
fn in_classes(words: &Words<'_>, (width, height): (u32, u32), svg: &str) -> String {
    let body = svg.split_once('>').map_or("", |(_, body)| body);
    let mut body = body.replace(" opacity=\"1\"", "").replace(" font-family=\"sans-serif\"", "");
    for ink in Ink::all() {
        let RGBColor(red, green, blue) = ink.colour();
        let (line, fill) = ink.classes();
        body = body
            .replace(&format!("stroke=\"#{red:02X}{green:02X}{blue:02X}\""), &format!("class=\"{line}\""))
            .replace(&format!("fill=\"#{red:02X}{green:02X}{blue:02X}\""), &format!("class=\"{fill}\""));
    }
    let Words { id, title, description } = words;
    format!(
        "<svg class=\"plot\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" width=\"{width}\" \
         height=\"{height}\" role=\"img\" aria-labelledby=\"{id}-title {id}-desc\">\n<title id=\"{id}-title\">{}</title>\n\
         <desc id=\"{id}-desc\">{}</desc>{body}",
        width * SCALE,
        height * SCALE,
        escaped(title),
        escaped(description),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: Words<'static> = Words { id: "a", title: "Pages <b>", description: "Tidewire is below all others." };

    fn lines() -> Vec<Line> {
        let curve = |us: f64| vec![(0.0, us), (0.5, us * 2.0), (0.9, us * 4.0), (0.99, us * 9.0), (1.0, us * 20.0)];
        (0..3).map(|series| Line { series, points: curve(100.0 * 7_f64.powi(series as i32)) }).collect()
    }

    #[test]
    fn a_plot_has_title_description_and_classes_but_no_colours() {
        for svg in [latencies(&WORDS, &lines()), over_time(&WORDS, &lines(), "pages/s")] {
            assert!(svg.starts_with("<svg class=\"plot\""), "{svg}");
            assert!(svg.trim_end().ends_with("</svg>"), "{svg}");
            assert!(svg.contains("<title id=\"a-title\">Pages &lt;b&gt;</title>"), "{svg}");
            assert!(svg.contains("aria-labelledby=\"a-title a-desc\""), "{svg}");
            for class in ["s0", "s1", "s2", "f2", "g", "t"] {
                assert!(svg.contains(&format!("class=\"{class}\"")), "no {class} in {svg}");
            }
            assert!(!svg.contains("=\"#"), "a colour is left in {svg}");
        }
    }

    #[test]
    fn the_percentile_axis_is_labelled_as_far_as_samples_reach() {
        let svg = latencies(&WORDS, &lines());
        for label in ["50 %", "90 %", "99 %", "100 µs", "1 ms", "10 ms"] {
            assert!(svg.contains(&format!(">\n{label}\n<")), "no {label} in {svg}");
        }
        assert!(!svg.contains("99.9 %"));
    }

    #[test]
    fn the_axis_of_a_plot_over_time_has_the_unit_of_the_case() {
        let course = |unit| over_time(&WORDS, &lines(), unit);
        assert!(course("us").contains(">\n1 ms\n<") && course("bytes").contains(">\n1 KB\n<"));
        assert!(course("pages/s").contains(">\n1 k/s\n<"));
    }

    #[test]
    fn percentiles_are_labelled_by_their_nines() {
        let expected = [(LOG10_2, "50 %"), (1.0, "90 %"), (2.0, "99 %"), (3.0, "99.9 %"), (5.0, "99.999 %")];
        for (nines, text) in expected {
            assert_eq!(percent(nines), text);
        }
    }

    #[test]
    fn nothing_to_draw_is_an_empty_plot() {
        assert!(latencies(&WORDS, &[]).contains("</svg>"));
        let nothing = Line { series: 0, points: vec![(0.0, 0.0), (1.0, f64::NAN)] };
        assert!(over_time(&WORDS, &[nothing], "us").contains("</svg>"));
    }

    #[test]
    fn the_vertical_axis_spans_powers_of_ten() {
        let line = |points: &[(f64, f64)]| vec![Line { series: 0, points: points.to_vec() }];
        assert_eq!(decades(&line(&[(0.0, 3.0), (1.0, 4_000.0)])), (0, 4));
        assert_eq!(decades(&line(&[(0.0, 100.0)])), (2, 3));
        assert_eq!(decades(&line(&[(0.0, 0.0)])), (0, 1));
    }

    #[test]
    fn steps_are_round() {
        for (least, step) in [(0.03, 0.05), (1.0, 1.0), (1.2, 2.0), (4.0, 5.0), (6.0, 10.0), (12.0, 20.0)] {
            assert!((round_step(least) - step).abs() < 1e-9, "{least}: {}", round_step(least));
        }
    }

    #[test]
    fn a_height_between_points_is_on_the_line() {
        let points = [(0.0, 1.0), (2.0, 100.0)];
        assert!((height(&points, 1.0).unwrap() - 10.0).abs() < 1e-9);
        assert_eq!(height(&points, 2.1), None);
    }
}
