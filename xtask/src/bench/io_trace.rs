//! The cost of tracing the server's I/O: one load on one server, which is traced in one segment of
//! each run and not in the other.

use std::thread::{Scope, ScopedJoinHandle, scope, sleep};
use std::time::{Duration, Instant};

use harness::{Api, Body, Load, Pace, Server, Settings};
use serde_json::json;

use super::paired::{Figures, Target, Verdict, conclude};
use super::range::{Party, RangeLoad, TOOLS, finalized_file};
use super::table::Table;
use crate::failure::{Failure, Outcome};
use crate::install;
use crate::options::Options;
use crate::process::{cpu_of, dist_server, fresh_folder};

/// A packet of the pushes.
const PACKET_BYTES: usize = 64 << 10;

const INGEST_COST_MAX: f64 = 0.02;
const RANGE_COST_MAX: f64 = 0.03;

/// The delay between the start of a load, or of a trace, and the measurement.
const WARM_UP: Duration = Duration::from_millis(300);

/// `--runs 15 --seconds 2 --streams 16 --connections 16`: a run is one load with a segment of this
/// many seconds of each kind.
pub(crate) fn run_bench(options: &Options) -> Outcome {
    let seconds: u32 = options.get("seconds", 2)?;
    let runs: usize = options.get("runs", 15)?;
    install::ensure(TOOLS)?;
    let folder = fresh_folder("bench/io-trace")?;
    let settings = Settings {
        program: Some(dist_server()?),
        ..Settings::default()
    };
    let server = Server::start(&folder, &settings);
    let file = finalized_file(&mut server.api());
    let party = Party::of(&server, &file);
    // Two segments, a warm-up before each, and the time to start and stop a trace.
    let lasts = 2 * seconds + 4;
    let reads = RangeLoad::single(&folder, file.length, lasts, options.get("connections", 16)?)?;
    let streams = options.get("streams", 16)?;
    let comparison = Comparison {
        server: &server,
        runs,
        segment: Duration::from_secs(seconds.into()),
    };
    let mut verdicts = Vec::new();
    let push = || push(&server, streams, lasts);
    let counter = "tracehold_ingest_packets_total";
    verdicts.extend(comparison.of("pushes", INGEST_COST_MAX, counter, &push)?);
    let read = || reads.measure(&party).map(|_| ());
    let counter = "tracehold_range_requests_total";
    verdicts.extend(comparison.of("range reads", RANGE_COST_MAX, counter, &read)?);
    conclude(&verdicts);
    Ok(())
}

/// Durable pushes of 64 KiB.
fn push(server: &Server, streams: usize, seconds: u32) -> Outcome {
    let mut api = server.api();
    let storage = api.create_storage("bench");
    Load {
        address: server.address(),
        storage: storage.clone(),
        streams,
        connections: streams,
        body: Body::One(PACKET_BYTES),
        pace: Pace::Full,
        codec: "none",
        duration: Duration::from_secs(seconds.into()),
    }
    .run();
    let mut api = server.api();
    api.finalize(&storage);
    api.done("DELETE", &format!("/storages/{storage}"), None);
    Ok(())
}

struct Comparison<'s> {
    server: &'s Server,
    runs: usize,
    segment: Duration,
}

/// The result of a segment: operations per second, and CPU µs of the server per operation, from
/// before a trace is started until it is finalized and deleted.
struct Segment {
    rate: f64,
    cpu: f64,
}

impl Comparison<'_> {
    /// Compares segments of one load, whose operations are counted by `counter`.
    fn of(
        &self,
        what: &str,
        cost_max: f64,
        counter: &str,
        load: &(dyn Fn() -> Outcome + Sync),
    ) -> Outcome<Vec<Verdict>> {
        let mut segments = [Vec::new(), Vec::new()];
        for run in 0..self.runs {
            // Every second run in reverse order, so that no kind is always first.
            let first = run % 2 == 1;
            let pair = scope(|threads| self.run(threads, first, counter, load))?;
            for (is_traced, segment) in pair {
                segments[usize::from(is_traced)].push(segment);
            }
        }
        let figures = |of: fn(&Segment) -> f64| {
            ["untraced", "traced"].map(|name| Figures {
                name: name.to_owned(),
                runs: segments[usize::from(name == "traced")]
                    .iter()
                    .map(of)
                    .collect(),
            })
        };
        let (rate, cpu) = (
            figures(|segment| segment.rate),
            figures(|segment| segment.cpu),
        );
        println!("{what}");
        print!("{}", Table::of_figures("a second", &rate));
        print!("{}", Table::of_figures("CPU µs an operation", &cpu));
        let at_most = Target::AtMost(cost_max);
        Ok(vec![
            Verdict::new(
                format!("throughput lost to tracing, {what}"),
                at_most,
                1.0 - rate[1].ratio(&rate[0]),
            ),
            Verdict::new(
                format!("CPU time added by tracing, {what}"),
                at_most,
                cpu[1].ratio(&cpu[0]) - 1.0,
            ),
        ])
    }

    /// One load, with a segment of each kind.
    fn run<'scope>(
        &self,
        threads: &'scope Scope<'scope, '_>,
        first: bool,
        counter: &str,
        load: &'scope (dyn Fn() -> Outcome + Sync),
    ) -> Outcome<Vec<(bool, Segment)>> {
        let mut api = self.server.api();
        let loading = threads.spawn(load);
        sleep(WARM_UP);
        let mut segments = Vec::new();
        for is_traced in [first, !first] {
            let segment = self.segment(&mut api, is_traced, counter)?;
            eprintln!(
                "  traced: {is_traced}, {:.0} a second, {:.1} CPU µs each",
                segment.rate, segment.cpu
            );
            segments.push((is_traced, segment));
        }
        if loading.is_finished() {
            let why = "the load ended before the last segment: use fewer --seconds";
            return Err(Failure::Run(why.to_owned()));
        }
        ended(loading)?;
        Ok(segments)
    }

    fn segment(&self, api: &mut Api, is_traced: bool, counter: &str) -> Outcome<Segment> {
        let (count, cpu) = (api.metric(counter), cpu_of(self.server.pid())?);
        if is_traced {
            api.done("POST", "/io-trace/start", None);
        }
        sleep(WARM_UP);
        let (begun, before) = (Instant::now(), api.metric(counter));
        sleep(self.segment);
        let done = api.metric(counter) - before;
        let rate = done / begun.elapsed().as_secs_f64();
        if is_traced {
            end_trace(api)?;
        }
        let cpu = cpu_of(self.server.pid())?.saturating_sub(cpu);
        let count = api.metric(counter) - count;
        Ok(Segment {
            rate,
            cpu: cpu.as_secs_f64() * 1e6 / count,
        })
    }
}

/// Stops the trace and deletes it.
fn end_trace(api: &mut Api) -> Outcome {
    let ended = api.done("POST", "/io-trace/stop", None);
    let trace = ended["storage"].as_str().unwrap_or_default();
    api.done("DELETE", &format!("/storages/{trace}"), None);
    if ended["dropped"] == json!(0) {
        return Ok(());
    }
    let why = "operations were dropped, so the cost of tracing is unknown";
    Err(Failure::Run(why.to_owned()))
}

/// The result of a load.
fn ended(loading: ScopedJoinHandle<'_, Outcome>) -> Outcome {
    let why = "the load panicked";
    loading
        .join()
        .unwrap_or_else(|_| Err(Failure::Run(why.to_owned())))
}
