//! The time until a server is ready, with many finalized storages and with data that no index part
//! covers.

use std::thread;
use std::time::Duration;

use harness::{Agent, Body, Load, Pace, Server, Settings, payload};

use super::paired::{Target, Verdict, conclude, median};
use crate::failure::Outcome;
use crate::options::Options;
use crate::process::{dist_server, fresh_folder};

const READY_SECONDS_MAX: f64 = 5.0;
const SECONDS_PER_GIB_MAX: f64 = 1.0;
const GIB: f64 = (1_u64 << 30) as f64;

/// Connections that create storages.
const MAKERS: u64 = 8;

/// `--storages 10000 --tail-seconds 5 --runs 3`.
pub(crate) fn run_bench(options: &Options) -> Outcome {
    let storages: u64 = options.get("storages", 10_000)?;
    let tail = Duration::from_secs_f64(options.get("tail-seconds", 5.0)?);
    let runs = options.get("runs", 3)?;
    let folder = fresh_folder("bench/restart")?;
    let settings = Settings {
        program: Some(dist_server()?),
        ..Settings::default()
    };
    let mut server = Server::start(&folder, &settings);
    make_storages(&server, storages);
    let many = median(&ready_seconds(&mut server, runs));
    let bytes = push_tail(&server, tail);
    let with_tail = ready_seconds(&mut server, 1);
    #[expect(clippy::cast_precision_loss, reason = "shown with two digits")]
    let gib = bytes as f64 / GIB;
    // Only the first start after the kill reads the uncovered data; it also opens all storages.
    let per_gib = (with_tail[0] - many).max(0.0) / gib;
    println!("{storages} finalized storages: ready after {many:.3} s");
    println!(
        "with {gib:.2} GiB pushed before a kill: ready after {:.3} s",
        with_tail[0]
    );
    conclude(&[
        Verdict::new(
            format!("ready with {storages} finalized storages, s"),
            Target::AtMost(READY_SECONDS_MAX),
            many,
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

/// Seconds from the start of the process to its ready line, after a kill each time.
fn ready_seconds(server: &mut Server, runs: usize) -> Vec<f64> {
    let mut seconds = Vec::new();
    for _ in 0..runs {
        server.kill();
        server.restart();
        seconds.push(server.ready_after().as_secs_f64());
    }
    seconds
}

/// Pushes into an open storage for a while; returns the acknowledged payload bytes.
fn push_tail(server: &Server, duration: Duration) -> u64 {
    let storage = server.api().create_storage("tail");
    let load = Load {
        address: server.address(),
        storage,
        streams: 4,
        connections: 4,
        body: Body::One(256 << 10),
        pace: Pace::Full,
        codec: "none",
        duration,
    };
    load.run().bytes
}
