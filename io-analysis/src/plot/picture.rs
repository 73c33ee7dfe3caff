//! The charts of a report, one below another.

use std::collections::BTreeMap;

use super::chart::{HEIGHT, HeatChart, LineChart, WIDTH};
use super::scale::{Axis, Unit};
use super::svg::Svg;
use crate::cache::CacheReport;
use crate::io::{HeatMap, IoReport};
use crate::result_file::percent;
use crate::table::bytes_text;

const SECONDS: Axis<'_> = Axis {
    name: "seconds from the start",
    unit: Unit::Number,
    logarithmic: false,
};
const PERCENT: Axis<'_> = Axis {
    name: "%",
    unit: Unit::Number,
    logarithmic: false,
};
const BYTES: Axis<'_> = Axis {
    name: "bytes",
    unit: Unit::Bytes,
    logarithmic: false,
};
const COUNT: Axis<'_> = Axis {
    name: "operations/s",
    unit: Unit::Number,
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
    let seconds = report.by_second.iter().map(|&(second, ..)| second);
    let start = seconds.min().unwrap_or(0);
    let at = |second: u64| second.saturating_sub(start) as f64;
    let by_second = report.by_second.iter();
    let ratio = by_second
        .clone()
        .map(|&(s, missed, of)| (at(s), percent(missed, of)))
        .collect();
    let accesses = by_second.map(|&(s, _, of)| (at(s), of as f64)).collect();
    let mut charts = Vec::new();
    if !curves.is_empty() {
        let lines: Vec<_> = curves.into_iter().collect();
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
            step: None,
        });
    }
    charts.push(LineChart {
        title: "Miss ratio of the trace",
        x: SECONDS,
        y: PERCENT,
        lines: vec![("trace".to_owned(), ratio)],
        step: Some(1.0),
    });
    charts.push(LineChart {
        title: "Accesses",
        x: SECONDS,
        y: Axis {
            name: "accesses/s",
            ..COUNT
        },
        lines: vec![("accesses".to_owned(), accesses)],
        step: Some(1.0),
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
    // The first step may begin before the first operation.
    let at = |start_ns: i64| start_ns.saturating_sub(report.start_ns).max(0) as f64 / 1e9;
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
            step: Some(step_seconds),
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
            step: Some(step_seconds),
        },
        LineChart {
            title: "Distinct bytes accessed per time step",
            x: SECONDS,
            y: BYTES,
            lines: vec![("working set".to_owned(), working_set.collect())],
            step: None,
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
                draw_heat_map(&mut svg, top, report.start_ns, map, (what, cells));
                top += HEIGHT;
            }
        }
    }
    svg.finish(WIDTH, top)
}

fn draw_heat_map(
    svg: &mut Svg,
    top: f64,
    start_ns: i64,
    map: &HeatMap,
    (what, cells): (&str, &[Vec<u64>]),
) {
    let rows = cells.iter().map(Vec::len).max().unwrap_or(0);
    let from = map.start_ns.saturating_sub(start_ns) as f64 / 1e9;
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
