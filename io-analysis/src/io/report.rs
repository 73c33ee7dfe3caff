//! The report on an I/O trace: as data, text and CSV files.

use std::fmt::Write as _;

use serde::Serialize;
use trace_kinds::rocksdb::NumberedStrings;

use super::analysis::IoAnalysis;
use super::working_set::PAGE_BYTES;
use super::{Amplification, HeatMap, LatencyRow, SequentialRow, SlowOperation, ThroughputStep};
use crate::numbers::floor_to_u64;
use crate::result_file::{ResultFile, percent, quoted};
use crate::table::{Layout, TextTable, bytes_text, nanoseconds};

/// The report on an I/O trace.
#[derive(Debug, Serialize)]
pub struct IoReport {
    /// Number of operations.
    pub operations: u64,
    /// Number of failed operations.
    pub failed: u64,
    /// Number of distinct files.
    pub files: usize,
    /// Start of the first operation, ns since the epoch.
    pub start_ns: i64,
    /// Time from the first start to the last end, ns.
    pub duration_ns: u64,
    /// Latency by operation, class and cause, in descending order of total time.
    pub latencies: Vec<LatencyRow>,
    /// Width of a throughput step, ns.
    pub step_ns: u64,
    /// Throughput over time.
    pub throughput: Vec<ThroughputStep>,
    /// Sequential accesses.
    pub sequential: Vec<SequentialRow>,
    /// Heat maps by file class.
    pub heat_maps: Vec<HeatMap>,
    /// The slowest operations.
    pub slowest: Vec<SlowOperation>,
    /// Amplification.
    pub amplification: Amplification,
    /// Distinct bytes read, estimated in pages of 4 KiB.
    pub working_set_read_bytes: u64,
    /// Distinct bytes written.
    pub working_set_written_bytes: u64,
    /// Distinct bytes accessed by time step: start in ns, bytes.
    pub working_set: Vec<(i64, u64)>,
}

fn name(names: &NumberedStrings, number: u32) -> String {
    String::from_utf8_lossy(names.get(number).unwrap_or_default()).into_owned()
}

impl IoAnalysis {
    /// The report on everything observed so far.
    pub fn report(&self) -> IoReport {
        IoReport::of(self)
    }
}

impl IoReport {
    fn of(analysis: &IoAnalysis) -> Self {
        let class = |number| name(&analysis.classes, number);
        let mut latencies: Vec<_> = analysis
            .latencies
            .iter()
            .map(|(&(operation, of, cause), latency)| {
                let operation = name(&analysis.operations, operation);
                latency.row(operation, class(of), name(&analysis.causes, cause))
            })
            .collect();
        let by_total = |row: &LatencyRow| {
            (
                std::cmp::Reverse(row.total_ns),
                row.operation.clone(),
                row.class.clone(),
            )
        };
        latencies.sort_by_cached_key(by_total);
        let set = &analysis.working_set;
        let read_bytes = set.read.estimate() * PAGE_BYTES;
        let user_class = &analysis.questions.user_class;
        let mut heat_maps: Vec<_> = analysis
            .grids
            .iter()
            .map(|(&of, grid)| grid.heat_map(&class(of)))
            .filter(|map| !map.read.is_empty())
            .collect();
        heat_maps.sort_by(|a, b| a.class.cmp(&b.class));
        let empty = analysis.accesses == 0;
        let start_ns = if empty { 0 } else { analysis.first_ns };
        let end_ns = if empty { 0 } else { analysis.last_ns };
        Self {
            operations: analysis.accesses,
            failed: analysis.failed,
            files: analysis.files.len(),
            start_ns,
            duration_ns: end_ns.abs_diff(start_ns),
            latencies,
            step_ns: analysis.throughput.width_ns(),
            throughput: analysis
                .throughput
                .iter()
                .map(|(start_ns, step)| ThroughputStep {
                    start_ns,
                    ..step.clone()
                })
                .collect(),
            sequential: analysis.sequential.rows(class),
            heat_maps,
            slowest: analysis.slowest.rows(),
            amplification: analysis
                .volumes
                .amplification(user_class, read_bytes, class),
            working_set_read_bytes: read_bytes,
            working_set_written_bytes: set.written.estimate() * PAGE_BYTES,
            working_set: set
                .over_time
                .iter()
                .map(|(start, sketch)| (start, sketch.estimate() * PAGE_BYTES))
                .collect(),
        }
    }

    /// The report as text tables.
    pub fn to_text(&self, layout: Layout) -> String {
        let seconds = self.duration_ns as f64 / 1e9;
        let rate = |count: u64| {
            if seconds > 0.0 {
                count as f64 / seconds
            } else {
                0.0
            }
        };
        let volume = &self.amplification;
        let mut text = format!(
            "I/O trace: {} operations ({} failed) on {} files in {seconds:.3} s\n\
             read {} ({}/s), written {} ({}/s)\n\
             distinct bytes: {} read, {} written\n",
            self.operations,
            self.failed,
            self.files,
            bytes_text(volume.read_bytes),
            bytes_text(floor_to_u64(rate(volume.read_bytes))),
            bytes_text(volume.written_bytes),
            bytes_text(floor_to_u64(rate(volume.written_bytes))),
            bytes_text(self.working_set_read_bytes),
            bytes_text(self.working_set_written_bytes),
        );
        if let Some(write) = volume.write {
            writeln!(
                text,
                "write amplification {write:.2} (bytes written / bytes to the log)"
            )
            .expect("writing to a string cannot fail");
        }
        if let Some(read) = volume.read {
            writeln!(
                text,
                "read amplification {read:.2} (bytes read / distinct bytes read)"
            )
            .expect("writing to a string cannot fail");
        }
        text.push_str(&self.latency_table(layout));
        text.push_str(&self.sequential_table(layout));
        text.push_str(&self.slowest_table(layout));
        text
    }

    fn latency_table(&self, layout: Layout) -> String {
        let mut table = TextTable::new([
            "operation",
            "class",
            "cause",
            "count",
            "failed",
            "bytes",
            "mean",
            "p50",
            "p90",
            "p99",
            "p99.9",
            "max",
        ]);
        for row in &self.latencies {
            table.row([
                row.operation.clone(),
                row.class.clone(),
                row.cause.clone(),
                row.count.to_string(),
                row.failed.to_string(),
                bytes_text(row.bytes),
                nanoseconds(row.mean_ns),
                nanoseconds(row.p50_ns),
                nanoseconds(row.p90_ns),
                nanoseconds(row.p99_ns),
                nanoseconds(row.p999_ns),
                nanoseconds(row.max_ns),
            ]);
        }
        format!("\nLatency\n{}", table.fit(layout))
    }

    fn sequential_table(&self, layout: Layout) -> String {
        let mut table = TextTable::new([
            "direction",
            "class",
            "accesses",
            "sequential %",
            "bytes",
            "of bytes %",
        ]);
        for row in &self.sequential {
            table.row([
                row.direction.name().to_owned(),
                row.class.clone(),
                row.accesses.to_string(),
                format!("{:.2}", percent(row.sequential, row.accesses)),
                bytes_text(row.bytes),
                format!("{:.2}", percent(row.sequential_bytes, row.bytes).max(0.0)),
            ]);
        }
        format!("\nSequential access\n{}", table.fit(layout))
    }

    fn slowest_table(&self, layout: Layout) -> String {
        let mut table = TextTable::new(["latency", "at s", "operation", "file", "offset", "bytes"]);
        let number = |value: Option<u64>| value.map(|n| n.to_string()).unwrap_or_default();
        for slow in &self.slowest {
            let at = slow.start_ns.abs_diff(self.start_ns) as f64 / 1e9;
            table.row([
                nanoseconds(slow.latency_ns),
                format!("{at:.6}"),
                slow.operation.clone(),
                slow.file.clone(),
                number(slow.offset),
                number(slow.len),
            ]);
        }
        format!("\nSlowest operations\n{}", table.fit(layout))
    }

    /// The report as CSV files.
    pub fn files(&self) -> Vec<ResultFile> {
        vec![
            self.latency_file(),
            self.throughput_file(),
            self.sequential_file(),
            self.heat_map_file(),
            self.slowest_file(),
            self.amplification_file(),
            self.working_set_file(),
        ]
    }

    fn latency_file(&self) -> ResultFile {
        let heading = "operation,class,cause,count,failed,bytes,total_ns,mean_ns,min_ns,p50_ns,\
                       p90_ns,p99_ns,p999_ns,max_ns";
        csv_file("io_latency", heading, &self.latencies, |row| {
            let numbers = [
                row.count,
                row.failed,
                row.bytes,
                row.total_ns,
                row.mean_ns,
                row.min_ns,
                row.p50_ns,
                row.p90_ns,
                row.p99_ns,
                row.p999_ns,
                row.max_ns,
            ];
            let texts = [&row.operation, &row.class, &row.cause].map(|text| quoted(text));
            cells(texts, numbers)
        })
    }

    fn throughput_file(&self) -> ResultFile {
        let heading = "start_ns,step_ns,reads,read_bytes,writes,written_bytes,syncs,others,busy_ns";
        csv_file("io_throughput", heading, &self.throughput, |step| {
            let numbers = [
                self.step_ns,
                step.reads,
                step.read_bytes,
                step.writes,
                step.written_bytes,
                step.syncs,
                step.others,
                step.busy_ns,
            ];
            cells([step.start_ns.to_string()], numbers)
        })
    }

    fn sequential_file(&self) -> ResultFile {
        let heading = "direction,class,accesses,sequential,bytes,sequential_bytes";
        csv_file("io_sequential", heading, &self.sequential, |row| {
            let numbers = [
                row.accesses,
                row.sequential,
                row.bytes,
                row.sequential_bytes,
            ];
            let texts = [row.direction.name().to_owned(), quoted(&row.class)];
            cells(texts, numbers)
        })
    }

    fn heat_map_file(&self) -> ResultFile {
        let mut cells = Vec::new();
        for map in &self.heat_maps {
            for (column, (read, written)) in map.read.iter().zip(&map.written).enumerate() {
                for row in 0..read.len().max(written.len()) {
                    let at = |cells: &[u64]| cells.get(row).copied().unwrap_or(0);
                    if at(read) + at(written) > 0 {
                        cells.push((map, column, row, at(read), at(written)));
                    }
                }
            }
        }
        let heading = "class,start_ns,step_ns,offset,row_bytes,read_bytes,written_bytes";
        csv_file(
            "io_heat_map",
            heading,
            &cells,
            |&(map, column, row, read, written)| {
                let start = i128::from(map.start_ns) + column as i128 * i128::from(map.step_ns);
                let offset = row as u128 * u128::from(map.row_bytes);
                vec![
                    quoted(&map.class),
                    start.to_string(),
                    map.step_ns.to_string(),
                    offset.to_string(),
                    map.row_bytes.to_string(),
                    read.to_string(),
                    written.to_string(),
                ]
            },
        )
    }

    fn slowest_file(&self) -> ResultFile {
        let heading = "latency_ns,start_ns,operation,file,offset,len,cause,request";
        let number = |value: Option<u64>| value.map(|n| n.to_string()).unwrap_or_default();
        csv_file("io_slowest", heading, &self.slowest, |slow| {
            vec![
                slow.latency_ns.to_string(),
                slow.start_ns.to_string(),
                quoted(&slow.operation),
                quoted(&slow.file),
                number(slow.offset),
                number(slow.len),
                quoted(&slow.cause),
                quoted(slow.request.as_deref().unwrap_or_default()),
            ]
        })
    }

    fn amplification_file(&self) -> ResultFile {
        let rows: Vec<_> = self.amplification.by_class.iter().collect();
        csv_file(
            "io_amplification",
            "class,read_bytes,written_bytes",
            &rows,
            |(class, of)| vec![quoted(class), of.0.to_string(), of.1.to_string()],
        )
    }

    fn working_set_file(&self) -> ResultFile {
        csv_file(
            "io_working_set",
            "start_ns,distinct_bytes",
            &self.working_set,
            |(start, of)| vec![start.to_string(), of.to_string()],
        )
    }
}

fn cells<const T: usize, const N: usize>(texts: [String; T], numbers: [u64; N]) -> Vec<String> {
    let numbers = numbers.iter().map(u64::to_string);
    texts.into_iter().chain(numbers).collect()
}

fn csv_file<T>(
    name: &str,
    heading: &str,
    rows: &[T],
    cells: impl Fn(&T) -> Vec<String>,
) -> ResultFile {
    let mut text = format!("{heading}\n");
    for row in rows {
        text.push_str(&cells(row).join(","));
        text.push('\n');
    }
    ResultFile {
        name: format!("{name}.csv"),
        text,
    }
}
