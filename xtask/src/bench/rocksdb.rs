//! Reading and analysing RocksDB traces, against the rates of RocksDB's tools.
//!
//! The traces are recorded by `../shared/tools/rocksdb/tracegen.cc`, which needs a C++ compiler and
//! the package `librocksdb-dev`; they are reused. If `io_tracer_parser` is on the path, it runs in
//! turn with Tracehold; otherwise its published rates are the base.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::paired::{Side, Target, Verdict, alternate, conclude, cpu_seconds, median};
use crate::failure::{Failure, Outcome};
use crate::install::{self, Origin, Tool};
use crate::options::Options;
use crate::process::{cargo, command, measure, on_path, output, root, run, target};

/// Required rates, in records per CPU second.
const TEXT_RATE: f64 = 8e6;
const CSV_RATE: f64 = 3e6;
/// 20 times the summary of RocksDB's analyser, 15 times its six simulated caches.
const SUMMARY_RATE: f64 = 20.0 * 61e3;
const CURVES_RATE: f64 = 15.0 * 135e3;
/// CPU seconds for the reuse distances of six million records.
const DISTANCE_SECONDS: f64 = 10.0;
const DISTANCE_RECORDS: f64 = 6e6;
const SUMMARY_MIB: f64 = 300.0;
/// The minimum number of records in each trace.
const RECORDS_MIN: f64 = 5e6;

/// The library that records the traces; one of its headers shows whether it is installed.
const ROCKSDB: Tool = Tool {
    program: "/usr/include/rocksdb/db.h",
    from: Origin::Apt(&["librocksdb-dev"]),
    needed_for: "recording traces of RocksDB",
};

/// `--runs 3 --keys 1000000 --io-ops 7400000 --block-ops 4300000`.
pub(crate) fn run_bench(options: &Options) -> Outcome {
    run(&mut cargo(&[
        "build",
        "--profile",
        "dist",
        "--package",
        "client",
    ]))?;
    let runs = options.get("runs", 3)?.max(1);
    let traces = Traces::record(options)?;
    let io_records = traces.count(&traces.io, "operations")?;
    let block_records = traces.count(&traces.blocks, "accesses")?;
    println!("{io_records} IO records, {block_records} block cache records");
    if io_records.min(block_records) < RECORDS_MIN {
        println!("fewer than {RECORDS_MIN}: increase --io-ops or --block-ops");
    }
    let decode = |trace: &Path| shell(&format!("{} decode {}", ours(), trace.display()));
    let text = seconds(runs, || decode(&traces.io))?;
    let csv = seconds(runs, || decode(&traces.blocks))?;
    let analyze = |flags: &str| {
        shell(&format!(
            "{} analyze {} {flags}",
            ours(),
            traces.blocks.display()
        ))
    };
    let summary = seconds(runs, || analyze(""))?;
    let sizes = "--curves-only --cache-sizes 1M,4M,16M,64M,128M,256M";
    let curves = seconds(runs, || analyze(sizes))?;
    let distance = seconds(runs, || analyze("--reuse-distance all,bt"))?;
    let peak = measure(&mut analyze(""))?.peak_rss;
    #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
    let peak_mib = peak as f64 / f64::from(1 << 20);
    if on_path("io_tracer_parser") {
        compare_with_parser(runs, &traces.io)?;
    } else {
        println!("io_tracer_parser is not on the path: its published rates are used");
    }
    let rate = |name: &str, records: f64, seconds: f64, least: f64| {
        let what = format!("{name}, records per CPU second");
        Verdict::new(what, Target::AtLeast(least), records / seconds)
    };
    conclude(&[
        rate("text of an IO trace", io_records, text, TEXT_RATE),
        rate("CSV of a block cache trace", block_records, csv, CSV_RATE),
        rate("default analysis", block_records, summary, SUMMARY_RATE),
        rate("six LRU caches", block_records, curves, CURVES_RATE),
        Verdict::new(
            "reuse distances of 6 million records, CPU s",
            Target::AtMost(DISTANCE_SECONDS),
            distance * DISTANCE_RECORDS / block_records,
        ),
        Verdict::new(
            "peak memory of the default analysis, MiB",
            Target::AtMost(SUMMARY_MIB),
            peak_mib,
        ),
    ]);
    Ok(())
}

/// The traces, recorded once.
pub(super) struct Traces {
    pub(super) io: PathBuf,
    pub(super) blocks: PathBuf,
}

impl Traces {
    pub(super) fn record(options: &Options) -> Outcome<Self> {
        install::ensure(&[ROCKSDB])?;
        let folder = std::env::temp_dir().join("tracehold-bench-rocksdb");
        std::fs::create_dir_all(&folder).map_err(|source| Failure::File {
            path: folder.clone(),
            source,
        })?;
        let keys: u64 = options.get("keys", 1_000_000)?;
        let io_ops: u64 = options.get("io-ops", 7_400_000)?;
        let block_ops: u64 = options.get("block-ops", 4_300_000)?;
        let io = folder.join(format!("io-{keys}-{io_ops}.trace"));
        let blocks = folder.join(format!("blocks-{keys}-{block_ops}.trace"));
        let traces = Self { io, blocks };
        if traces.io.exists() && traces.blocks.exists() {
            return Ok(traces);
        }
        let generator = folder.join("tracegen");
        let source = root().join("../shared/tools/rocksdb/tracegen.cc");
        if !source.exists() {
            let what =
                "../shared/tools/rocksdb/tracegen.cc, which records the traces, does not exist";
            return Err(Failure::Run(what.to_owned()));
        }
        let paths = [&source, &generator].map(|path| path.display().to_string());
        let [source, program] = &paths;
        let arguments = [
            "-O2",
            "-std=c++17",
            source,
            "-o",
            program,
            "-lrocksdb",
            "-lpthread",
        ];
        run(&mut command("g++", &arguments))?;
        let database = folder.join("db");
        let generate = |arguments: &[String]| {
            let mut generate = Command::new(&generator);
            generate.arg(format!("db={}", database.display()));
            generate.arg(format!("keys={keys}")).args(arguments);
            run(&mut generate)
        };
        generate(&["mode=load".to_owned()])?;
        for (trace, kind, ops) in [
            (&traces.io, "io_trace", io_ops),
            (&traces.blocks, "bc_trace", block_ops),
        ] {
            // Recorded under another name first, so that an aborted run leaves no truncated trace.
            let part = trace.with_extension("part");
            generate(&[
                "mode=run".to_owned(),
                format!("ops={ops}"),
                "threads=2".to_owned(),
                "cache_mb=8".to_owned(),
                format!("{kind}={}", part.display()),
            ])?;
            std::fs::rename(&part, trace).map_err(|source| Failure::File {
                path: part.clone(),
                source,
            })?;
        }
        Ok(traces)
    }

    /// The number of records in a trace, as counted by `analyze --json`.
    fn count(&self, trace: &Path, field: &str) -> Outcome<f64> {
        let mut analyze = Command::new(ours());
        analyze.args(["analyze", "--json"]).arg(trace);
        let answer = output(&mut analyze)?;
        let malformed = |why: String| Failure::Answer {
            command: "tracehold analyze".to_owned(),
            why,
        };
        let report: serde_json::Value =
            serde_json::from_str(&answer).map_err(|error| malformed(error.to_string()))?;
        report[field]
            .as_f64()
            .ok_or_else(|| malformed(format!("the report has no {field}")))
    }
}

fn ours() -> String {
    target().join("dist/tracehold").display().to_string()
}

/// A command whose output is discarded: with a pipe, its reader would be measured, too.
fn shell(line: &str) -> Command {
    command("sh", &["-c", &format!("exec {line} > /dev/null")])
}

/// The median of the CPU seconds of some runs, after one that warms the page cache.
fn seconds(runs: usize, build: impl Fn() -> Command) -> Outcome<f64> {
    measure(&mut build())?;
    let figures: Outcome<Vec<f64>> = (0..runs)
        .map(|_| measure(&mut build()).map(|usage| cpu_seconds(&usage)))
        .collect();
    Ok(median(&figures?))
}

fn compare_with_parser(runs: usize, trace: &Path) -> Outcome {
    let of = |line: String| move || measure(&mut shell(&line)).map(|usage| cpu_seconds(&usage));
    let path = trace.display();
    let mut sides = [
        Side {
            name: "tracehold decode",
            run: Box::new(of(format!("{} decode {path}", ours()))),
        },
        Side {
            name: "io_tracer_parser",
            run: Box::new(of(format!("io_tracer_parser --io_trace_file {path}"))),
        },
    ];
    let figures = alternate(runs, &mut sides)?;
    print!("{}", super::table::Table::of_figures("CPU s", &figures));
    Ok(())
}
