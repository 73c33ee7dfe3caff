//! Finalizing a storage of many interleaved streams, against copying its files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Instant;

use harness::{Agent, Server, Settings, payload};

use super::paired::{Target, Verdict, conclude, median};
use crate::failure::{Failure, Outcome, file_failed};
use crate::options::Options;
use crate::process::{dist_server, fresh_folder, output};

/// Finalization copies every byte and checks it; `cp` only copies.
const RATIO_MIN: f64 = 0.6;
const MIB: u64 = 1 << 20;
/// Connections that push. Each serves its share of the streams in turn.
const PUSHERS: u64 = 16;
/// Header and padding between the payloads of two packets of a leaf, in bytes.
const BETWEEN_PACKETS_MAX: u64 = 96;

/// `--mib 4096 --streams 4000 --packet 4096 --runs 1 --program PATH-OF-TRACEHOLDD`.
pub(crate) fn run_bench(options: &Options) -> Outcome {
    let bytes = options.get("mib", 4096_u64)?.saturating_mul(MIB);
    let streams: u64 = options.get("streams", 4000)?;
    let packet: usize = options.get("packet", 4096)?;
    let runs: usize = options.get("runs", 1)?;
    let program: PathBuf = match options.get("program", String::new())? {
        given if given.is_empty() => dist_server()?,
        given => given.into(),
    };
    let settings = Settings {
        program: Some(program),
        ..Settings::default()
    };
    let (mut copying, mut finalizing, mut cpu) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..runs {
        let folder = fresh_folder("bench/finalize")?;
        let server = Server::start(&folder.join("data"), &settings);
        let mut api = server.api();
        let storage = api.create_storage("interleaved");
        fill(&server, &storage, streams, packet, bytes);
        let files = server.data().join("storages").join(&storage);
        evict(&files)?;
        copying.push(copy_seconds(&files, &folder.join("copy"))?);
        evict(&files)?;
        let before = cpu_of(server.pid())?;
        let begin = Instant::now();
        server.api().finalize(&storage);
        finalizing.push(begin.elapsed().as_secs_f64());
        cpu.push(cpu_of(server.pid())? - before);
        check_ranges(&server, &storage, streams);
        drop(server);
        std::fs::remove_dir_all(&folder).map_err(file_failed(&folder))?;
    }
    let (copy, finalize) = (median(&copying), median(&finalizing));
    println!("copied and synced in {copy:.2} s");
    println!("finalized in {finalize:.2} s, {:.2} s of CPU", median(&cpu));
    conclude(&[Verdict::new(
        "finalization, part of the speed of cp",
        Target::AtLeast(RATIO_MIN),
        copy / finalize,
    )]);
    Ok(())
}

/// Pushes packets of all streams in turn.
fn fill(server: &Server, storage: &str, streams: u64, packet: usize, bytes: u64) {
    let per_round = streams.saturating_mul(packet as u64).max(1);
    let rounds = (bytes / per_round).max(1);
    let push = |pusher: u64| {
        let mut api = server.api();
        let agents: Vec<Agent> = (pusher..streams)
            .step_by(usize::try_from(PUSHERS).expect("few pushers"))
            .map(|stream| {
                let agent = format!("agent-{}", stream % 100);
                Agent::declare(&mut api, storage, &agent, &format!("s{stream}"), "none")
            })
            .collect();
        let bodies: Vec<_> = (0..8).map(|turn| payload(pusher, turn, packet)).collect();
        for round in 0..rounds {
            for agent in &agents {
                let body = &bodies[usize::try_from(round % 8).expect("a small number")];
                let response = agent.post(&mut api, round, body);
                let response = response.expect("the server answers");
                assert_eq!(response.status, 200, "{}", response.brief());
            }
        }
    };
    thread::scope(|scope| {
        for pusher in 0..PUSHERS {
            scope.spawn(move || push(pusher));
        }
    });
}

/// Removes the data files in `folder` from the page cache.
fn evict(folder: &Path) -> Outcome {
    for entry in std::fs::read_dir(folder).map_err(file_failed(folder))? {
        let path = entry.map_err(file_failed(folder))?.path();
        let mut source = std::ffi::OsString::from("if=");
        source.push(&path);
        output(
            Command::new("dd")
                .arg(source)
                .args(["iflag=nocache", "count=0", "status=none"]),
        )?;
    }
    Ok(())
}

/// Seconds to copy a folder and make the copy durable.
fn copy_seconds(from: &Path, to: &Path) -> Outcome<f64> {
    let begin = Instant::now();
    output(Command::new("cp").arg("-r").arg(from).arg(to))?;
    output(Command::new("sync").arg("-f").arg(to))?;
    let seconds = begin.elapsed().as_secs_f64();
    std::fs::remove_dir_all(to).map_err(file_failed(to))?;
    Ok(seconds)
}

/// CPU seconds of a process so far.
fn cpu_of(pid: u32) -> Outcome<f64> {
    let path = PathBuf::from(format!("/proc/{pid}/stat"));
    let text = std::fs::read_to_string(&path).map_err(file_failed(&path))?;
    // The name of the program, in brackets, may contain spaces.
    let fields = text
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace();
    let ticks: Vec<f64> = fields
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse().ok())
        .collect();
    match ticks[..] {
        [user, system] => Ok((user + system) / 100.0),
        _ => Err(Failure::Answer {
            command: path.display().to_string(),
            why: "it has no times".to_owned(),
        }),
    }
}

/// Checks that each stream is one range of each file.
fn check_ranges(server: &Server, storage: &str, streams: u64) {
    let mut api = server.api();
    let mut packets: BTreeMap<(String, String), Vec<(u64, u64)>> = BTreeMap::new();
    let mut path = format!("/storages/{storage}/descriptors?limit=1000");
    loop {
        let page = api.done("GET", &path, None);
        for item in page["items"].as_array().expect("a list of packets") {
            let text = |name: &str| item[name].as_str().unwrap_or_default().to_owned();
            let number = |name: &str| item[name].as_u64().expect("a place has numbers");
            let place = (number("offset"), number("size"));
            let of = (text("leaf"), text("file"));
            packets.entry(of).or_default().push(place);
        }
        match page["next"].as_str() {
            Some(next) => {
                path = format!("/storages/{storage}/descriptors?limit=1000&cursor={next}");
            }
            None => break,
        }
    }
    let leaves = packets.keys().map(|(leaf, _)| leaf);
    let leaves: std::collections::BTreeSet<_> = leaves.collect();
    assert!(leaves.len() as u64 >= streams, "every stream has packets");
    for ((leaf, file), mut places) in packets {
        places.sort_unstable();
        for pair in places.windows(2) {
            let (end, next) = (pair[0].0 + pair[0].1, pair[1].0);
            assert!(
                next >= end && next - end <= BETWEEN_PACKETS_MAX,
                "leaf {leaf} is not one range of {file}: a gap at {end}"
            );
        }
    }
}
