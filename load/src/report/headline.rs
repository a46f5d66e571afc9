//! Draws the main results of a run as one picture for a README.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::plot::{Area, DrawError, Ink, SCALE, Words, drawn, letters, plain};
use super::{Report, TargetReport, compare, figure};

/// The cases that are shown if they were measured.
const CASES: [&str; 4] = ["deliveries", "page", "page_pipelined", "memory"];

/// Sizes in pixels.
const WIDTH: i32 = 760;
const MARGIN: i32 = 28;
const NAMES: i32 = 132;
/// Space for `6.28 M/s` and `23.4x` beyond the longest bar.
const FIGURES: i32 = 150;
const ROW: i32 = 24;
const BAR: i32 = 15;
const TITLE: i32 = 34;
const BELOW: i32 = 34;
const HEADER: i32 = 62;
const FOOTER: i32 = 38;

/// Its own colours, because a picture in a README has no page style.
const STYLE: &str = "<style>\
    text{font-family:system-ui,-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif}\
    .b{fill:#fff}.g{stroke:#e2e7ec}.gf{fill:#e2e7ec}.t{fill:#55616d}.h{fill:#17202a}.f0{fill:#0b6e82}.f1{fill:#a9b4be}\
    .frame{fill:none;stroke:#d9dfe5}\
    @media (prefers-color-scheme:dark){.b{fill:#171f25}.g{stroke:#2c3840}.gf{fill:#2c3840}.t{fill:#a0aeb9}.h{fill:#e6ecf0}\
    .f0{fill:#5ecbdf}.f1{fill:#566470}.frame{stroke:#2c3840}}\
    </style>";

/// Draws the picture as a complete SVG, for a file or an `<img>`.
pub fn headline(report: &Report) -> String {
    let panels: Vec<Panel> = CASES.iter().filter_map(|case| Panel::of(report, case)).collect();
    let height = HEADER + FOOTER + panels.iter().map(Panel::height).sum::<i32>();
    let description: Vec<String> = panels.iter().map(Panel::sentence).collect();
    let words = Words { id: "headline", title: &report.title, description: &description.join(" ") };
    let svg = drawn(&words, (WIDTH as u32, height.unsigned_abs()), |area| {
        draw(area, report, &panels, height)?;
        Ok(())
    });
    let frame = format!(
        "<rect class=\"frame\" x=\"2\" y=\"2\" width=\"{}\" height=\"{}\" rx=\"48\" stroke-width=\"4\"/>\n</svg>",
        pixels(WIDTH) - 4,
        pixels(height) - 4
    );
    // The background is the first rectangle. `plotters` cannot draw round corners.
    let svg = svg.replacen("<rect ", "<rect rx=\"48\" ", 1).replace("</svg>", &frame);
    svg.replacen("</desc>", &format!("</desc>{STYLE}"), 1)
}

struct Panel {
    title: String,
    better: &'static str,
    unit: String,
    rows: Vec<Row>,
}

struct Row {
    name: String,
    value: f64,
    figure: String,
    times: String,
    is_own: bool,
}

impl Panel {
    fn of(report: &Report, case: &str) -> Option<Self> {
        let ratios = compare::ratio_texts(report, case);
        let row = |target: &TargetReport| {
            let of = target.cases.get(case).filter(|of| of.median.is_finite() && of.median > 0.0)?;
            let ratio = ratios.iter().find(|ratio| ratio.rival == target.name);
            Some(Row {
                name: target.name.clone(),
                value: of.median,
                figure: figure::median(of),
                times: ratio.map(|ratio| ratio.times.clone()).unwrap_or_default(),
                is_own: compare::is_own(target),
            })
        };
        let rows: Vec<Row> = compare::took_part(report).filter_map(row).collect();
        let unit = compare::took_part(report).find_map(|target| target.cases.get(case))?.unit.clone();
        let more = compare::more_is_better(&unit);
        let better = if more { "more is better" } else { "less is better" };
        (!rows.is_empty()).then(|| Self { title: compare::label(case), better, unit, rows })
    }

    fn height(&self) -> i32 {
        TITLE + ROW * self.rows.len() as i32 + BELOW
    }

    fn sentence(&self) -> String {
        let figures: Vec<String> = self.rows.iter().map(|row| format!("{} {}", row.name, row.figure)).collect();
        format!("{}: {}.", self.title, figures.join(", "))
    }

    /// Returns the powers of ten of the axis: the first is below the smallest value, so that its bar is visible.
    fn decades(&self) -> (f64, f64) {
        let exponents = || self.rows.iter().map(|row| row.value.log10());
        let (least, most) = (exponents().fold(f64::MAX, f64::min), exponents().fold(f64::MIN, f64::max));
        ((least - 0.25).floor(), most.max((least - 0.25).floor() + 1.0))
    }
}

fn pixels(shown: i32) -> i32 {
    shown * SCALE as i32
}

fn write(area: &Area<'_>, text: &str, at: (i32, i32), size: f64, ink: Ink, side: HPos) -> Result<(), DrawError> {
    let style = letters(size, ink).pos(Pos::new(side, VPos::Center));
    area.draw(&Text::new(text.to_owned(), (pixels(at.0), pixels(at.1)), style))
}

fn write_title(area: &Area<'_>, text: &str, at: (i32, i32), size: f64) -> Result<(), DrawError> {
    let mut style = letters(size, Ink::Strong).pos(Pos::new(HPos::Left, VPos::Center));
    style.font = style.font.style(FontStyle::Bold);
    area.draw(&Text::new(text.to_owned(), (pixels(at.0), pixels(at.1)), style))
}

fn draw(area: &Area<'_>, report: &Report, panels: &[Panel], height: i32) -> Result<(), DrawError> {
    let all = [(0, 0), (pixels(WIDTH), pixels(height))];
    area.draw(&Rectangle::new(all, Ink::Ground.colour().filled()))?;
    write_title(area, &report.title, (MARGIN, 36), 19.0)?;
    let mut top = HEADER;
    for panel in panels {
        draw_panel(area, panel, top)?;
        top += panel.height();
    }
    let machine = &report.machine;
    let day = report.when.get(..10).unwrap_or(&report.when);
    let memory = figure::bytes(machine.memory_bytes as f64);
    let source = format!("{day}, {}, {} cores, {memory}. Axes of logarithms.", machine.processor, machine.cores);
    write(area, &source, (MARGIN, height - 26), 12.0, Ink::Text, HPos::Left)
}

fn draw_panel(area: &Area<'_>, panel: &Panel, top: i32) -> Result<(), DrawError> {
    write_title(area, &panel.title, (MARGIN, top + 12), 15.0)?;
    write(area, panel.better, (MARGIN + NAMES + 64, top + 12), 12.0, Ink::Text, HPos::Left)?;
    if panel.rows.iter().any(|row| !row.times.is_empty()) {
        write(area, "Tidewire is better by", (WIDTH - MARGIN, top + 12), 12.0, Ink::Text, HPos::Right)?;
    }
    let (low, high) = panel.decades();
    let (left, room) = (MARGIN + NAMES, WIDTH - 2 * MARGIN - NAMES - FIGURES);
    let place = |value: f64| pixels(left) + (f64::from(pixels(room)) * (value.log10() - low) / (high - low)) as i32;
    let bottom = top + TITLE + ROW * panel.rows.len() as i32;
    for exponent in low as i32..=high.floor() as i32 {
        let x = place(10_f64.powi(exponent));
        let line = vec![(x, pixels(top + TITLE - 4)), (x, pixels(bottom))];
        area.draw(&PathElement::new(line, Ink::Grid.colour().stroke_width(SCALE)))?;
        let tick = plain(&figure::of_unit(&panel.unit, 10_f64.powi(exponent)));
        write(area, &tick, (x / SCALE as i32, bottom + 10), 11.0, Ink::Text, HPos::Center)?;
    }
    for (at, row) in panel.rows.iter().enumerate() {
        let middle = top + TITLE + ROW * at as i32 + ROW / 2;
        // Only two colours: this project's designs and all others. The names identify the designs.
        let (ink, name_ink) = if row.is_own { (Ink::Series(0), Ink::Strong) } else { (Ink::Series(1), Ink::Text) };
        write(area, &row.name, (left - 12, middle), 13.0, name_ink, HPos::Right)?;
        let end = place(row.value);
        let bar = [(pixels(left), pixels(middle) - pixels(BAR) / 2), (end, pixels(middle) + pixels(BAR) / 2)];
        area.draw(&Rectangle::new(bar, ink.colour().filled()))?;
        let beside = end / SCALE as i32 + 8;
        write(area, &row.figure, (beside, middle), 13.0, Ink::Strong, HPos::Left)?;
        write(area, &row.times, (WIDTH - MARGIN, middle), 13.0, Ink::Text, HPos::Right)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn the_headline_is_a_self_contained_svg() {
        let svg = headline(&sample::report());
        assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"), "{svg}");
        assert_eq!(svg.matches("<style>").count(), 1);
        assert_eq!(svg.matches("</svg>").count(), 1);
        for text in ["Tidewire beside Redis", "6.28 M/s", "23.4x", "13.2 KB", "less is better", "Memory of an inbox"] {
            assert!(svg.contains(text), "no {text} in {svg}");
        }
    }

    #[test]
    fn unmeasured_cases_are_not_shown() {
        let mut report = sample::report();
        for target in &mut report.targets {
            target.cases.retain(|case, _| case == "page");
        }
        let svg = headline(&report);
        assert!(svg.contains("Feed pages") && !svg.contains("Memory"), "{svg}");
        report.targets.clear();
        assert!(headline(&report).contains("Tidewire beside Redis"));
    }

    #[test]
    fn external_text_is_escaped() {
        let mut report = sample::report();
        report.title = "<script>alert(1)</script>".to_owned();
        report.machine.processor = "<script>".to_owned();
        assert!(!headline(&report).contains("<script"));
    }
}
