//! Peak memory of the programs that push, index and query a long Chrome trace.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use harness::Server;

use super::memory_limit::mib;
use super::paired::{Target, Verdict};
use crate::failure::{Failure, Outcome};
use crate::process::{command, dist_client, fresh_folder, measure};

const PEAK_MIB_MAX: f64 = 256.0;

/// Rounds between the begins of slices that are longer than a packet.
const LONG_SLICE_ROUNDS: u64 = 10_000;

/// Writes a trace of about this length, on one line: slices of one record, of two, and of two that
/// are in different packets. Returns the number of events.
fn write_trace(path: &Path, bytes: u64) -> std::io::Result<u64> {
    let mut out = BufWriter::new(File::create(path)?);
    let (mut events, mut written, mut rounds) = (0_u64, 0, 0_u64);
    write!(
        out,
        "{{\"traceEvents\":[{{\"name\":\"first\",\"ph\":\"i\",\"ts\":1}}"
    )?;
    while written < bytes {
        let (ts, tid) = (events * 7, events % 16);
        let text = format!(
            ",{{\"name\":\"step {}\",\"cat\":\"cpu\",\"ph\":\"X\",\"pid\":1,\"tid\":{tid},\
             \"ts\":{ts}.125,\"dur\":{}.5,\"args\":{{\"bytes\":{events}}}}}\
             ,{{\"name\":\"call\",\"ph\":\"B\",\"pid\":2,\"tid\":{tid},\"ts\":{ts}}}\
             ,{{\"name\":\"call\",\"ph\":\"E\",\"pid\":2,\"tid\":{tid},\"ts\":{}}}",
            events % 97,
            events % 500,
            ts + 5,
        );
        out.write_all(text.as_bytes())?;
        written += text.len() as u64;
        events += 3;
        if rounds.is_multiple_of(LONG_SLICE_ROUNDS) {
            for phase in ["E", "B"].iter().skip(usize::from(rounds == 0)) {
                write!(
                    out,
                    ",{{\"name\":\"long\",\"ph\":\"{phase}\",\"pid\":3,\"tid\":1,\"ts\":{ts}}}"
                )?;
                events += 1;
            }
        }
        rounds += 1;
    }
    out.write_all(b"],\"displayTimeUnit\":\"ms\"}\n")?;
    out.flush()?;
    Ok(events + 1)
}

/// Pushes, indexes and queries a trace of this length.
pub(super) fn chrome_trace(server: &Server, bytes: u64) -> Outcome<Vec<Verdict>> {
    let folder = fresh_folder("bench/memory-chrome-trace")?;
    let path = folder.join("trace.json");
    let events = write_trace(&path, bytes).map_err(|source| Failure::File {
        path: path.clone(),
        source,
    })?;
    let (file, url) = (path.display().to_string(), server.url());
    let storage = server.api().create_storage("trace");
    let program = dist_client()?.display().to_string();
    let stored = ["--server", &url, "--storage", &storage];
    let by_name = ["--group-by", "name", "--aggregate", "count,p99:dur"];
    let mut verdicts = Vec::new();
    for (what, words) in [
        (
            "count without an index",
            [&["query", &file, "dur >= 0ns", "--count"][..], &[]],
        ),
        ("index", [&["index", &file], &[]]),
        ("groups with an index", [&["query", &file, ""], &by_name]),
        ("push", [&["push", &file], &stored]),
        (
            "groups of a storage",
            [&["query", "bytes >= 0", "--count"], &stored],
        ),
    ] {
        let mut child = command(&program, &words.concat());
        let used = measure(&mut child)?;
        if words[0].contains(&"--count") {
            assert!(
                used.stdout
                    .trim()
                    .parse::<u64>()
                    .is_ok_and(|count| count > 0),
                "{what}"
            );
        }
        println!("{what}: {:.1} s", used.wall.as_secs_f64());
        verdicts.push(verdict(what, used.peak_rss));
    }
    let mut counted = command(&program, &[&["query", "--count"][..], &stored].concat());
    assert_eq!(measure(&mut counted)?.stdout.trim(), events.to_string());
    verdicts.push(verdict("the server", server.peak_bytes()));
    Ok(verdicts)
}

fn verdict(what: &str, bytes: u64) -> Verdict {
    let what = format!("a long Chrome trace, {what}: peak memory, MiB");
    Verdict::new(what, Target::AtMost(PEAK_MIB_MAX), mib(bytes))
}
