//! Peak memory of a server under loads that have little data and much bookkeeping: tiny packets,
//! many open storages, many streams, and many packets in one storage; of many recordings; and of
//! all programs with a long Chrome trace.

use std::thread;

use harness::spans::{SpanBatch, send};
use harness::{Agent, Api, Server, Settings};
use serde_json::json;

use super::memory_chrome::chrome_trace;
use super::memory_limit::{MemoryLimit, mib};
use super::paired::{Target, Verdict, conclude};
use crate::failure::{Failure, Outcome};
use crate::options::Options;
use crate::process::{dist_server, fresh_folder};

const PEAK_MIB_MAX: f64 = 512.0;
const INDEX_MIB_MAX: f64 = 256.0;
const READY_SECONDS_MAX: f64 = 10.0;
/// Connections that declare and push.
const CONNECTIONS: u64 = 8;
/// Streams of one agent.
const AGENT_STREAMS: u64 = 40;
const TINY_REQUESTS: u64 = 128;
const TINY_PACKETS: u64 = 65_536;
/// The memory of the server in `deploy/`.
const LIMIT_BYTES: u64 = 512 << 20;
/// Recordings besides the one that the server keeps by itself.
const RECORDINGS: usize = 15;
const BATCH_SPANS: usize = 500;

/// `--case all|requests|storages|streams|packets|recordings|chrome --storages 1000 --streams 40000
/// --packets 10000000 --span-bytes 50000000 --chrome-bytes 300000000`.
pub(crate) fn run_bench(options: &Options) -> Outcome {
    let case: String = options.get("case", "all".to_owned())?;
    let storages: u64 = options.get("storages", 1000)?;
    let streams: u64 = options.get("streams", 40_000)?;
    let packets: u64 = options.get("packets", 10_000_000)?;
    let span_bytes: usize = options.get("span-bytes", 50_000_000)?;
    let chrome_bytes: u64 = options.get("chrome-bytes", 300_000_000)?;
    let mut verdicts = Vec::new();
    let mut is_known = false;
    let mut is_wanted = |name: &str| {
        let is_wanted = case == "all" || case == name;
        is_known |= is_wanted;
        is_wanted
    };
    if is_wanted("requests") {
        verdicts.push(requests()?);
    }
    if is_wanted("storages") {
        verdicts.push(open_storages(storages)?);
    }
    if is_wanted("streams") {
        verdicts.push(many_streams(streams)?);
    }
    if is_wanted("packets") {
        verdicts.extend(many_packets(packets)?);
    }
    if is_wanted("recordings") {
        verdicts.push(recordings(span_bytes)?);
    }
    if is_wanted("chrome") {
        verdicts.extend(chrome_trace(&start("chrome")?, chrome_bytes)?);
    }
    if !is_known {
        return Err(Failure::Usage(format!("no case {case:?}")));
    }
    conclude(&verdicts);
    Ok(())
}

fn start(name: &str) -> Outcome<Server> {
    let folder = fresh_folder(&format!("bench/memory-{name}"))?;
    let settings = Settings {
        program: Some(dist_server()?),
        ..Settings::default()
    };
    Ok(Server::start(&folder, &settings))
}

fn peak(what: String, server: &Server) -> Verdict {
    let mut api = server.api();
    let mut metric = |name: &str| api.metric(&format!("tracehold_storage_{name}"));
    println!(
        "{what}: {} packets, {} index parts written, {} merged in {} merges, {:.0} MiB live index",
        metric("packets_durable_total"),
        metric("index_parts_total"),
        metric("index_parts_merged_total"),
        metric("index_merges_total"),
        metric("live_index_bytes") / f64::from(1 << 20),
    );
    let what = format!("{what}: peak memory, MiB");
    Verdict::new(what, Target::AtMost(PEAK_MIB_MAX), mib(server.peak_bytes()))
}

/// Runs `work` for each number below `count`, on some connections.
fn in_parallel(server: &Server, count: u64, work: impl Fn(&mut Api, u64) + Sync) {
    thread::scope(|scope| {
        for first in 0..CONNECTIONS {
            let work = &work;
            scope.spawn(move || {
                let mut api = server.api();
                let step = usize::try_from(CONNECTIONS).expect("few connections");
                (first..count)
                    .step_by(step)
                    .for_each(|number| work(&mut api, number));
            });
        }
    });
}

/// Pushes packets of a stream, again while the server is busy.
fn push(api: &mut Api, agent: &Agent, first: u64, packets: &[Vec<u8>]) {
    loop {
        let response = agent.post_many(api, first, packets);
        let response = response.expect("the server answers");
        match response.status {
            200 => return,
            429 => thread::sleep(std::time::Duration::from_secs(1)),
            status => panic!("a push got the response {status}"),
        }
    }
}

/// Requests of one-byte packets, all at once.
fn requests() -> Outcome<Verdict> {
    let server = start("requests")?;
    let storage = server.api().create_storage("tiny");
    let agents: Vec<_> = (0..TINY_REQUESTS)
        .map(|number| {
            let (agent, stream) = (format!("agent-{}", number / 4), format!("s-{number}"));
            Agent::declare(&mut server.api(), &storage, &agent, &stream, "none")
        })
        .collect();
    let packets: Vec<_> = (0..TINY_PACKETS).map(|_| vec![7]).collect();
    thread::scope(|scope| {
        for agent in &agents {
            let (server, packets) = (&server, &packets);
            scope.spawn(move || push(&mut server.api(), agent, 0, packets));
        }
    });
    let what = format!("{TINY_REQUESTS} requests of {TINY_PACKETS} one-byte packets");
    Ok(peak(what, &server))
}

/// Open storages with 1,000 packets of 1 KiB each, written in turns.
fn open_storages(count: u64) -> Outcome<Verdict> {
    const ROUNDS: u64 = 100;
    let server = start("storages")?;
    let storages: Vec<_> = {
        let mut api = server.api();
        (0..count)
            .map(|number| api.create_storage(&format!("storage-{number}")))
            .collect()
    };
    Agent::declare(&mut server.api(), &storages[0], "agent", "stream", "none");
    let packets: Vec<_> = (0..10_u8).map(|byte| vec![byte; 1024]).collect();
    let count_of = packets.len() as u64;
    for round in 0..ROUNDS {
        in_parallel(&server, count, |api, number| {
            let storage = &storages[usize::try_from(number).expect("few storages")];
            let agent = Agent::new(storage, "agent", "stream");
            push(api, &agent, round * count_of, &packets);
        });
    }
    let what = format!("{count} open storages with {} packets", ROUNDS * count_of);
    Ok(peak(what, &server))
}

/// Streams of one storage with 100 packets each, written in turns.
fn many_streams(count: u64) -> Outcome<Verdict> {
    const ROUNDS: u64 = 10;
    let server = start("streams")?;
    let storage = server.api().create_storage("streams");
    let names = |number: u64| {
        let agent = number / AGENT_STREAMS;
        (format!("agent-{agent}"), format!("stream-{number}"))
    };
    // The streams of one agent are declared on one connection.
    in_parallel(&server, count.div_ceil(AGENT_STREAMS), |api, agent| {
        let first = agent * AGENT_STREAMS;
        for number in first..count.min(first + AGENT_STREAMS) {
            let (agent, stream) = names(number);
            Agent::declare(api, &storage, &agent, &stream, "none");
        }
    });
    println!(
        "{count} streams are declared: {:.0} MiB",
        mib(server.peak_bytes())
    );
    let packets: Vec<_> = (0..10_u8).map(|byte| vec![byte; 100]).collect();
    let count_of = packets.len() as u64;
    for round in 0..ROUNDS {
        in_parallel(&server, count, |api, number| {
            let (agent, stream) = names(number);
            let agent = Agent::new(&storage, &agent, &stream);
            push(api, &agent, round * count_of, &packets);
        });
    }
    let what = format!("{count} streams with {} packets", ROUNDS * count_of);
    Ok(peak(what, &server))
}

/// Spans of many traces, recorded by as many recordings as there may be, each with the default
/// chain, while the kernel limits the memory of the server.
fn recordings(bytes: usize) -> Outcome<Verdict> {
    // Declared first, so that it is dropped after the server.
    let limit;
    let server = start("recordings")?;
    limit = MemoryLimit::of(server.pid(), LIMIT_BYTES);
    let limited = if limit.is_some() {
        "under a limit of 512 MiB"
    } else {
        "without a limit, which needs root"
    };
    let mut api = server.api();
    for number in 0..RECORDINGS {
        let body = json!({ "name": format!("recording-{number}") });
        let response = api.call("POST", "/recordings", Some(&body));
        assert_eq!(response.status, 201, "{}", response.brief());
    }
    let mut batch = SpanBatch::new("shop", BATCH_SPANS);
    let mut sent = 0;
    while sent < bytes {
        let body = batch.next().to_vec();
        loop {
            let response = send(&mut api, "application/x-protobuf", &body);
            match response.status {
                200 => break,
                429 | 503 => thread::sleep(std::time::Duration::from_millis(50)),
                status => panic!("spans got the response {status}"),
            }
        }
        sent += body.len();
    }
    let count = RECORDINGS + 1;
    let what = format!(
        "{count} recordings of {} MB of spans, {limited}",
        bytes / 1_000_000
    );
    Ok(peak(what, &server))
}

/// Packets of 100 bytes in one storage, then a kill and a start.
fn many_packets(count: u64) -> Outcome<Vec<Verdict>> {
    const OF_REQUEST: u64 = 10_000;
    let mut server = start("packets")?;
    let storage = server.api().create_storage("packets");
    let packets: Vec<_> = (0..OF_REQUEST).map(|_| vec![7; 100]).collect();
    let of_stream = count / CONNECTIONS;
    in_parallel(&server, CONNECTIONS, |api, number| {
        let stream = format!("stream-{number}");
        let agent = Agent::declare(api, &storage, &format!("agent-{number}"), &stream, "none");
        for first in (0..of_stream).step_by(packets.len()) {
            push(api, &agent, first, &packets);
        }
    });
    let what = format!("{count} packets of 100 bytes");
    let pushed = peak(what.clone(), &server);
    server.kill();
    server.restart();
    let ready = server.ready_after().as_secs_f64();
    let next = Agent::new(&storage, "agent-0", "stream-0").next_sequence(&mut server.api());
    assert!(next >= of_stream, "nothing is lost");
    Ok(vec![
        pushed,
        Verdict::new(
            format!("{what}: ready after a kill, s"),
            Target::AtMost(READY_SECONDS_MAX),
            ready,
        ),
        Verdict::new(
            format!("{what}: peak memory after the start, MiB"),
            Target::AtMost(INDEX_MIB_MAX),
            mib(server.peak_bytes()),
        ),
    ])
}
