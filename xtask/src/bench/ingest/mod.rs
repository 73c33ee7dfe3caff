//! Durable pushes, against the same server discarding bodies, against the bare twin of the server,
//! and against the disk itself.

mod disk;
mod rows;
mod twin;

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use harness::{Body, Load, LoadReport, Pace, Server, Settings};

use super::paired::{Target, Verdict, conclude};
use super::table::number;
use crate::failure::{Failure, Outcome};
use crate::install;
use crate::options::Options;
use crate::process::{cpu_of, dist_server, fresh_folder, peak_rss_of};

const RSS_MIB_MAX: f64 = 256.0;

const GIB: f64 = (1_u64 << 30) as f64;
const MIB: f64 = (1_u64 << 20) as f64;

/// A comparison, selected by its name.
struct Row {
    name: &'static str,
    /// What is compared, in one line.
    about: &'static str,
    needs_fio: bool,
    run: fn(&Bench) -> Outcome<Vec<Verdict>>,
}

const ROWS: &[Row] = &[
    Row {
        name: "single",
        about: "64 KiB packets, 1 a request",
        needs_fio: true,
        run: rows::single,
    },
    Row {
        name: "crowd",
        about: "64 KiB packets, 1 a request, eight times as many streams",
        needs_fio: true,
        run: rows::crowd,
    },
    Row {
        name: "large",
        about: "64 KiB packets, 16 a request",
        needs_fio: true,
        run: rows::large,
    },
    Row {
        name: "small",
        about: "1 KiB packets, 256 a request",
        needs_fio: false,
        run: rows::small,
    },
    Row {
        name: "many",
        about: "1,000 streams of 4 KiB packets, 1 a request, a connection each",
        needs_fio: false,
        run: rows::many,
    },
    Row {
        name: "streams",
        about: "10,000 streams against 100, on as many connections",
        needs_fio: false,
        run: rows::streams,
    },
    Row {
        name: "hours",
        about: "packets an hour apart against packets a second apart",
        needs_fio: false,
        run: rows::hours,
    },
    Row {
        name: "ack",
        about: "latency at half load, 1,000 streams, against the bare twin",
        needs_fio: false,
        run: rows::acknowledgements,
    },
];

/// What the rows share.
struct Bench {
    durable: Party,
    discard: Party,
    folder: PathBuf,
    runs: usize,
}

/// One server of the comparison.
#[derive(Clone)]
pub(super) struct Party {
    server: Rc<Server>,
    options: LoadOptions,
}

#[derive(Clone, Copy)]
pub(super) struct LoadOptions {
    duration: Duration,
    streams: usize,
    connections: Option<usize>,
    codec: &'static str,
}

impl LoadOptions {
    /// `--seconds 5 --streams 16 --codec none|zstd`.
    pub(super) fn parse(options: &Options) -> Outcome<Self> {
        let codec = match options.get("codec", "none".to_owned())?.as_str() {
            "none" => "none",
            "zstd" => "zstd",
            other => {
                return Err(Failure::Usage(format!(
                    "--codec none or zstd, not {other:?}"
                )));
            }
        };
        Ok(Self {
            duration: Duration::from_secs_f64(options.get("seconds", 5.0)?),
            streams: options.get("streams", 16)?,
            connections: None,
            codec,
        })
    }
}

/// `--rows single,small --runs 5 --seconds 5 --streams 16 --codec none|zstd`; all rows by default.
pub(crate) fn run_bench(options: &Options) -> Outcome {
    let chosen = chosen(&options.get("rows", String::new())?)?;
    let load = LoadOptions::parse(options)?;
    if chosen.iter().any(|row| row.needs_fio) {
        install::ensure(&[disk::FIO])?;
    }
    let program = dist_server()?;
    let folder = fresh_folder("bench/ingest")?;
    let bench = Bench {
        durable: Party::start(&program, &folder.join("durable"), DURABLE, load),
        discard: Party::start(&program, &folder.join("discard"), DISCARD, load),
        folder,
        runs: options.runs()?,
    };
    let mut verdicts = Vec::new();
    for row in chosen {
        println!("{}: {}", row.name, row.about);
        verdicts.extend((row.run)(&bench)?);
    }
    #[expect(clippy::cast_precision_loss, reason = "shown with one digit")]
    let rss = peak_rss_of(bench.durable.server.pid()) as f64 / MIB;
    verdicts.push(Verdict::new(
        "memory of the server, MiB",
        Target::AtMost(RSS_MIB_MAX),
        rss,
    ));
    conclude(&verdicts);
    Ok(())
}

/// The rows that `--rows` lists.
fn chosen(list: &str) -> Outcome<Vec<&'static Row>> {
    if list.is_empty() {
        return Ok(ROWS.iter().collect());
    }
    let row = |name: &str| {
        let found = ROWS.iter().find(|row| row.name == name);
        found.ok_or_else(|| {
            let names: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
            let known = names.join(", ");
            Failure::Usage(format!("no row {name:?}; there are: {known}"))
        })
    };
    list.split(',').map(row).collect()
}

/// One load and what it cost the server.
pub(super) struct Measured {
    pub(super) report: LoadReport,
    cpu: Duration,
    syncs: f64,
}

#[expect(clippy::cast_precision_loss, reason = "shown with four digits")]
impl Measured {
    /// CPU seconds of the server per GiB.
    pub(super) fn cpu_per_gib(&self) -> f64 {
        self.cpu.as_secs_f64() / (self.report.bytes as f64 / GIB)
    }

    /// CPU µs of the server per packet.
    fn cpu_per_packet(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.report.packets as f64
    }

    fn packets_per_sync(&self) -> f64 {
        self.report.packets as f64 / self.syncs
    }

    /// Processors that the generator of the load used.
    fn generator_processors(&self) -> f64 {
        self.report.generator_cpu / self.report.seconds
    }
}

impl Party {
    pub(super) fn start(program: &Path, folder: &Path, config: &str, options: LoadOptions) -> Self {
        let settings = Settings {
            program: Some(program.to_owned()),
            ..Settings::with_config(config)
        };
        Self {
            server: Rc::new(Server::start(folder, &settings)),
            options,
        }
    }

    /// The same server under a load with `streams` streams on as many connections.
    fn with(&self, streams: usize) -> Self {
        let mut party = self.clone();
        party.options.streams = streams;
        party
    }

    /// The same server under a load of `streams` streams that share `connections`.
    fn sharing(&self, streams: usize, connections: usize) -> Self {
        let mut party = self.with(streams);
        party.options.connections = Some(connections);
        party
    }

    /// One load into a new storage, which is then deleted.
    pub(super) fn measure(&self, body: Body, pace: Pace) -> Outcome<Measured> {
        let mut api = self.server.api();
        let storage = api.create_storage("bench");
        let prepared = Load {
            address: self.server.address(),
            storage: storage.clone(),
            streams: self.options.streams,
            connections: self.options.connections.unwrap_or(self.options.streams),
            body,
            pace,
            codec: self.options.codec,
            duration: self.options.duration,
        }
        .prepare();
        // Preparing takes longer than the server keeps an idle connection.
        let mut api = self.server.api();
        let syncs_before = api.metric(SYNCS);
        let cpu_before = cpu_of(self.server.pid())?;
        let report = prepared.run();
        let cpu = cpu_of(self.server.pid())?.saturating_sub(cpu_before);
        let mut api = self.server.api();
        let measured = Measured {
            report,
            cpu,
            syncs: api.metric(SYNCS) - syncs_before,
        };
        eprintln!(
            "  {} MiB/s, {} packets/s, {:.1} packets a sync, server {:.1} CPU-µs/packet, {:.2} \
             CPU-s/GiB, generator {:.2} processors",
            number(measured.report.bytes_per_second() / MIB),
            number(measured.report.packets_per_second()),
            measured.packets_per_sync(),
            measured.cpu_per_packet(),
            measured.cpu_per_gib(),
            measured.generator_processors(),
        );
        api.finalize(&storage);
        api.done("DELETE", &format!("/storages/{storage}"), None);
        Ok(measured)
    }
}

/// The metric that counts syncs of data files.
const SYNCS: &str = "tracehold_storage_sync_seconds_count";

/// The files of the contenders take much of a small disk for a moment.
const DURABLE: &str = "[storage]\ndisk_stop_free_percent = 0\ndisk_resume_free_percent = 1\n";
const DISCARD: &str = "[storage]\ndisk_stop_free_percent = 0\ndisk_resume_free_percent = 1\n\
                       [bench]\ndiscard = true\n";

/// Bytes per second for which the contenders without a server reserve space; no disk here writes
/// more.
const RESERVED_PER_SECOND: u64 = 2 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_chosen_by_name() {
        let names = |list| -> Outcome<Vec<&str>> {
            let rows = chosen(list)?;
            Ok(rows.iter().map(|row| row.name).collect())
        };
        assert_eq!(names("").unwrap().len(), ROWS.len());
        assert_eq!(names("small,single").unwrap(), ["small", "single"]);
        let unknown = names("single,other").unwrap_err().to_string();
        assert!(
            unknown.contains("other") && unknown.contains("crowd"),
            "{unknown}"
        );
    }
}
