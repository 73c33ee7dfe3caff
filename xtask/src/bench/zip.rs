//! Memory and time of a server that exports a large storage, and of one that imports it.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use harness::{Agent, Server, Settings, payload};

use super::paired::{Target, Verdict, conclude};
use crate::failure::{Failure, Outcome, file_failed};
use crate::options::Options;
use crate::process::{dist_server, fresh_folder, peak_rss_of};

/// The memory limit, which does not depend on the size of the storage.
const PEAK_MIB_MAX: f64 = 128.0;
const MIB: f64 = (1_u64 << 20) as f64;
/// The size of a packet, and of a request.
const PACKET_BYTES: usize = 4 << 20;
const STREAMS: u64 = 4;
const PIECE_BYTES: usize = 256 << 10;

/// `--gib 5 --program PATH-OF-TRACEHOLDD`.
pub(crate) fn run_bench(options: &Options) -> Outcome {
    let gib: u64 = options.get("gib", 5)?;
    let program: PathBuf = match options.get("program", String::new())? {
        given if given.is_empty() => dist_server()?,
        given => given.into(),
    };
    let folder = fresh_folder("bench/zip")?;
    let settings = Settings {
        program: Some(program),
        ..Settings::default()
    };
    let mut here = Server::start(&folder.join("here"), &settings);
    let storage = filled(&here, gib << 30);
    // Memory used while the storage was filled must not be counted.
    here.kill();
    here.restart();
    let archive = folder.join("storage.zip");
    let begin = Instant::now();
    let bytes = export(&here, &storage, &archive)?;
    report("export", bytes, begin.elapsed());
    let export_peak = peak_mib(&here);
    here.kill();
    // The disk needs space for two copies, not three.
    let here = folder.join("here");
    std::fs::remove_dir_all(&here).map_err(file_failed(&here))?;
    let there = Server::start(&folder.join("there"), &settings);
    let begin = Instant::now();
    import(&there, &archive)?;
    report("import", bytes, begin.elapsed());
    let import_peak = peak_mib(&there);
    let begin = Instant::now();
    let damage = there.api().verify(&storage);
    report("verification of the copy", bytes, begin.elapsed());
    println!("{} damaged ranges", damage.len());
    std::fs::remove_dir_all(&folder).map_err(file_failed(&folder))?;
    let target = Target::AtMost(PEAK_MIB_MAX);
    conclude(&[
        Verdict::new("peak memory of an export, MiB", target, export_peak),
        Verdict::new("peak memory of an import, MiB", target, import_peak),
    ]);
    if damage.is_empty() {
        Ok(())
    } else {
        Err(Failure::Run("the copy is damaged".to_owned()))
    }
}

#[expect(clippy::cast_precision_loss, reason = "shown with one digit")]
fn report(what: &str, bytes: u64, took: Duration) {
    let mib = bytes as f64 / MIB;
    let seconds = took.as_secs_f64();
    println!(
        "{what}: {mib:.0} MiB in {seconds:.1} s, {:.0} MiB/s",
        mib / seconds
    );
}

#[expect(clippy::cast_precision_loss, reason = "shown with one digit")]
fn peak_mib(server: &Server) -> f64 {
    peak_rss_of(server.pid()) as f64 / MIB
}

/// A finalized storage of this many bytes.
fn filled(server: &Server, bytes: u64) -> String {
    let mut api = server.api();
    let storage = api.create_storage("large");
    let agents: Vec<_> = (0..STREAMS)
        .map(|stream| Agent::declare(&mut api, &storage, "bench", &format!("s{stream}"), "none"))
        .collect();
    let packet = payload(1, 1, PACKET_BYTES);
    let rounds = bytes / (STREAMS * packet.len() as u64);
    for sequence in 0..rounds {
        for agent in &agents {
            agent.push(&mut api, sequence, &packet);
        }
    }
    api.finalize(&storage);
    storage
}

/// Writes the body of an export to a file; returns its length.
fn export(server: &Server, storage: &str, path: &Path) -> Outcome<u64> {
    let failed = file_failed(path);
    let mut stream = TcpStream::connect(server.address()).map_err(&failed)?;
    let head = format!(
        "GET /api/v1/storages/{storage}/export HTTP/1.1\r\nhost: bench\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).map_err(&failed)?;
    let mut file = File::create(path).map_err(&failed)?;
    let mut answer = Vec::new();
    let mut piece = vec![0; PIECE_BYTES];
    let end = loop {
        let count = stream.read(&mut piece).map_err(&failed)?;
        answer.extend_from_slice(&piece[..count]);
        let end = answer.windows(4).position(|window| window == b"\r\n\r\n");
        match end {
            Some(end) => break end + 4,
            None if count == 0 => {
                return Err(Failure::Run(
                    "the server did not respond to the export".to_owned(),
                ));
            }
            None => {}
        }
    };
    let status = String::from_utf8_lossy(&answer[..end]).into_owned();
    if !status.starts_with("HTTP/1.1 200") {
        return Err(Failure::Run(status));
    }
    file.write_all(&answer[end..]).map_err(&failed)?;
    let rest = std::io::copy(&mut stream, &mut file).map_err(&failed)?;
    Ok(rest + (answer.len() - end) as u64)
}

/// Sends a file as the body of an import.
fn import(server: &Server, path: &Path) -> Outcome {
    let failed = file_failed(path);
    let mut file = File::open(path).map_err(&failed)?;
    let length = file.metadata().map_err(&failed)?.len();
    let mut connection = server.connect();
    let head = format!(
        "POST /api/v1/storages/import HTTP/1.1\r\nhost: bench\r\ncontent-length: {length}\r\n\r\n"
    );
    connection.write(&[head.as_bytes()]).map_err(&failed)?;
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match file.read(&mut piece).map_err(&failed)? {
            0 => break,
            count => connection.write(&[&piece[..count]]).map_err(&failed)?,
        }
    }
    let response = connection.read_response(false).map_err(&failed)?;
    match response.status {
        201 => Ok(()),
        _ => Err(Failure::Run(response.brief())),
    }
}
