//! Indexing files of packets: RocksDB traces, folders of CTF traces, and the server's I/O traces.
//! Each is compared with a program that reads the same trace once: `babeltrace2 -o dummy`, which
//! prints nothing, for all CTF; `tracehold decode` for RocksDB, whose parser may not be installed.
//!
//! The traces are generated once and reused: by the generators of the benchmarks `rocksdb` and
//! `ctf`, and by a server that is traced while ranges are read from it.

use std::path::{Path, PathBuf};
use std::process::Command;

use harness::{Server, Settings};

use super::paired::{Side, Target, Verdict, alternate, conclude, cpu_seconds};
use super::range::{Party, RangeLoad, TOOLS as LOAD_TOOLS, finalized_file};
use super::table::Table;
use super::{ctf, rocksdb};
use crate::failure::{Failure, Outcome};
use crate::install;
use crate::options::Options;
use crate::process::{command, dist_client, dist_server, fresh_folder, measure, run, target};

/// A trace to index.
struct Trace {
    name: &'static str,
    /// Generates it, unless it exists.
    make: fn(&Options) -> Outcome<PathBuf>,
    /// The command that reads all of it; the path is appended.
    reader: Reader,
    /// The limit, as a multiple of the reader's CPU time.
    times: f64,
}

#[derive(Clone, Copy)]
enum Reader {
    Babeltrace,
    Decode,
}

const TRACES: &[Trace] = &[
    Trace {
        name: "RocksDB I/O",
        make: |options| Ok(rocksdb::Traces::record(options)?.io),
        reader: Reader::Decode,
        times: 1.5,
    },
    Trace {
        name: "RocksDB block cache",
        make: |options| Ok(rocksdb::Traces::record(options)?.blocks),
        reader: Reader::Decode,
        times: 1.0,
    },
    Trace {
        name: "LTTng",
        make: |_| ctf::recorded(&target().join("bench/ctf-trace")),
        reader: Reader::Babeltrace,
        times: 0.5,
    },
    Trace {
        name: "our own I/O",
        make: server_trace,
        reader: Reader::Babeltrace,
        times: 1.0,
    },
];

const PEAK_MIB: f64 = 256.0;
const MIB: f64 = 1_048_576.0;

/// `--runs 5 --seconds 60`: how long the server's I/O is traced; and the options of `rocksdb`.
pub(crate) fn run_bench(options: &Options) -> Outcome {
    install::ensure(ctf::TOOLS)?;
    let (runs, client) = (options.runs()?, dist_client()?);
    let mut verdicts = Vec::new();
    for trace in TRACES {
        verdicts.extend(trace.compare(&client, options, runs)?);
    }
    conclude(&verdicts);
    Ok(())
}

impl Trace {
    fn compare(&self, client: &Path, options: &Options, runs: usize) -> Outcome<[Verdict; 2]> {
        let path = (self.make)(options)?;
        let mut peak = 0;
        let mut sides = [
            Side {
                name: "tracehold index",
                run: Box::new(|| {
                    let mut index = Command::new(client);
                    let usage = measure(index.args(["index", "--force"]).arg(&path))?;
                    peak = peak.max(usage.peak_rss);
                    Ok(cpu_seconds(&usage))
                }),
            },
            Side {
                name: self.reader.name(),
                run: Box::new(|| Ok(cpu_seconds(&measure(&mut self.reader.on(client, &path))?))),
            },
        ];
        let figures = alternate(runs, &mut sides)?;
        drop(sides);
        println!("{}: {}", self.name, path.display());
        print!("{}", Table::of_figures("CPU s", &figures));
        let cpu = Verdict::new(
            format!("{}: index, CPU of {}", self.name, self.reader.name()),
            Target::AtMost(self.times),
            figures[0].ratio(&figures[1]),
        );
        #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
        let peak = peak as f64 / MIB;
        let what = format!("{}: index, peak memory in MiB", self.name);
        Ok([cpu, Verdict::new(what, Target::AtMost(PEAK_MIB), peak)])
    }
}

impl Reader {
    fn name(self) -> &'static str {
        match self {
            Reader::Babeltrace => "babeltrace2 -o dummy",
            Reader::Decode => "tracehold decode",
        }
    }

    /// The program on a trace; its output is discarded.
    fn on(self, client: &Path, path: &Path) -> Command {
        let path = path.display();
        let line = match self {
            Reader::Babeltrace => format!("exec babeltrace2 -o dummy '{path}'"),
            Reader::Decode => format!("exec '{}' decode '{path}'", client.display()),
        };
        command("sh", &["-c", &format!("{line} > /dev/null")])
    }
}

/// The I/O trace of a server that serves ranges, as a CTF folder: about 3 MB per second.
fn server_trace(options: &Options) -> Outcome<PathBuf> {
    let trace = target().join("bench/own-io-trace");
    if trace.join("metadata").is_file() {
        return Ok(trace);
    }
    install::ensure(LOAD_TOOLS)?;
    let folder = fresh_folder("bench/packet-files")?;
    let settings = Settings {
        program: Some(dist_server()?),
        ..Settings::default()
    };
    let server = Server::start(&folder, &settings);
    let mut api = server.api();
    let file = finalized_file(&mut api);
    let reads = RangeLoad::single(&folder, file.length, options.get("seconds", 60)?, 16)?;
    api.done("POST", "/io-trace/start", None);
    reads.measure(&Party::of(&server, &file))?;
    // The server closes connections that are idle for long.
    let ended = server.api().done("POST", "/io-trace/stop", None);
    let recorded = ended["storage"].as_str().unwrap_or_default();
    // Written under another name first, so that an aborted run leaves no truncated trace.
    let part = trace.with_extension("part");
    let mut export = Command::new(dist_client()?);
    export.args(["io-trace", "export", "--server", &server.url(), recorded]);
    run(export.arg(&part))?;
    std::fs::rename(&part, &trace).map_err(|source| Failure::File { path: part, source })?;
    Ok(trace)
}
