//! Finalizing a storage of many interleaved streams, against copying its files; and how long its
//! chunk indexes take, and how many files it has then.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

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

/// The configuration of a server that seals.
const SEALED: &str = "[seal]\nat_finalization = true\n";

/// How long the chunk indexes may take.
const INDEX_LIMIT: Duration = Duration::from_secs(3600);
const POLL: Duration = Duration::from_millis(100);
/// What the smaller form has.
const SMALL: (u64, u64) = (256, 1000);

/// `--mib 4096 --streams 4000 --packet 4096 --runs 3 --kind dft --program PATH-OF-TRACEHOLDD`;
/// `--small yes` is 256 MiB of 1,000 streams; with `--seal yes` the storage is sealed, too.
pub(crate) fn run_bench(options: &Options) -> Outcome {
    let is_small = options.get("small", String::new())? == "yes";
    let (mib, streams) = if is_small { SMALL } else { (4096, 4000) };
    let bytes = options.get("mib", mib)?.saturating_mul(MIB);
    let load = Load {
        bytes,
        streams: options.get("streams", streams)?,
        packet: options.get("packet", 4096)?,
        kind: options.get("kind", "dft".to_owned())?,
    };
    let runs: usize = options.get("runs", 3)?;
    let program: PathBuf = match options.get("program", String::new())? {
        given if given.is_empty() => dist_server()?,
        given => given.into(),
    };
    let is_sealed = options.get("seal", String::new())? == "yes";
    let settings = Settings {
        program: Some(program),
        ..Settings::with_config(if is_sealed { SEALED } else { "" })
    };
    let mut all: Vec<Run> = Vec::new();
    for number in 0..runs {
        let run = run_once(&load, &settings)?;
        println!(
            "run {number}: copied in {:.2} s, finalized in {:.2} s, chunk indexes {:.2} s later",
            run.copy, run.finalize, run.indexes
        );
        all.push(run);
    }
    let figures = |of: fn(&Run) -> f64| median(&all.iter().map(of).collect::<Vec<_>>());
    println!("copied and synced in {:.2} s", figures(|run| run.copy));
    println!(
        "finalized in {:.2} s, {:.2} s of CPU",
        figures(|run| run.finalize),
        figures(|run| run.cpu)
    );
    println!(
        "chunk indexes complete {:.2} s later, {:.2} s of CPU",
        figures(|run| run.indexes),
        figures(|run| run.index_cpu)
    );
    println!(
        "files: {:.0}, of these {:.0} with chunk indexes, which have {:.1} MiB",
        figures(|run| run.files),
        figures(|run| run.index_files),
        figures(|run| run.index_mib)
    );
    conclude(&[Verdict::new(
        "finalization, part of the speed of cp (median of the ratios of the runs)",
        Target::AtLeast(RATIO_MIN),
        figures(|run| run.copy / run.finalize),
    )]);
    Ok(())
}

/// What is pushed.
struct Load {
    bytes: u64,
    streams: u64,
    packet: usize,
    kind: String,
}

/// The figures of one run: seconds, and what the storage has in the end.
struct Run {
    copy: f64,
    finalize: f64,
    cpu: f64,
    indexes: f64,
    index_cpu: f64,
    files: f64,
    index_files: f64,
    index_mib: f64,
}

fn run_once(load: &Load, settings: &Settings) -> Outcome<Run> {
    let folder = fresh_folder("bench/finalize")?;
    let server = Server::start(&folder.join("data"), settings);
    let mut api = server.api();
    let storage = api.create_storage("interleaved");
    fill(&server, &storage, load);
    let files = server.data().join("storages").join(&storage);
    evict(&files)?;
    let copy = copy_seconds(&files, &folder.join("copy"))?;
    evict(&files)?;
    let before = cpu_of(server.pid())?;
    let begin = Instant::now();
    server.api().finalize(&storage);
    let finalize = begin.elapsed().as_secs_f64();
    let cpu = cpu_of(server.pid())? - before;
    let begin = Instant::now();
    wait_for_indexes(&server, &storage);
    let indexes = begin.elapsed().as_secs_f64();
    let index_cpu = cpu_of(server.pid())? - before - cpu;
    check_ranges(&server, &storage, load.streams);
    let listed = server.api().files(&storage);
    let of_indexes = listed.iter().filter(|(_, role, _)| role == "chunk_index");
    let index_bytes: u64 = of_indexes.clone().map(|(_, _, length)| length).sum();
    let entries = std::fs::read_dir(&files).map_err(file_failed(&files))?;
    let run = Run {
        copy,
        finalize,
        cpu,
        indexes,
        index_cpu,
        files: entries.count() as f64,
        index_files: of_indexes.count() as f64,
        index_mib: index_bytes as f64 / MIB as f64,
    };
    drop(server);
    std::fs::remove_dir_all(&folder).map_err(file_failed(&folder))?;
    Ok(run)
}

fn wait_for_indexes(server: &Server, storage: &str) {
    let begin = Instant::now();
    let path = format!("/storages/{storage}/files");
    while server.api().done("GET", &path, None)["chunk_indexes"] != "complete" {
        assert!(
            begin.elapsed() < INDEX_LIMIT,
            "the chunk indexes are not made"
        );
        thread::sleep(POLL);
    }
}

/// A packet with events, or of random bytes.
fn packet(load: &Load, pusher: u64, turn: u64) -> Vec<u8> {
    if load.kind != "dft" {
        return payload(pusher, turn, load.packet);
    }
    let mut text = String::new();
    for line in 0.. {
        let id = turn * 1_000 + line;
        let (ts, dur) = (1_000_000 + id * 10, (pusher + id) * 7919 % 1000);
        let event = format!(
            "{{\"id\":{id},\"name\":\"read\",\"cat\":\"POSIX\",\"pid\":{pusher},\"tid\":{},\
             \"ts\":{ts},\"dur\":{dur},\"ph\":\"X\",\"args\":{{\"ret\":{dur}}}}}\n",
            id % 11,
        );
        if text.len() + event.len() > load.packet {
            break;
        }
        text.push_str(&event);
    }
    text.into_bytes()
}

/// Pushes packets of all streams in turn.
fn fill(server: &Server, storage: &str, load: &Load) {
    let per_round = load.streams.saturating_mul(load.packet as u64).max(1);
    let rounds = (load.bytes / per_round).max(1);
    let push = |pusher: u64| {
        let mut api = server.api();
        let agents: Vec<Agent> = (pusher..load.streams)
            .step_by(usize::try_from(PUSHERS).expect("few pushers"))
            .map(|stream| {
                let (agent, stream) = (format!("agent-{}", stream % 100), format!("s{stream}"));
                Agent::register(&mut api, &agent);
                Agent::declare_stream(&mut api, &agent, &stream, &load.kind, "none");
                Agent::new(storage, &agent, &stream)
            })
            .collect();
        let bodies: Vec<_> = (0..8).map(|turn| packet(load, pusher, turn)).collect();
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
