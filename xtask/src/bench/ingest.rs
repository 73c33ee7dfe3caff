//! Durable pushes, against the same server discarding bodies, and against the disk itself.

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use harness::{Body, Load, LoadReport, Pace, Server, Settings};
use serde_json::Value;

use super::paired::{Figures, Side, Target, Verdict, alternate, conclude};
use super::table::{Table, number};
use crate::failure::{Failure, Outcome};
use crate::install::{self, Origin, Tool};
use crate::options::Options;
use crate::process::{command, cpu_of, dist_server, fresh_folder, output, peak_rss_of};

const FIO: Tool = Tool {
    program: "fio",
    from: Origin::Apt(&["fio"]),
    needed_for: "measuring the disk that packets are written to",
};

/// A packet of the main comparison.
const PACKET_BYTES: usize = 64 << 10;

/// Packets in a request with many: 1 MiB; `tracehold push` sends up to 8 MiB. Shown in addition to
/// single packets, not instead of them.
const LARGE_COUNT: usize = 16;

/// The factor by which a crowd has more streams: each stream still waits for every acknowledgement,
/// but the disk is not idle while one of them does.
const CROWD: usize = 8;

/// A small packet, and the number of small packets in one request.
const SMALL_BYTES: usize = 1 << 10;
const SMALL_COUNT: usize = 256;

const RATIO_MIN: f64 = 0.5;
const ACK_P99_MS_MAX: f64 = 20.0;
const SMALL_PACKETS_PER_SECOND_MIN: f64 = 200_000.0;
const RSS_MIB_MAX: f64 = 256.0;

const GIB: f64 = (1_u64 << 30) as f64;
const MIB: f64 = (1_u64 << 20) as f64;

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
            codec,
        })
    }
}

/// `--runs 5 --seconds 5 --streams 16 --codec none|zstd`; single packets also with eight times as
/// many streams.
pub(crate) fn run_bench(options: &Options) -> Outcome {
    let load = LoadOptions::parse(options)?;
    install::ensure(&[FIO])?;
    let program = dist_server()?;
    let folder = fresh_folder("bench/ingest")?;
    let durable = Party::start(&program, &folder.join("durable"), "", load);
    let discard = Party::start(
        &program,
        &folder.join("discard"),
        "[bench]\ndiscard = true
",
        load,
    );
    let mut verdicts = Vec::new();
    let few = load.streams;
    for (body, streams) in [
        (Body::One(PACKET_BYTES), few),
        (Body::One(PACKET_BYTES), few * CROWD),
        (Body::Many(PACKET_BYTES, LARGE_COUNT), few),
    ] {
        let (durable, discard) = (durable.with(streams), discard.with(streams));
        verdicts.extend(large(&durable, &discard, &folder, body, options.runs()?)?);
    }
    verdicts.extend(small(&durable, &discard, options.runs()?)?);
    #[expect(clippy::cast_precision_loss, reason = "shown with one digit")]
    let rss = peak_rss_of(durable.server.pid()) as f64 / MIB;
    verdicts.push(Verdict::new(
        "memory of the server, MiB",
        Target::AtMost(RSS_MIB_MAX),
        rss,
    ));
    conclude(&verdicts);
    Ok(())
}

/// 64 KiB packets: throughput of all three, then latency at half of traceholdd's throughput.
fn large(
    durable: &Party,
    discard: &Party,
    folder: &Path,
    body: Body,
    runs: usize,
) -> Outcome<Vec<Verdict>> {
    let per_request = match body {
        Body::One(_) => 1,
        Body::Many(_, count) => count,
    };
    let streams = durable.options.streams;
    println!("64 KiB packets, {per_request} per request, {streams} streams");
    let mut requests_per_second = Vec::new();
    let mut sides = [
        Side {
            name: "durable pushes",
            run: Box::new(|| {
                let report = durable.load(body, Pace::Full)?;
                requests_per_second.push(report.requests_per_second());
                Ok(report.bytes_per_second() / MIB)
            }),
        },
        Side {
            name: "bodies discarded",
            run: Box::new(|| Ok(discard.load(body, Pace::Full)?.bytes_per_second() / MIB)),
        },
        Side {
            name: "fio, durable",
            run: Box::new(|| fio(folder, durable.options.duration)),
        },
    ];
    let figures = alternate(runs, &mut sides)?;
    drop(sides);
    print!("{}", Table::of_figures("MiB/s", &figures));
    let smaller = smaller_of(&figures[1], &figures[2]);
    let ratio = figures[0].ratio(&smaller);
    let what = format!(
        "64 KiB durable pushes, {per_request} a request, {streams} streams, of {}",
        smaller.name
    );
    let half = super::paired::median(&requests_per_second) / 2.0;
    let acks = durable.load(body, Pace::PerSecond(half))?;
    println!(
        "latency at {half:.0} requests/s: p50 {:.2} ms, p99 {:.2} ms, p99.9 {:.2} ms, max {:.2} ms",
        acks.latency_ms(0.5),
        acks.latency_ms(0.99),
        acks.latency_ms(0.999),
        acks.latency_ms(1.0),
    );
    Ok(vec![
        Verdict::new(what, Target::AtLeast(RATIO_MIN), ratio),
        Verdict::new(
            format!("p99 latency at half load, {per_request} per request, {streams} streams, ms"),
            Target::AtMost(ACK_P99_MS_MAX),
            acks.latency_ms(0.99),
        ),
    ])
}

/// 1 KiB packets in batches. The target is the easier of two: a rate, or half the rate of
/// discarding.
fn small(durable: &Party, discard: &Party, runs: usize) -> Outcome<Vec<Verdict>> {
    let body = Body::Many(SMALL_BYTES, SMALL_COUNT);
    let run = |party: &Party| Ok(party.load(body, Pace::Full)?.packets_per_second());
    let mut sides = [
        Side {
            name: "1 KiB, durable",
            run: Box::new(|| run(durable)),
        },
        Side {
            name: "1 KiB, discarded",
            run: Box::new(|| run(discard)),
        },
    ];
    let figures = alternate(runs, &mut sides)?;
    print!("{}", Table::of_figures("packets/s", &figures));
    let rate = figures[0].median();
    Ok(vec![if rate >= SMALL_PACKETS_PER_SECOND_MIN {
        let target = Target::AtLeast(SMALL_PACKETS_PER_SECOND_MIN);
        Verdict::new("1 KiB packets in batches, packets/s", target, rate)
    } else {
        let ratio = figures[0].ratio(&figures[1]);
        let what = "1 KiB packets in batches, of the discard rate";
        Verdict::new(what, Target::AtLeast(RATIO_MIN), ratio)
    }])
}

fn smaller_of(one: &Figures, other: &Figures) -> Figures {
    if one.median() < other.median() {
        one.clone()
    } else {
        other.clone()
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

    /// The same server under a load with `streams` streams.
    fn with(&self, streams: usize) -> Self {
        let mut party = self.clone();
        party.options.streams = streams;
        party
    }

    /// One load into a new storage, which is then deleted.
    pub(super) fn load(&self, body: Body, pace: Pace) -> Outcome<LoadReport> {
        Ok(self.measure(body, pace)?.0)
    }

    /// One load as [`Self::load`], and the CPU seconds of the server per GiB.
    pub(super) fn measure(&self, body: Body, pace: Pace) -> Outcome<(LoadReport, f64)> {
        let mut api = self.server.api();
        let storage = api.create_storage("bench");
        let cpu_before = cpu_of(self.server.pid())?;
        let report = Load {
            address: self.server.address(),
            storage: storage.clone(),
            streams: self.options.streams,
            body,
            pace,
            codec: self.options.codec,
            duration: self.options.duration,
        }
        .run();
        let cpu = cpu_of(self.server.pid())?.saturating_sub(cpu_before);
        #[expect(clippy::cast_precision_loss, reason = "shown with two digits")]
        let gib = report.bytes as f64 / GIB;
        let cpu_per_gib = cpu.as_secs_f64() / gib;
        eprintln!(
            "  {} MiB/s, {} packets/s, server {:.2} CPU-s/GiB",
            number(report.bytes_per_second() / MIB),
            number(report.packets_per_second()),
            cpu_per_gib,
        );
        let mut api = self.server.api();
        api.finalize(&storage);
        api.done("DELETE", &format!("/storages/{storage}"), None);
        Ok((report, cpu_per_gib))
    }
}

/// MiB/s of one sequential writer: 256 KiB at a time with direct I/O, fdatasync every 8 MiB.
fn fio(folder: &Path, duration: Duration) -> Outcome<f64> {
    let seconds = duration.as_secs().max(1).to_string();
    let file = folder.join("fio.data").display().to_string();
    let mut fio = command(
        "fio",
        &[
            "--name=durable",
            "--rw=write",
            "--bs=256k",
            "--fdatasync=32",
        ],
    );
    fio.args([
        "--direct=1",
        "--ioengine=io_uring",
        "--iodepth=16",
        "--size=16g",
    ]);
    fio.args(["--unlink=1", "--time_based=1", "--output-format=json"]);
    fio.args([format!("--runtime={seconds}"), format!("--filename={file}")]);
    let answer = output(&mut fio)?;
    let malformed = |why: String| Failure::Answer {
        command: "fio".to_owned(),
        why,
    };
    let begin = answer
        .find('{')
        .ok_or_else(|| malformed("no JSON".to_owned()))?;
    let report: Value =
        serde_json::from_str(&answer[begin..]).map_err(|error| malformed(error.to_string()))?;
    let bytes = report["jobs"][0]["write"]["bw_bytes"].as_f64();
    bytes
        .map(|bytes| bytes / MIB)
        .ok_or_else(|| malformed("no bandwidth".to_owned()))
}
