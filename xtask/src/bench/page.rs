//! The page in a browser: the time until the time line of a large storage is drawn, and the time
//! and the requests of a zoom, from the whole storage to single events.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use harness::{Server, Settings, page_node_modules};
use serde_json::{Value, json};

use super::paired::{Target, Verdict, conclude, median};
use crate::failure::{Failure, Outcome};
use crate::options::Options;
use crate::process::{dist_client, dist_server, fresh_folder, output, root, run};

const EVENTS: usize = 10_000_000;
/// Files of the trace: as many processes.
const FILES: usize = 8;
const FIRST_PAINT_SECONDS_MAX: f64 = 1.0;
const ZOOM_SECONDS_MAX: f64 = 0.2;
const ZOOM_REQUESTS_MAX: f64 = 1.0;
const INDEX_LIMIT: Duration = Duration::from_mins(10);
const POLL: Duration = Duration::from_millis(200);

/// `--events 10000000 --runs 5`. Needs the packages of the tests of the page, and Chromium.
pub(crate) fn run_bench(options: &Options) -> Outcome {
    let events = options.get("events", EVENTS)?;
    let modules = page_node_modules()
        .ok_or_else(|| Failure::Run("cargo xtask test page installs what is missing".to_owned()))?;
    let settings = Settings {
        program: Some(dist_server()?),
        ..Settings::default()
    };
    let client = dist_client()?;
    let folder = fresh_folder("bench/page")?;
    let trace = folder.join("trace");
    write_trace(&trace, events).map_err(|source| Failure::File {
        path: trace.clone(),
        source,
    })?;
    let server = Server::start(&folder.join("data"), &settings);
    let storage = stored(&server, &client, &trace)?;
    let given = json!({
        "server": server.url(), "storage": storage, "runs": options.runs()?,
        "pictures": folder.join("pictures"),
    });
    let mut node = Command::new("node");
    node.arg(root().join("tests/data/page/speed.mjs"))
        .env("PAGE_MODULES", &modules)
        .env("PAGE_GIVEN", given.to_string());
    let answer = output(&mut node)?;
    let measured = serde_json::from_str(&answer).map_err(|_| Failure::Answer {
        command: "node speed.mjs".into(),
        why: answer.clone(),
    })?;
    say(events, &measured);
    Ok(())
}

/// Prints the medians, and whether they are as they should be.
fn say(events: usize, measured: &Value) {
    let figures = |name: &str| -> Vec<f64> {
        let runs = measured[name].as_array().cloned().unwrap_or_default();
        runs.iter().filter_map(Value::as_f64).collect()
    };
    let most = |name: &str| figures(name).into_iter().fold(0.0, f64::max);
    let at_most =
        |what: String, most: f64, measured: f64| Verdict::new(what, Target::AtMost(most), measured);
    conclude(&[
        at_most(
            format!("s until the time line of {events} events is drawn"),
            FIRST_PAINT_SECONDS_MAX,
            median(&figures("first")),
        ),
        at_most(
            "s until the time line is drawn after a zoom".to_owned(),
            ZOOM_SECONDS_MAX,
            median(&figures("zoom")),
        ),
        at_most(
            "s until the table is drawn, too".to_owned(),
            ZOOM_SECONDS_MAX,
            median(&figures("all")),
        ),
        at_most(
            "s of the slowest zoom until the time line is drawn".to_owned(),
            ZOOM_SECONDS_MAX,
            most("zoom"),
        ),
        at_most(
            "s of the slowest zoom until the table is drawn".to_owned(),
            ZOOM_SECONDS_MAX,
            most("all"),
        ),
        at_most(
            "requests of a zoom".to_owned(),
            ZOOM_REQUESTS_MAX,
            most("requests"),
        ),
    ]);
}

/// Files of DFTracer: calls of several kinds, one after another in each process.
fn write_trace(folder: &Path, events: usize) -> std::io::Result<()> {
    const NAMES: [&str; 6] = ["read", "write", "open64", "close", "lseek64", "compute"];
    fs::create_dir_all(folder)?;
    for process in 0..FILES {
        let path = folder.join(format!("trace-{process}.pfw"));
        let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
        writeln!(file, "[")?;
        for id in 0..events / FILES {
            let name = NAMES[(id * 7 + id / 1000) % NAMES.len()];
            let (ts, dur) = (1_700_000_000_000_000 + id * 50, 1 + id * 31 % 900);
            writeln!(
                file,
                "{{\"id\":{id},\"name\":\"{name}\",\"cat\":\"POSIX\",\"pid\":{process},\
                 \"tid\":{process},\"ts\":{ts},\"dur\":{dur},\"ph\":\"X\",\
                 \"args\":{{\"ret\":{}}}}}",
                id % 65_536
            )?;
        }
        file.flush()?;
    }
    Ok(())
}

/// A finalized storage with the trace, and its chunk indexes.
fn stored(server: &Server, client: &Path, trace: &Path) -> Outcome<String> {
    let storage = server.api().create_storage("large");
    let url = server.url();
    run(Command::new(client)
        .args(["push", "--server", &url, "--storage", &storage])
        .args(["--agent", "bench"])
        .arg(trace))?;
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
