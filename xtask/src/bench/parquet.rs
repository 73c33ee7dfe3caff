//! The file of events of a storage, against DuckDB's COPY of the same DFTracer files.
//!
//! What a time contains: for Tracehold, the request that makes the file, from its first byte to the
//! answer: reading packets, decoding, sorting by time, writing, syncing. For DuckDB, the statement
//! alone, in a process that has started: reading the gzip files, sorting if it is told to,
//! writing. Both write Snappy, the same columns, and what is left of an event as JSON.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use harness::{Request, Server, Settings};

use super::index;
use super::paired::{Side, Target, Verdict, alternate, conclude};
use super::table::Table;
use crate::failure::{Failure, Outcome};
use crate::options::Options;
use crate::process::{dist_client, dist_server, fresh_folder, output, run, target};

/// At most this part of the time of DuckDB.
const PART_MAX: f64 = 1.0;
const POLL: Duration = Duration::from_millis(100);
/// What chunk indexes may take, which are not measured.
const INDEX_LIMIT: Duration = Duration::from_secs(600);

/// `--runs 5 --files 4 --mb 80 --member-mb 16 --data FOLDER`; `--server` and `--client` name built
/// programs.
pub(crate) fn run_bench(options: &Options) -> Outcome {
    let runs = options.runs()?;
    let built = |key: &str, build: fn() -> Outcome<PathBuf>| -> Outcome<PathBuf> {
        match options.get(key, String::new())? {
            given if given.is_empty() => build(),
            given => Ok(given.into()),
        }
    };
    let settings = Settings {
        program: Some(built("server", dist_server)?),
        ..Settings::default()
    };
    let client = built("client", dist_client)?;
    let files = index::files(options)?;
    let folder = fresh_folder("bench/parquet")?;
    let server = Server::start(&folder.join("data"), &settings);
    // One for each run, and one that is not counted: a file is made once.
    let mut storages = Vec::new();
    for number in 0..=runs {
        storages.push(stored(&server, &client, &files, number)?);
    }
    let mut left = storages.iter();
    let copied = folder.join("copied.parquet");
    let mut sides = [
        Side {
            name: "file of events",
            run: Box::new(|| made(&server, left.next().map_or("", String::as_str))),
        },
        Side {
            name: "DuckDB, unsorted",
            run: Box::new(|| duckdb(&files, "", &copied)),
        },
        Side {
            name: "DuckDB, by time",
            run: Box::new(|| duckdb(&files, "ORDER BY ts", &copied)),
        },
    ];
    let figures = alternate(runs, &mut sides)?;
    drop(sides);
    println!("{}", Table::of_figures("seconds", &figures));
    let verdict = |what: &str, other: usize| {
        let part = figures[0].ratio(&figures[other]);
        Verdict::new(what, Target::AtMost(PART_MAX), part)
    };
    conclude(&[
        verdict("file of events, part of DuckDB's unsorted copy", 1),
        verdict("file of events, part of DuckDB's copy by time", 2),
    ]);
    Ok(())
}

/// A finalized storage with the files, and its chunk indexes.
fn stored(server: &Server, client: &Path, files: &[PathBuf], number: usize) -> Outcome<String> {
    let storage = server.api().create_storage(&format!("run-{number}"));
    let url = server.url();
    let words = ["push", "--server", &url, "--storage", &storage];
    run(Command::new(client)
        .args(words)
        .args(["--agent", "bench"])
        .args(files))?;
    server.api().finalize(&storage);
    let begin = Instant::now();
    let path = format!("/storages/{storage}/files");
    while server.api().done("GET", &path, None)["chunk_indexes"] != "complete" {
        if begin.elapsed() > INDEX_LIMIT {
            return Err(Failure::Run("chunk indexes are not made".to_owned()));
        }
        thread::sleep(POLL);
    }
    Ok(storage)
}

/// The time until the file of events of a storage is there, in seconds.
fn made(server: &Server, storage: &str) -> Outcome<f64> {
    let path = format!("/storage/{storage}/events/dft.parquet");
    let begin = Instant::now();
    let answer = server.api().send(&Request::new("HEAD", &path));
    let answer = answer.map_err(|error| Failure::Run(format!("{path}: {error}")))?;
    match answer.status {
        200 => Ok(begin.elapsed().as_secs_f64()),
        status => Err(Failure::Run(format!("{path}: {status}"))),
    }
}

/// The time of DuckDB's COPY, in seconds.
fn duckdb(files: &[PathBuf], order: &str, copied: &Path) -> Outcome<f64> {
    let names: Vec<String> = files
        .iter()
        .map(|file| format!("'{}'", file.display()))
        .collect();
    let statement = format!(
        "COPY (SELECT make_timestamp_ns(ts * 1000) AS ts, dur * 1000 AS dur, name, cat, pid, tid, \
         args->>'fhash' AS fhash, TRY_CAST(args->>'ret' AS BIGINT) AS ret, \
         TRY_CAST(args->>'size' AS BIGINT) AS size, \
         TRY_CAST(args->>'offset' AS BIGINT) AS \"offset\", \
         TRY_CAST(args->>'count' AS BIGINT) AS count, args AS rest \
         FROM read_json([{}], format='newline_delimited', ignore_errors=true, \
         columns={{name:'VARCHAR', cat:'VARCHAR', pid:'BIGINT', tid:'BIGINT', ts:'BIGINT', \
         dur:'BIGINT', ph:'BIGINT', args:'JSON'}}) WHERE ph <> 4 {order}) \
         TO '{}' (FORMAT parquet, COMPRESSION snappy)",
        names.join(", "),
        copied.display(),
    );
    let program = "import duckdb, sys, time\nc = duckdb.connect()\n\
                   c.execute('SET enable_progress_bar = false')\nb = time.perf_counter()\n\
                   c.execute(sys.argv[1]).fetchall()\nprint(time.perf_counter() - b)";
    let python = target().join("peers/tables/bin/python");
    let answer = output(Command::new(python).args(["-c", program, &statement]))?;
    answer.trim().parse().map_err(|_| Failure::Answer {
        command: "duckdb".into(),
        why: answer,
    })
}
