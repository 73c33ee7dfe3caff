//! Power cuts: a run on a disk that logs every block write, and the check of the disk images that
//! are built from the log.
//!
//! Killing a process loses nothing that the kernel accepted; a power cut loses writes that no sync
//! covered, in any order. The tools in `../shared/tools` record a run and build images as a cut at
//! a random moment could have left them. This module contains the recorded run, and the check of an
//! image.
//!
//! The log of acknowledgements is on another disk, one line each: nanoseconds of the monotonic
//! clock *after* the response arrived, then `packet` with storage, stream, sequence and number, or
//! `finalized` with the storage.

use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::agent::Agent;
use crate::api::Api;
use crate::http::Connection;
use crate::payload::packet;
use crate::server::{Server, Settings};

/// Streams of a storage, with their codecs.
const STREAMS: &[(&str, &str)] = &[("plain", "none"), ("packed", "zstd"), ("other", "none")];

/// Runs a server in this folder and logs what it acknowledges. One storage is finalized half-way,
/// one is open at the end, and full data files are arranged meanwhile.
///
/// # Panics
/// If the server refuses a valid request, or arranges no file.
pub fn record_power(folder: &Path, settings: &Settings, log: &Path, duration: Duration) {
    let mut server = Server::start(folder, settings);
    let log = Mutex::new(File::create(log).expect("the log can be written"));
    for (number, finalize) in [(1, true), (2, true), (3, false)] {
        let mut api = server.api();
        let storage = api.create_storage(&format!("power-{number}"));
        push_for(server.address(), &storage, number * 10, duration / 3, &log);
        if finalize {
            api.finalize(&storage);
            note(&log, &format!("finalized {storage}"));
        }
    }
    assert!(server.files_arranged() > 0, "no full file was arranged");
    server.kill();
}

/// Pushes into all streams at once.
fn push_for(address: SocketAddr, storage: &str, seed: u64, duration: Duration, log: &Mutex<File>) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for (seed, (stream, codec)) in (seed..).zip(STREAMS) {
            let stop = &stop;
            scope.spawn(move || {
                let mut api = Api::new(Connection::open(address).expect("a ready server accepts"));
                let agent = Agent::declare(&mut api, storage, "power", stream, codec);
                let first = agent.next_sequence(&mut api);
                for sequence in first.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let receipt = agent.push(&mut api, sequence, &packet(seed, sequence));
                    let number = receipt.number;
                    note(
                        log,
                        &format!("packet {storage} {stream} {seed} {sequence} {number}"),
                    );
                }
            });
        }
        thread::sleep(duration);
        stop.store(true, Ordering::Relaxed);
    });
}

fn note(log: &Mutex<File>, what: &str) {
    let now = clock_gettime(ClockId::Monotonic);
    let nanoseconds = now.tv_sec * 1_000_000_000 + now.tv_nsec;
    let mut log = log.lock().expect("no thread panics while it writes a line");
    writeln!(log, "{nanoseconds} {what}").expect("the log can be written");
}

/// Starts a server on a disk image and checks that everything acknowledged before the cut is there.
/// Returns the number of packets that were checked.
///
/// # Panics
/// If a packet is missing or changed, or the server does not start without help.
pub fn check_image(folder: &Path, settings: &Settings, log: &Path, cut: i64) -> u64 {
    let log = std::fs::read_to_string(log).expect("the log was written");
    let server = Server::start(folder, settings);
    let mut api = server.api();
    let mut count = 0;
    for line in log.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |index: usize| words[index].parse::<u64>().expect("a number of the log");
        if words[0].parse::<i64>().expect("a time of the log") >= cut {
            continue;
        }
        match words[1] {
            "packet" => {
                let found = api.packet(words[2], number(6));
                assert!(found == packet(number(4), number(5)), "differs: {line}");
                let next = Agent::new(words[2], "power", words[3]).next_sequence(&mut api);
                assert!(next > number(5), "next sequence {next}: {line}");
                count += 1;
            }
            "finalized" => {
                assert_eq!(api.state(words[2]), "FINALIZED", "{line}");
                let damage = api.verify(words[2]);
                assert!(damage.is_empty(), "{damage:?}: {line}");
            }
            other => panic!("{other:?} in the log"),
        }
    }
    count
}
