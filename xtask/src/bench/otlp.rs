//! Spans over HTTP into a durable recording: the saver alone, the default chain, and the saver
//! beside the standing recording, which stores every span a second time.

use std::rc::Rc;
use std::time::{Duration, Instant};

use harness::Server;
use harness::spans::SpanBatch;
use serde_json::{Value, json};

use super::paired::{Side, Target, Verdict, alternate, conclude};
use super::table::{Table, number};
use crate::failure::{Failure, Outcome};
use crate::options::Options;
use crate::process::{cpu_of, dist_server, fresh_folder, peak_rss_of};

/// Spans per CPU second of the server.
const SAVER_MIN: f64 = 400_000.0;
const DEFAULT_CHAIN_MIN: f64 = 150_000.0;
const MIB: f64 = (1_u64 << 20) as f64;

/// How requests are sent.
#[derive(Clone, Copy)]
struct Pushing {
    duration: Duration,
    senders: usize,
    spans: usize,
}

/// `--runs 5 --seconds 5 --senders 8 --spans 512`.
pub(crate) fn run_bench(options: &Options) -> Outcome {
    let pushing = Pushing {
        duration: Duration::from_secs_f64(options.get("seconds", 5.0)?),
        senders: options.get("senders", 8)?,
        spans: options.get("spans", 512)?,
    };
    let program = dist_server()?;
    let folder = fresh_folder("bench/otlp")?;
    let start = |name: &str, standing: bool| {
        let config = format!("[recording]\nstanding = {standing}\n");
        let settings = harness::Settings {
            program: Some(program.clone()),
            ..harness::Settings::with_config(&config)
        };
        Rc::new(Server::start(&folder.join(name), &settings))
    };
    let (server, twice) = (start("once", false), start("twice", true));
    let saver = json!([{ "type": "saver" }]);
    let side = |name, server: &Rc<Server>, processors: Value| {
        let server = Rc::clone(server);
        Side {
            name,
            run: Box::new(move || spans_per_cpu_second(&server, &processors, pushing)),
        }
    };
    let default = json!([
        { "type": "saver" }, { "type": "invocation_cloner" },
        { "type": "invocation_extractor" }, { "type": "aggregator" },
    ]);
    let mut sides = [
        side("default chain", &server, default),
        side("saver", &server, saver.clone()),
        side("saver and standing recording", &twice, saver),
    ];
    let figures = alternate(options.runs()?, &mut sides)?;
    println!("{}", Table::of_figures("spans/CPU-s", &figures));
    for each in &figures {
        println!(
            "{}: {} µs of CPU a span",
            each.name,
            number(1e6 / each.median())
        );
    }
    #[expect(clippy::cast_precision_loss, reason = "shown with one digit")]
    let rss = peak_rss_of(server.pid()) as f64 / MIB;
    println!("memory of the server: {} MiB", number(rss));
    let (chain, saver) = (figures[0].median(), figures[1].median());
    conclude(&[
        Verdict::new(
            "spans per CPU second, saver",
            Target::AtLeast(SAVER_MIN),
            saver,
        ),
        Verdict::new(
            "spans per CPU second, default chain",
            Target::AtLeast(DEFAULT_CHAIN_MIN),
            chain,
        ),
    ]);
    Ok(())
}

/// Records everything that all senders send in one run, until it is durable; returns the spans per
/// CPU second of the server.
fn spans_per_cpu_second(server: &Server, processors: &Value, pushing: Pushing) -> Outcome<f64> {
    let mut api = server.api();
    let body = json!({ "processors": processors });
    let recording = api.done("POST", "/recordings", Some(&body));
    let id = recording["id"].as_str().unwrap_or_default().to_owned();
    let path = format!("/recordings/{id}");
    let begin = Instant::now();
    while api.done("GET", &path, None)["state"] != "ON" {
        if begin.elapsed() > Duration::from_secs(30) {
            return Err(Failure::Run("the recording does not start".to_owned()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let before = cpu_of(server.pid())?;
    let spans: u64 = std::thread::scope(|scope| {
        let senders: Vec<_> = (0..pushing.senders)
            .map(|sender| scope.spawn(move || send(server, sender, pushing)))
            .collect();
        let sent = senders.into_iter().map(|sender| sender.join());
        sent.map(|sent| sent.expect("a sender does not panic"))
            .sum()
    });
    api.done("DELETE", &path, None);
    let cpu = cpu_of(server.pid())? - before;
    let storage = recording["storage"].as_str().unwrap_or_default();
    api.done("DELETE", &format!("/storages/{storage}"), None);
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    Ok(spans as f64 / cpu.as_secs_f64())
}

/// Sends batches one after another, waiting for each response; returns the number of accepted
/// spans.
fn send(server: &Server, sender: usize, pushing: Pushing) -> u64 {
    let mut api = server.api();
    let mut batch = SpanBatch::new(&format!("bench-{sender}"), pushing.spans);
    let (begin, mut taken) = (Instant::now(), 0);
    while begin.elapsed() < pushing.duration {
        let body = batch.next();
        let response = harness::spans::send(&mut api, "application/x-protobuf", body);
        match response.status {
            200 => taken += pushing.spans as u64,
            429 => std::thread::sleep(Duration::from_millis(5)),
            _ => panic!("{}", response.brief()),
        }
    }
    taken
}
