//! What tracing our own I/O costs: the same server, traced and not, in alternating segments.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use harness::{Body, Load, Pace, Server, Settings};
use serde_json::json;

use super::paired::{Figures, Side, Target, Verdict, alternate, conclude};
use super::range::{Party, RangeLoad, TOOLS, finalized_file};
use super::table::Table;
use crate::failure::{Failure, Outcome};
use crate::install;
use crate::options::Options;
use crate::process::{cpu_of, fresh_folder, release_server};

/// A packet of the pushes.
const PACKET_BYTES: usize = 64 << 10;

const INGEST_COST_MAX: f64 = 0.02;
const RANGE_COST_MAX: f64 = 0.03;

/// `--runs 5 --seconds 5 --streams 16 --connections 16`.
pub(crate) fn run_bench(options: &Options) -> Outcome {
    let seconds: u32 = options.get("seconds", 5)?;
    install::ensure(TOOLS)?;
    let folder = fresh_folder("bench/io-trace")?;
    let settings = Settings {
        program: Some(release_server()?),
        ..Settings::default()
    };
    let server = Server::start(&folder, &settings);
    let (storage, file, length) = finalized_file(&mut server.api());
    let party = Party {
        url: format!("{}/storage/{storage}/{file}", server.url()),
        pid: server.pid(),
    };
    let connections = options.get("connections", 16)?;
    let load = RangeLoad::single(&folder, length, seconds, connections)?;
    let streams = options.get("streams", 16)?;
    let runs = options.runs()?;
    let mut verdicts = Vec::new();
    let push = || push(&server, streams, seconds);
    verdicts.extend(compare(&server, runs, "pushes", INGEST_COST_MAX, &push)?);
    let read = || load.measure(&party).map(|(rate, _)| rate);
    verdicts.extend(compare(
        &server,
        runs,
        "range reads",
        RANGE_COST_MAX,
        &read,
    )?);
    conclude(&verdicts);
    Ok(())
}

/// Durable pushes of 64 KiB a second.
fn push(server: &Server, streams: usize, seconds: u32) -> Outcome<f64> {
    let mut api = server.api();
    let storage = api.create_storage("bench");
    let report = Load {
        address: server.address(),
        storage: storage.clone(),
        streams,
        body: Body::One(PACKET_BYTES),
        pace: Pace::Full,
        codec: "none",
        duration: Duration::from_secs(seconds.into()),
    }
    .run();
    let mut api = server.api();
    api.finalize(&storage);
    api.done("DELETE", &format!("/storages/{storage}"), None);
    Ok(report.packets_per_second())
}

/// One load: its rate, and the CPU µs of the server for each operation, from before a trace is
/// started until it is finalized and deleted.
fn segment(
    server: &Server,
    is_traced: bool,
    load: &dyn Fn() -> Outcome<f64>,
) -> Outcome<(f64, f64)> {
    let before = cpu_of(server.pid())?;
    if is_traced {
        server.api().done("POST", "/io-trace/start", None);
    }
    let begun = Instant::now();
    let rate = load()?;
    let lasted = begun.elapsed().as_secs_f64();
    if is_traced {
        let ended = server.api().done("POST", "/io-trace/stop", None);
        eprintln!(
            "  {} recorded, {} dropped",
            ended["recorded"], ended["dropped"]
        );
        let trace = ended["storage"].as_str().unwrap_or_default();
        let path = format!("/storages/{trace}");
        server.api().done("DELETE", &path, None);
        if ended["dropped"] != json!(0) {
            let why = "operations were dropped, so what tracing them costs is not known";
            return Err(Failure::Run(why.to_owned()));
        }
    }
    let cpu = cpu_of(server.pid())?.saturating_sub(before).as_secs_f64();
    Ok((rate, cpu * 1e6 / (rate * lasted)))
}

/// Runs a load traced and untraced in turns.
fn compare(
    server: &Server,
    runs: usize,
    what: &str,
    cost_max: f64,
    load: &dyn Fn() -> Outcome<f64>,
) -> Outcome<Vec<Verdict>> {
    let cpu = RefCell::new([Vec::new(), Vec::new()]);
    let segment = |is_traced: bool| {
        let (rate, cpu_of_one) = segment(server, is_traced, load)?;
        cpu.borrow_mut()[usize::from(is_traced)].push(cpu_of_one);
        Ok(rate)
    };
    let mut sides = [
        Side {
            name: "untraced",
            run: Box::new(|| segment(false)),
        },
        Side {
            name: "traced",
            run: Box::new(|| segment(true)),
        },
    ];
    let figures = alternate(runs, &mut sides)?;
    drop(sides);
    println!("{what}");
    print!("{}", Table::of_figures("a second", &figures));
    let [untraced, traced] = cpu.into_inner();
    // The first of each warmed up.
    let cpu = [("untraced", untraced), ("traced", traced)].map(|(name, all)| Figures {
        name: name.to_owned(),
        runs: all[1..].to_vec(),
    });
    print!("{}", Table::of_figures("CPU µs an operation", &cpu));
    let at_most = Target::AtMost(cost_max);
    Ok(vec![
        Verdict::new(
            format!("throughput that tracing costs of {what}"),
            at_most,
            1.0 - figures[1].ratio(&figures[0]),
        ),
        Verdict::new(
            format!("CPU time that tracing costs of {what}"),
            at_most,
            cpu[1].ratio(&cpu[0]) - 1.0,
        ),
    ])
}
