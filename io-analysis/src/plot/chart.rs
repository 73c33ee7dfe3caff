//! Line charts and heat maps with axes.

use super::svg::{Anchor, Svg};
use crate::numbers::{floor_to_u64, to_usize};

/// Line colors that are distinguishable with color blindness (Okabe and Ito).
const COLORS: [&str; 8] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999",
];

/// The size of a chart, including its margins.
pub(super) const WIDTH: f64 = 900.0;
pub(super) const HEIGHT: f64 = 320.0;

const LEFT: f64 = 80.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 44.0;
const INNER_WIDTH: f64 = WIDTH - LEFT - RIGHT;
const INNER_HEIGHT: f64 = HEIGHT - TOP - BOTTOM;

/// A line is reduced to about this many points.
const POINTS_MAX: usize = 2000;

/// An axis: its name, and the format of its values.
#[derive(Clone, Copy)]
pub(super) struct Axis<'a> {
    pub(super) name: &'a str,
    pub(super) format: fn(f64) -> String,
    pub(super) logarithmic: bool,
}

/// Named lines over x.
pub(super) struct LineChart<'a> {
    pub(super) title: &'a str,
    pub(super) x: Axis<'a>,
    pub(super) y: Axis<'a>,
    pub(super) lines: Vec<(String, Vec<(f64, f64)>)>,
}

/// The range of values of an axis.
struct Scale {
    least: f64,
    greatest: f64,
    logarithmic: bool,
}

impl Scale {
    fn over(values: impl Iterator<Item = f64>, from_zero: bool, logarithmic: bool) -> Self {
        let (mut least, mut greatest) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|value| value.is_finite() && (!logarithmic || *value > 0.0)) {
            (least, greatest) = (least.min(value), greatest.max(value));
        }
        if least > greatest {
            (least, greatest) = (if logarithmic { 1.0 } else { 0.0 }, 1.0);
        }
        if from_zero && !logarithmic {
            least = least.min(0.0);
        }
        if greatest <= least {
            greatest = if logarithmic {
                least * 2.0
            } else {
                least + 1.0
            };
        }
        Self {
            least,
            greatest,
            logarithmic,
        }
    }

    /// The position of a value: 0 at the least, 1 at the greatest.
    fn share(&self, value: f64) -> f64 {
        let share = if self.logarithmic {
            (value.max(self.least) / self.least).ln() / (self.greatest / self.least).ln()
        } else {
            (value - self.least) / (self.greatest - self.least)
        };
        share.clamp(0.0, 1.0)
    }

    /// Round values on the scale.
    fn ticks(&self) -> Vec<f64> {
        if self.logarithmic {
            let steps = (self.greatest / self.least).log2().ceil().max(1.0);
            let every = to_usize(floor_to_u64((steps / 8.0).ceil()));
            let ticks = (0..=to_usize(floor_to_u64(steps))).step_by(every);
            return ticks.map(|n| self.least * (n as f64).exp2()).collect();
        }
        let rough = (self.greatest - self.least) / 6.0;
        let power = 10f64.powf(rough.log10().floor());
        let factors = [1.0, 2.0, 5.0, 10.0];
        let factor = factors
            .into_iter()
            .find(|factor| factor * power >= rough)
            .unwrap_or(10.0);
        let step = factor * power;
        let first = (self.least / step).ceil();
        let ticks = (0..12).map(|n| (first + f64::from(n)) * step);
        ticks
            .take_while(|tick| *tick <= self.greatest + step * 1e-9)
            .collect()
    }
}

/// Draws the axes of a chart, with ticks and names.
fn frame(svg: &mut Svg, top: f64, title: &str, axes: [(&Axis<'_>, &Scale); 2]) {
    let [(x_axis, x), (y_axis, y)] = axes;
    let bottom = top + TOP + INNER_HEIGHT;
    for tick in x.ticks() {
        let at = LEFT + x.share(tick) * INNER_WIDTH;
        svg.line((at, bottom), (at, bottom + 4.0), "black");
        svg.text(at, bottom + 16.0, Anchor::Middle, &(x_axis.format)(tick));
    }
    for tick in y.ticks() {
        let at = bottom - y.share(tick) * INNER_HEIGHT;
        svg.line((LEFT - 4.0, at), (LEFT, at), "black");
        svg.text(LEFT - 7.0, at + 4.0, Anchor::End, &(y_axis.format)(tick));
    }
    svg.line((LEFT, bottom), (LEFT + INNER_WIDTH, bottom), "black");
    svg.line((LEFT, top + TOP), (LEFT, bottom), "black");
    svg.text(LEFT, top + 15.0, Anchor::Start, title);
    svg.text(LEFT, top + 29.0, Anchor::End, y_axis.name);
    svg.text(LEFT + INNER_WIDTH, bottom + 32.0, Anchor::End, x_axis.name);
}

impl LineChart<'_> {
    /// Draws the chart with its upper edge at `top`.
    pub(super) fn draw(&self, svg: &mut Svg, top: f64) {
        let points = || self.lines.iter().flat_map(|(_, points)| points);
        let x = Scale::over(points().map(|point| point.0), false, self.x.logarithmic);
        let y = Scale::over(points().map(|point| point.1), true, self.y.logarithmic);
        frame(svg, top, self.title, [(&self.x, &x), (&self.y, &y)]);
        for (index, (name, points)) in self.lines.iter().enumerate() {
            let color = COLORS[index % COLORS.len()];
            let every = points.len().div_ceil(POINTS_MAX).max(1);
            let place = |&(at, value): &(f64, f64)| {
                let bottom = top + TOP + INNER_HEIGHT;
                (
                    LEFT + x.share(at) * INNER_WIDTH,
                    bottom - y.share(value) * INNER_HEIGHT,
                )
            };
            svg.polyline(points.chunks(every).filter_map(peak).map(place), color);
            let at = top + TOP + 14.0 * index as f64;
            if at < top + HEIGHT - 8.0 {
                svg.rectangle(LEFT + INNER_WIDTH + 12.0, at, 10.0, 10.0, color);
                let name: String = name.chars().take(28).collect();
                svg.text(LEFT + INNER_WIDTH + 27.0, at + 9.0, Anchor::Start, &name);
            }
        }
    }
}

/// The greatest of adjacent points: reduction must not hide a peak.
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
    /// Columns of cells, from bottom to top.
    pub(super) cells: &'a [Vec<u64>],
    pub(super) rows: usize,
}

impl HeatChart<'_> {
    /// Draws the chart with its upper edge at `top`.
    pub(super) fn draw(&self, svg: &mut Svg, top: f64) {
        let scale = |(from, to): (f64, f64)| Scale::over([from, to].into_iter(), false, false);
        let (x, y) = (scale(self.x_range), scale(self.y_range));
        frame(svg, top, self.title, [(&self.x, &x), (&self.y, &y)]);
        let most = self
            .cells
            .iter()
            .flatten()
            .copied()
            .max()
            .unwrap_or(0)
            .max(1);
        let width = INNER_WIDTH / self.cells.len().max(1) as f64;
        let height = INNER_HEIGHT / self.rows.max(1) as f64;
        for (column, cells) in self.cells.iter().enumerate() {
            for (row, &count) in cells.iter().enumerate().filter(|(_, count)| **count > 0) {
                // Logarithmic, so that cells with small values are visible.
                let share = ((count as f64).ln_1p() / (most as f64).ln_1p()).clamp(0.0, 1.0);
                let level = floor_to_u64(225.0 * (1.0 - share));
                let fill = format!("#{level:02x}{level:02x}{:02x}", 140 + level / 2);
                let left = LEFT + column as f64 * width;
                let upper = top + TOP + INNER_HEIGHT - (row + 1) as f64 * height;
                svg.rectangle(left, upper, width + 0.1, height + 0.1, &fill);
            }
        }
    }
}
