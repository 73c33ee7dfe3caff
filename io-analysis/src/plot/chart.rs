//! Line charts and heat maps with axes.

use super::scale::{Axis, Scale, bytes_label, powers_to};
use super::svg::{Anchor, Svg};
use crate::numbers::floor_to_u64;

/// Line colors that are distinguishable with color blindness (Okabe and Ito).
const COLORS: [&str; 8] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999",
];
/// Lines of the same color differ in their dashes.
const DASHES: [&str; 4] = ["", "6 3", "2 2", "8 3 2 3"];

/// The size of a chart, including its margins.
pub(super) const WIDTH: f64 = 900.0;
pub(super) const HEIGHT: f64 = 320.0;

const LEFT: f64 = 80.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 44.0;
const INNER_WIDTH: f64 = WIDTH - LEFT - RIGHT;
const INNER_HEIGHT: f64 = HEIGHT - TOP - BOTTOM;
/// Where legends begin.
const LEGEND: f64 = LEFT + INNER_WIDTH + 12.0;
const LEGEND_LINE: f64 = 14.0;
/// Lines of a legend; the last of them counts the others.
const LEGEND_LINES_MAX: usize = 18;
const NAME_CHARS_MAX: usize = 28;
/// Steps of a scale of colors.
const COLOR_STEPS: u32 = 24;

/// A line is reduced to about this many points.
const POINTS_MAX: usize = 2000;

/// Named lines over x.
pub(super) struct LineChart<'a> {
    pub(super) title: &'a str,
    pub(super) x: Axis<'a>,
    pub(super) y: Axis<'a>,
    pub(super) lines: Vec<(String, Vec<(f64, f64)>)>,
    /// Distance of adjacent points, if they have one: a line does not cross a larger gap.
    pub(super) step: Option<f64>,
}

/// Draws the axes of a chart, with ticks and names.
fn frame(svg: &mut Svg, top: f64, title: &str, axes: [(&Axis<'_>, &Scale); 2]) {
    let [(x_axis, x), (y_axis, y)] = axes;
    let bottom = top + TOP + INNER_HEIGHT;
    for tick in x.ticks() {
        let at = LEFT + x.share(tick) * INNER_WIDTH;
        svg.line((at, bottom), (at, bottom + 4.0), "black");
        svg.tick(at, bottom + 16.0, Anchor::Middle, &x.label(tick));
    }
    for tick in y.ticks() {
        let at = bottom - y.share(tick) * INNER_HEIGHT;
        svg.line((LEFT - 4.0, at), (LEFT, at), "black");
        svg.tick(LEFT - 7.0, at + 4.0, Anchor::End, &y.label(tick));
    }
    svg.line((LEFT, bottom), (LEFT + INNER_WIDTH, bottom), "black");
    svg.line((LEFT, top + TOP), (LEFT, bottom), "black");
    let title = format!("{title}, {}", y_axis.name);
    svg.text(LEFT, top + 15.0, Anchor::Start, &title);
    svg.text(LEFT + INNER_WIDTH, bottom + 32.0, Anchor::End, x_axis.name);
}

impl LineChart<'_> {
    /// Draws the chart with its upper edge at `top`.
    pub(super) fn draw(&self, svg: &mut Svg, top: f64) {
        let points = || self.lines.iter().flat_map(|(_, points)| points);
        let x = Scale::exact(&self.x, points().map(|point| point.0));
        let y = Scale::from_zero(&self.y, points().map(|point| point.1));
        frame(svg, top, self.title, [(&self.x, &x), (&self.y, &y)]);
        let place = |(at, value): (f64, f64)| {
            let bottom = top + TOP + INNER_HEIGHT;
            (
                LEFT + x.share(at) * INNER_WIDTH,
                bottom - y.share(value) * INNER_HEIGHT,
            )
        };
        for (index, (_, points)) in self.lines.iter().enumerate() {
            let (color, dashes) = style(index);
            for run in runs(points, self.step) {
                match run.as_slice() {
                    [single] => svg.point(place(*single), color),
                    run => svg.polyline(run.iter().copied().map(place), color, dashes),
                }
            }
        }
        self.draw_legend(svg, top);
    }

    fn draw_legend(&self, svg: &mut Svg, top: f64) {
        let shown = if self.lines.len() > LEGEND_LINES_MAX {
            LEGEND_LINES_MAX - 1
        } else {
            self.lines.len()
        };
        let at = |index: usize| top + TOP + LEGEND_LINE * index as f64;
        for (index, (name, _)) in self.lines.iter().take(shown).enumerate() {
            let (color, dashes) = style(index);
            let middle = at(index) + 5.0;
            let ends = [(LEGEND, middle), (LEGEND + 12.0, middle)];
            svg.polyline(ends.into_iter(), color, dashes);
            let mut text: String = name.chars().take(NAME_CHARS_MAX).collect();
            if name.chars().nth(NAME_CHARS_MAX).is_some() {
                text.push('\u{2026}');
            }
            svg.text(LEGEND + 17.0, at(index) + 9.0, Anchor::Start, &text);
        }
        if shown < self.lines.len() {
            let others = format!("and {} more", self.lines.len() - shown);
            svg.text(LEGEND + 17.0, at(shown) + 9.0, Anchor::Start, &others);
        }
    }
}

/// The color and the dashes of a line.
fn style(index: usize) -> (&'static str, &'static str) {
    let dashes = DASHES[index / COLORS.len() % DASHES.len()];
    (COLORS[index % COLORS.len()], dashes)
}

/// The points in the order of x, divided at gaps: where a point is missing or no number. Long runs
/// are reduced to the greatest of adjacent points, because that must not hide a peak.
fn runs(points: &[(f64, f64)], step: Option<f64>) -> Vec<Vec<(f64, f64)>> {
    let mut sorted = points.to_vec();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut runs: Vec<Vec<(f64, f64)>> = Vec::new();
    let mut last: Option<f64> = None;
    for point in sorted {
        if !(point.0.is_finite() && point.1.is_finite()) {
            last = None;
            continue;
        }
        let continues = |last: f64| step.is_none_or(|step| point.0 - last <= step * 1.5);
        match runs.last_mut() {
            Some(run) if last.is_some_and(continues) => run.push(point),
            _ => runs.push(vec![point]),
        }
        last = Some(point.0);
    }
    let every = points.len().div_ceil(POINTS_MAX).max(1);
    let reduced = |run: Vec<(f64, f64)>| -> Vec<(f64, f64)> {
        run.chunks(every).filter_map(peak).copied().collect()
    };
    runs.into_iter().map(reduced).collect()
}

fn peak(points: &[(f64, f64)]) -> Option<&(f64, f64)> {
    points.iter().max_by(|a, b| a.1.total_cmp(&b.1))
}

/// Cells over two axes; darker cells have greater values.
pub(super) struct HeatChart<'a> {
    pub(super) title: &'a str,
    pub(super) x: Axis<'a>,
    pub(super) y: Axis<'a>,
    /// Range of the columns.
    pub(super) x_range: (f64, f64),
    /// Range of the rows.
    pub(super) y_range: (f64, f64),
    /// Columns of cells, from bottom to top: bytes. Cells of zero bytes stay white.
    pub(super) cells: &'a [Vec<u64>],
    pub(super) rows: usize,
}

impl HeatChart<'_> {
    /// Draws the chart with its upper edge at `top`.
    pub(super) fn draw(&self, svg: &mut Svg, top: f64) {
        let scale =
            |axis: &Axis<'_>, (from, to): (f64, f64)| Scale::exact(axis, [from, to].into_iter());
        let (x, y) = (scale(&self.x, self.x_range), scale(&self.y, self.y_range));
        let most = self.cells.iter().flatten().copied().max();
        let most = most.unwrap_or(0).max(1);
        let width = INNER_WIDTH / self.cells.len().max(1) as f64;
        let height = INNER_HEIGHT / self.rows.max(1) as f64;
        for (column, cells) in self.cells.iter().enumerate() {
            for (row, &count) in cells.iter().enumerate().filter(|(_, count)| **count > 0) {
                let fill = color(share_of(count, most));
                let left = LEFT + column as f64 * width;
                let upper = top + TOP + INNER_HEIGHT - (row + 1) as f64 * height;
                svg.rectangle(left, upper, width + 0.1, height + 0.1, &fill);
            }
        }
        frame(svg, top, self.title, [(&self.x, &x), (&self.y, &y)]);
        draw_colors(svg, top, most);
    }
}

/// Draws the scale of the colors: from the fewest bytes of a cell at the bottom to the most.
fn draw_colors(svg: &mut Svg, top: f64, most: u64) {
    let height = INNER_HEIGHT / f64::from(COLOR_STEPS);
    let bottom = top + TOP + INNER_HEIGHT;
    for step in 0..COLOR_STEPS {
        let share = (f64::from(step) + 0.5) / f64::from(COLOR_STEPS);
        let upper = bottom - f64::from(step + 1) * height;
        svg.rectangle(LEGEND, upper, 14.0, height + 0.1, &color(share));
    }
    for bytes in powers_to(most) {
        let at = bottom - share_of(bytes, most) * INNER_HEIGHT;
        svg.line((LEGEND + 14.0, at), (LEGEND + 18.0, at), "black");
        svg.tick(
            LEGEND + 21.0,
            at + 4.0,
            Anchor::Start,
            &bytes_label(bytes as f64),
        );
    }
    svg.text(
        LEGEND,
        bottom + 16.0,
        Anchor::Start,
        "bytes in a cell; white: none",
    );
}

/// The position of a value on the scale of colors. Logarithmic, so that cells with small values are
/// visible.
fn share_of(value: u64, most: u64) -> f64 {
    ((value as f64).ln_1p() / (most as f64).ln_1p()).clamp(0.0, 1.0)
}

/// The color of a share of the greatest value; a share of 0 is not white.
fn color(share: f64) -> String {
    let level = floor_to_u64(225.0 * (1.0 - share));
    format!("#{level:02x}{level:02x}{:02x}", 140 + level / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_ordered_and_end_at_gaps() {
        let points = [(3.0, 1.0), (0.0, 5.0), (1.0, 2.0), (9.0, 4.0), (10.0, 4.0)];
        let found = runs(&points, Some(1.0));
        assert_eq!(
            found,
            [
                vec![(0.0, 5.0), (1.0, 2.0)],
                vec![(3.0, 1.0)],
                vec![(9.0, 4.0), (10.0, 4.0)]
            ]
        );
        assert_eq!(runs(&points, None).len(), 1);
        let unknown = [(0.0, 1.0), (1.0, f64::NAN), (2.0, 1.0)];
        assert_eq!(runs(&unknown, Some(1.0)).len(), 2);
    }

    #[test]
    fn long_runs_keep_their_peaks() {
        let points: Vec<(f64, f64)> = (0..50_000).map(|n| (f64::from(n), 0.0)).collect();
        let mut points = points;
        points[31_234].1 = 7.0;
        let found = runs(&points, Some(1.0));
        assert_eq!(found.len(), 1);
        assert!(found[0].len() <= POINTS_MAX && found[0].iter().any(|point| point.1 > 6.0));
        assert!(found[0].is_sorted_by(|a, b| a.0 < b.0));
    }
}
