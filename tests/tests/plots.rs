//! The pictures that `tracehold analyze --plot` draws, read as a person reads them: titles, units,
//! legends, and what the first point of each line says.

use std::fs;
use std::path::{Path, PathBuf};

use harness::run_tracehold;
use serde_json::Value;

/// Height of a chart, and where its lines begin and end.
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 710.0;

/// A chart as it is drawn.
#[derive(Debug, Default)]
struct Chart {
    title: String,
    x_name: String,
    /// Names and strokes.
    legend: Vec<(String, String)>,
    /// Strokes and points, of those lines that are no legend.
    lines: Vec<(String, Vec<(f64, f64)>)>,
    x_labels: Vec<(f64, String)>,
    y_labels: Vec<(f64, String)>,
}

impl Chart {
    /// What a height says, by the labels of the lowest and the highest tick.
    fn value_at(&self, y: f64) -> f64 {
        let ends = (
            self.y_labels.first().unwrap(),
            self.y_labels.last().unwrap(),
        );
        let ((low_y, low), (high_y, high)) = ends;
        let (low, high) = (number_of(low), number_of(high));
        low + (y - low_y) / (high_y - low_y) * (high - low)
    }

    /// The first points of the lines with the strokes of the legend, in its order.
    fn first_points(&self) -> Vec<(f64, f64)> {
        let of = |stroke: &str| {
            let mut lines = self.lines.iter();
            let (_, points) = lines.find(|(own, _)| own == stroke).unwrap();
            points[0]
        };
        self.legend.iter().map(|(_, stroke)| of(stroke)).collect()
    }

    fn legend(&self) -> Vec<&str> {
        self.legend.iter().map(|(name, _)| &**name).collect()
    }
}

/// The number of a label: `1.5 MiB`, `2k`, `30`.
fn number_of(label: &str) -> f64 {
    let end = label.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (digits, unit) = label.split_at(end.unwrap_or(label.len()));
    let factor = match unit.trim() {
        "" | "B" => 1.0,
        "k" => 1e3,
        "KiB" => 1024.0,
        "MiB" => 1024.0 * 1024.0,
        unit => panic!("unknown unit {unit} in {label}"),
    };
    digits.parse::<f64>().unwrap() * factor
}

fn attribute<'a>(line: &'a str, name: &str) -> &'a str {
    let after = line.split_once(&format!(" {name}=\"")).unwrap().1;
    after.split_once('"').unwrap().0
}

fn number(line: &str, name: &str) -> f64 {
    attribute(line, name).parse().unwrap()
}

/// The points of a line or of a dot, and its stroke.
fn drawn(line: &str) -> Option<(String, Vec<(f64, f64)>)> {
    if line.starts_with("<circle") {
        let point = (number(line, "cx"), number(line, "cy"));
        return Some((attribute(line, "fill").to_owned(), vec![point]));
    }
    let stroke = line
        .starts_with("<polyline")
        .then(|| attribute(line, "stroke"))?;
    let points = attribute(line, "points").split_whitespace().map(|point| {
        let (x, y) = point.split_once(',').unwrap();
        (x.parse().unwrap(), y.parse().unwrap())
    });
    Some((stroke.to_owned(), points.collect()))
}

/// The number of the chart that a height is in.
fn row_of(y: f64) -> usize {
    (1_u32..)
        .take_while(|row| f64::from(*row) * HEIGHT <= y)
        .count()
}

/// The charts of a picture, from top to bottom.
fn charts(svg: &str) -> Vec<Chart> {
    let height = number(svg.lines().next().unwrap(), "height");
    let mut charts = Vec::new();
    charts.resize_with(row_of(height), Chart::default);
    let mut stroke = String::new();
    for line in svg.lines() {
        if let Some((own, points)) = drawn(line) {
            let (x, y) = points[0];
            if x > RIGHT {
                stroke = own;
            } else {
                charts[row_of(y)].lines.push((own, points));
            }
        } else if line.starts_with("<text") {
            let (x, y) = (number(line, "x"), number(line, "y"));
            let text = line.split_once('>').unwrap().1;
            let text = text.strip_suffix("</text>").unwrap().to_owned();
            let chart = &mut charts[row_of(y)];
            match (
                line.contains("class=\"tick\""),
                attribute(line, "text-anchor"),
            ) {
                (true, "end") => chart.y_labels.push((y - 4.0, text)),
                (true, "middle") => chart.x_labels.push((x, text)),
                (true, _) => {}
                (false, "end") => chart.x_name = text,
                (false, _) if x > RIGHT => chart.legend.push((text, stroke.clone())),
                (false, _) => chart.title = text,
            }
        }
    }
    charts
}

/// A copy of a trace of RocksDB that began some seconds later. The records of a trace of accesses
/// have the time of the wall clock like its header; those of an I/O trace have another clock.
fn later(name: &str, folder: &Path, (seconds, has_wall_clock): (u64, bool)) -> PathBuf {
    const BEGIN: u8 = 1;
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("data")
        .join(name);
    let mut bytes = fs::read(source).unwrap();
    let mut at = 0;
    while at < bytes.len() {
        let time = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        if bytes[at + 8] == BEGIN || has_wall_clock {
            let time = time + seconds * 1_000_000;
            bytes[at..at + 8].copy_from_slice(&time.to_le_bytes());
        }
        let length = u32::from_le_bytes(bytes[at + 9..at + 13].try_into().unwrap());
        at += 13 + length as usize;
    }
    let path = folder.join(format!("{seconds}-{name}"));
    fs::write(&path, bytes).unwrap();
    path
}

/// Analyzes three copies of a trace, of which the first is not the earliest; returns the report and
/// the charts.
fn analyze(name: &str, has_wall_clock: bool, more: &[&str]) -> (Value, Vec<Chart>) {
    let folder = tempfile::tempdir().unwrap();
    let picture = folder.path().join("picture.svg");
    let copies = [3, 0, 2].map(|by| later(name, folder.path(), (by, has_wall_clock)));
    let copies = copies.iter().map(|path| path.to_str().unwrap());
    let words = ["analyze", "--json", "--plot", picture.to_str().unwrap()];
    let words: Vec<String> = words
        .into_iter()
        .chain(more.iter().copied())
        .chain(copies)
        .map(str::to_owned)
        .collect();
    let used = run_tracehold(&words);
    let errors = String::from_utf8_lossy(&used.stderr);
    assert!(used.status.success(), "{errors}");
    let report = serde_json::from_slice(&used.stdout).unwrap();
    (report, charts(&fs::read_to_string(picture).unwrap()))
}

/// Every line of a chart goes from left to right and begins where its scale does; a stroke is that
/// of one name.
fn check_lines(chart: &Chart) {
    for (_, points) in &chart.lines {
        assert!(points.is_sorted_by(|one, next| one.0 < next.0), "{chart:?}");
        let last = points.last().unwrap();
        assert!(points[0].0 >= LEFT && last.0 <= RIGHT, "{chart:?}");
    }
    assert!(
        chart.first_points().iter().all(|point| point.0 == LEFT),
        "{chart:?}"
    );
    let mut strokes: Vec<_> = chart.legend.iter().map(|(_, stroke)| stroke).collect();
    strokes.sort();
    strokes.dedup();
    assert_eq!(strokes.len(), chart.legend.len(), "{chart:?}");
}

#[track_caller]
fn check_first(chart: &Chart, expected: &[f64]) {
    let found = chart
        .first_points()
        .into_iter()
        .map(|(_, y)| chart.value_at(y));
    let greatest = number_of(&chart.y_labels.last().unwrap().1);
    for (found, expected) in found.zip(expected) {
        // Heights are drawn to a tenth of a pixel.
        assert!(
            (found - expected).abs() <= greatest / 1000.0,
            "{found}, not {expected}: {chart:?}"
        );
    }
    assert_eq!(chart.legend.len(), expected.len());
}

#[test]
fn a_picture_of_io_says_what_the_report_says() {
    let (report, charts) = analyze("io_small.trace", false, &[]);
    let named = |chart: &Chart| (chart.title.clone(), chart.x_name.clone());
    let seconds = "seconds from the start";
    let expected = [
        "Throughput, bytes/s",
        "Operations, operations/s",
        "Distinct bytes accessed per time step, bytes",
        "Bytes read in files of class sst by offset, offset",
        "Bytes written in files of class wal by offset, offset",
    ];
    let found: Vec<_> = charts.iter().map(named).collect();
    assert_eq!(
        found,
        expected.map(|title| (title.to_owned(), seconds.to_owned()))
    );
    let [throughput, operations, distinct, read, written] = &charts[..] else {
        unreachable!("there are five");
    };
    assert_eq!(throughput.legend(), ["read", "written"]);
    assert_eq!(operations.legend(), ["reads", "writes", "syncs", "others"]);
    assert_eq!(distinct.legend(), ["working set"]);
    for chart in [throughput, operations, distinct] {
        check_lines(chart);
    }
    let first = &report["throughput"][0];
    let per_second = report["step_ns"].as_f64().unwrap() / 1e9;
    let rate = |field: &str| first[field].as_f64().unwrap() / per_second;
    check_first(throughput, &["read_bytes", "written_bytes"].map(rate));
    check_first(
        operations,
        &["reads", "writes", "syncs", "others"].map(rate),
    );
    check_first(distinct, &[report["working_set"][0][1].as_f64().unwrap()]);
    // Bytes have a unit, numbers have none; both begin at 0.
    assert_eq!(
        (&*throughput.y_labels[0].1, &*operations.y_labels[0].1),
        ("0 B", "0")
    );
    assert!(throughput.y_labels.last().unwrap().1.ends_with(" MiB"));
    // The last copy is in the step that begins before the third second.
    for chart in [throughput, operations] {
        let labels: Vec<_> = chart.x_labels.iter().map(|(_, label)| &**label).collect();
        assert_eq!(labels, ["0.0", "0.5", "1.0", "1.5", "2.0", "2.5"]);
    }
    for chart in [read, written] {
        assert_eq!(chart.y_labels[0].1, "0 B");
        assert_eq!(chart.legend(), ["bytes in a cell; white: none"]);
    }
}

#[test]
fn a_picture_of_a_cache_says_what_the_report_says() {
    let sizes = ["--cache-sizes", "64K,1M"];
    let (report, charts) = analyze("bc_small.trace", true, &sizes);
    let [curve, ratio, accesses] = &charts[..] else {
        panic!("not three charts: {charts:?}");
    };
    let titles = [curve, ratio, accesses].map(|chart| (&*chart.title, &*chart.x_name));
    let seconds = "seconds from the start";
    let expected = [
        ("Miss ratio by capacity, %", "capacity"),
        ("Miss ratio of the trace, %", seconds),
        ("Accesses, accesses/s", seconds),
    ];
    assert_eq!(titles, expected);
    let legends = [curve, ratio, accesses].map(Chart::legend);
    assert_eq!(legends, [["lru"], ["trace"], ["accesses"]]);
    charts.iter().for_each(check_lines);
    // A capacity is a power of two with its unit, and the smaller cache is on the left.
    let labels: Vec<_> = curve.x_labels.iter().map(|(_, label)| &**label).collect();
    assert_eq!(labels, ["64 KiB", "128 KiB", "256 KiB", "512 KiB", "1 MiB"]);
    let points = report["curves"].as_array().unwrap();
    let small = points
        .iter()
        .find(|point| point["capacity"] == 65536)
        .unwrap();
    check_first(curve, &[small["miss_ratio"].as_f64().unwrap()]);
    // Each copy is in one second.
    check_first(ratio, &[report["miss_ratio"].as_f64().unwrap()]);
    check_first(accesses, &[report["accesses"].as_f64().unwrap() / 3.0]);
    // Nothing happened in the second before the others: no line leads over it.
    for chart in [ratio, accesses] {
        let lengths: Vec<_> = chart.lines.iter().map(|(_, points)| points.len()).collect();
        assert_eq!(lengths, [1, 2], "{chart:?}");
    }
}
