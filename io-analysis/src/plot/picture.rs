//! The charts of a report, one below another.

use std::collections::BTreeMap;

use super::chart::{Axis, HEIGHT, HeatChart, LineChart, WIDTH};
use super::svg::Svg;
use crate::cache::CacheReport;
use crate::io::{HeatMap, IoReport};
use crate::numbers::floor_to_u64;
use crate::result_file::percent;
use crate::table::bytes_text;

const SECONDS: Axis<'_> = Axis {
    name: "seconds from the start",
    format: |value| format!("{value}"),
    logarithmic: false,
};
const PERCENT: Axis<'_> = Axis {
    name: "%",
    format: |value| format!("{value}"),
    logarithmic: false,
};
const BYTES: Axis<'_> = Axis {
    name: "bytes",
    format: |value| bytes_text(floor_to_u64(value)),
    logarithmic: false,
};
const COUNT: Axis<'_> = Axis {
    name: "operations/s",
    format: |value| format!("{value}"),
    logarithmic: false,
};

/// Charts of a block cache report: miss ratio curves of the simulated caches, and misses and
/// accesses of the trace over time.
pub fn cache_picture(report: &CacheReport) -> String {
    let mut curves: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for point in &report.curves {
        let name = match point.ghost_capacity {
            0 => point.cache.clone(),
            ghost => format!("{} ({})", point.cache, bytes_text(ghost)),
        };
        let points = curves.entry(name).or_default();
        points.push((point.capacity as f64, point.miss_ratio));
    }
    let start = report.by_second.first().map_or(0, |&(second, ..)| second);
    let at = |second: u64| second.abs_diff(start) as f64;
    let by_second = report.by_second.iter();
    let ratio = by_second
        .clone()
        .map(|&(s, missed, of)| (at(s), percent(missed, of)))
        .collect();
    let accesses = by_second.map(|&(s, _, of)| (at(s), of as f64)).collect();
    let mut charts = Vec::new();
    if !curves.is_empty() {
        let mut lines: Vec<_> = curves.into_iter().collect();
        lines
            .iter_mut()
            .for_each(|(_, points)| points.sort_by(|a, b| a.0.total_cmp(&b.0)));
        let x = Axis {
            name: "capacity",
            logarithmic: true,
            ..BYTES
        };
        charts.push(LineChart {
            title: "Miss ratio by capacity",
            x,
            y: PERCENT,
            lines,
        });
    }
    charts.push(LineChart {
        title: "Miss ratio of the trace",
        x: SECONDS,
        y: PERCENT,
        lines: vec![("trace".to_owned(), ratio)],
    });
    charts.push(LineChart {
        title: "Accesses",
        x: SECONDS,
        y: Axis {
            name: "accesses/s",
            ..COUNT
        },
        lines: vec![("accesses".to_owned(), accesses)],
    });
    let mut svg = Svg::new();
    for (index, chart) in charts.iter().enumerate() {
        chart.draw(&mut svg, HEIGHT * index as f64);
    }
    svg.finish(WIDTH, HEIGHT * charts.len() as f64)
}

/// Charts of an I/O report: throughput, operations and working set over time, and heat maps of
/// reads and writes for each file class.
pub fn io_picture(report: &IoReport) -> String {
    let at = |start_ns: i64| start_ns.abs_diff(report.start_ns) as f64 / 1e9;
    let step_seconds = report.step_ns as f64 / 1e9;
    let over_time = |of: fn(&crate::io::ThroughputStep) -> u64| -> Vec<(f64, f64)> {
        let steps = report.throughput.iter();
        steps
            .map(|step| (at(step.start_ns), of(step) as f64 / step_seconds))
            .collect()
    };
    let working_set = report
        .working_set
        .iter()
        .map(|&(start, of)| (at(start), of as f64));
    let charts = [
        LineChart {
            title: "Throughput",
            x: SECONDS,
            y: Axis {
                name: "bytes/s",
                ..BYTES
            },
            lines: vec![
                ("read".to_owned(), over_time(|step| step.read_bytes)),
                ("written".to_owned(), over_time(|step| step.written_bytes)),
            ],
        },
        LineChart {
            title: "Operations",
            x: SECONDS,
            y: COUNT,
            lines: vec![
                ("reads".to_owned(), over_time(|step| step.reads)),
                ("writes".to_owned(), over_time(|step| step.writes)),
                ("syncs".to_owned(), over_time(|step| step.syncs)),
                ("others".to_owned(), over_time(|step| step.others)),
            ],
        },
        LineChart {
            title: "Distinct bytes accessed per time step",
            x: SECONDS,
            y: BYTES,
            lines: vec![("working set".to_owned(), working_set.collect())],
        },
    ];
    let mut svg = Svg::new();
    let mut top = 0.0;
    for chart in &charts {
        chart.draw(&mut svg, top);
        top += HEIGHT;
    }
    for map in &report.heat_maps {
        for (what, cells) in [("read", &map.read), ("written", &map.written)] {
            if cells.iter().flatten().any(|&count| count > 0) {
                draw_heat_map(&mut svg, top, report, map, (what, cells));
                top += HEIGHT;
            }
        }
    }
    svg.finish(WIDTH, top)
}

fn draw_heat_map(
    svg: &mut Svg,
    top: f64,
    report: &IoReport,
    map: &HeatMap,
    (what, cells): (&str, &[Vec<u64>]),
) {
    let rows = cells.iter().map(Vec::len).max().unwrap_or(0);
    let from = (map.start_ns as f64 - report.start_ns as f64) / 1e9;
    let to = from + cells.len() as f64 * map.step_ns as f64 / 1e9;
    let chart = HeatChart {
        title: &format!("Bytes {what} in files of class {} by offset", map.class),
        x: SECONDS,
        y: Axis {
            name: "offset",
            ..BYTES
        },
        x_range: (from, to),
        y_range: (0.0, rows as f64 * map.row_bytes as f64),
        cells,
        rows,
    };
    chart.draw(svg, top);
}
