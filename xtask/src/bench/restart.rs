//! The time until a server listens and until it is ready, with many finalized storages and with
//! data that no index part covers.

use std::fmt;
use std::fs;
use std::thread;
use std::time::Duration;

use harness::{Agent, Body, Load, Pace, Server, Settings, payload};

use super::paired::{Target, Verdict, conclude, median};
use crate::failure::Outcome;
use crate::options::Options;
use crate::process::{dist_server, fresh_folder};

const READY_SECONDS_MAX: f64 = 5.0;
const SECONDS_PER_GIB_MAX: f64 = 0.8;
const LISTENING_SECONDS_MAX: f64 = 1.0;
const GIB: f64 = (1_u64 << 30) as f64;

/// Connections that create storages.
const MAKERS: u64 = 8;

/// No index part covers what is pushed.
const UNCOVERED: &str = "[storage]\nlive_index_packets_max = 1000000000\n\
    live_index_bytes_max = 1000000000000\nlive_index_seconds_max = 0\n\
    uncovered_bytes_max = 1000000000000\n";

/// `--storages 10000 --gib 4 --packet-bytes 4096 --runs 3`.
pub(crate) fn run_bench(options: &Options) -> Outcome {
    let storages: u64 = options.get("storages", 10_000)?;
    let gib_wanted: f64 = options.get("gib", 4.0)?;
    let packet_bytes: usize = options.get("packet-bytes", 4096)?;
    let runs = options.get("runs", 3)?;
    let folder = fresh_folder("bench/restart")?;
    let settings = Settings {
        program: Some(dist_server()?),
        ..Settings::with_config(UNCOVERED)
    };
    let mut server = Server::start(&folder, &settings);
    make_storages(&server, storages);
    let many = Starts::of(&mut server, runs);
    let bytes = push_tail(&server, gib_wanted, packet_bytes);
    let with_tail = Starts::of(&mut server, runs);
    #[expect(clippy::cast_precision_loss, reason = "shown with two digits")]
    let gib = bytes as f64 / GIB;
    // It also opens all storages.
    let per_gib = (with_tail.recovered - many.recovered).max(0.0) / gib;
    println!("{storages} finalized storages: {many}");
    println!(
        "with {gib:.2} GiB of packets of {packet_bytes} bytes that no part covers: {with_tail}"
    );
    let peak = server.peak_bytes() >> 20;
    println!("peak of the memory of the last start: {peak} MiB");
    fs::remove_dir_all(&folder).ok();
    conclude(&[
        Verdict::new(
            "listening with uncovered data, s",
            Target::AtMost(LISTENING_SECONDS_MAX),
            with_tail.listening,
        ),
        Verdict::new(
            format!("ready with {storages} finalized storages, s"),
            Target::AtMost(READY_SECONDS_MAX),
            many.recovered,
        ),
        Verdict::new(
            "recovery, s per GiB of uncovered data",
            Target::AtMost(SECONDS_PER_GIB_MAX),
            per_gib,
        ),
    ]);
    Ok(())
}

fn make_storages(server: &Server, count: u64) {
    let make = |maker: u64| {
        let mut api = server.api();
        for number in (maker..count).step_by(usize::try_from(MAKERS).expect("few makers")) {
            let storage = api.create_storage(&format!("storage-{number}"));
            let agent = Agent::declare(&mut api, &storage, "bench", "stream", "none");
            let first = agent.next_sequence(&mut api);
            agent.push(&mut api, first, &payload(number, 0, 1000));
            api.finalize(&storage);
        }
    };
    thread::scope(|scope| {
        for maker in 0..MAKERS {
            scope.spawn(move || make(maker));
        }
    });
}

/// Seconds from the start of the process, medians of several starts after a kill each.
struct Starts {
    /// Until it listens.
    listening: f64,
    /// Until all storages are recovered.
    recovered: f64,
}

impl Starts {
    fn of(server: &mut Server, runs: usize) -> Self {
        let (mut listening, mut recovered) = (Vec::new(), Vec::new());
        for _ in 0..runs {
            server.kill();
            server.restart();
            listening.push(server.ready_after().as_secs_f64());
            recovered.push(server.recovered_after().as_secs_f64());
        }
        Self {
            listening: median(&listening),
            recovered: median(&recovered),
        }
    }
}

impl fmt::Display for Starts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            listening,
            recovered,
        } = self;
        write!(
            f,
            "listening after {listening:.3} s, ready after {recovered:.3} s"
        )
    }
}

/// Pushes into an open storage; returns the acknowledged payload bytes.
fn push_tail(server: &Server, gib: f64, packet_bytes: usize) -> u64 {
    let storage = server.api().create_storage("tail");
    let mut bytes = 0;
    #[expect(clippy::cast_precision_loss, reason = "a bench ends about there")]
    while (bytes as f64) < gib * GIB {
        let load = Load {
            address: server.address(),
            storage: storage.clone(),
            streams: 4,
            connections: 4,
            body: Body::Many(packet_bytes, (1 << 20) / packet_bytes),
            pace: Pace::Full,
            codec: "none",
            duration: Duration::from_secs(1),
        };
        bytes += load.run().bytes;
    }
    bytes
}
