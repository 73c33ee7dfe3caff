//! A query on a mounted remote storage, against the same query on a downloaded copy.
//!
//! Both are measured as complete programs, from start to exit; the server of the mount is on
//! loopback.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use harness::{Server, Settings};

use super::paired::{Side, Target, Verdict, alternate, conclude};
use super::table::Table;
use crate::failure::{Failure, Outcome, file_failed};
use crate::options::Options;
use crate::process::{dist_client, dist_server, fresh_folder, measure, output, root, run, target};

/// The query returns rows: a count could be computed from the index without fetching data.
const QUESTION: [&str; 1] = ["name == 'rare_event'"];
/// The limits: how much longer the remote query may take, and how much of the data it may transfer.
const TIMES_LOCAL: f64 = 2.0;
const PART_MOVED: f64 = 0.02;
/// Time limit for the server to complete its chunk indexes.
const INDEXES_WITHIN: Duration = Duration::from_secs(120);

/// `--runs 5 --files 4 --mb 80`.
pub(crate) fn run_bench(options: &Options) -> Outcome {
    let runs = options.runs()?;
    let (program, server) = (dist_client()?, dist_server()?);
    let traces = traces(options)?;
    let folder = fresh_folder("bench/mount")?;
    let settings = Settings {
        program: Some(server),
        ..Settings::default()
    };
    let server = Server::start(&folder.join("server"), &settings);
    let bench = Bench { program, server };
    let storage = bench.filled(&traces)?;
    let url = format!("{}/storage/{storage}", bench.server.url());
    let (mounted, copied) = (folder.join("mounted"), folder.join("copied"));
    bench.fetch("mount", &url, &mounted)?;
    bench.fetch("download", &url, &copied)?;
    let query = |folder: &Path| {
        let mut query = bench.command(&["query", "--dir"]);
        query.arg(folder).args(QUESTION);
        query
    };
    let seconds =
        |folder: PathBuf| Box::new(move || Ok(measure(&mut query(&folder))?.wall.as_secs_f64()));
    if output(&mut query(&mounted))? != output(&mut query(&copied))? {
        return Err(Failure::Run(
            "mount and copy give different results".to_owned(),
        ));
    }
    let moved = moved_bytes(&mut query(&mounted))? / data_bytes(&copied)?;
    let mut sides = [
        Side {
            name: "mounted, on loopback",
            run: seconds(mounted),
        },
        Side {
            name: "downloaded",
            run: seconds(copied),
        },
    ];
    let figures = alternate(runs, &mut sides)?;
    println!("{}", Table::of_figures("s", &figures));
    let ratio = figures[0].ratio(&figures[1]);
    conclude(&[
        Verdict::new(
            "mounted, relative to local",
            Target::AtMost(TIMES_LOCAL),
            ratio,
        ),
        Verdict::new(
            "fraction of the data transferred",
            Target::AtMost(PART_MOVED),
            moved,
        ),
    ]);
    Ok(())
}

/// DFTracer files, generated once.
fn traces(options: &Options) -> Outcome<Vec<PathBuf>> {
    let (count, mb): (usize, u64) = (options.get("files", 4)?, options.get("mb", 80)?);
    let folder = target().join("bench/mount-data");
    let file = |number: usize| folder.join(format!("trace-{number}-of-{count}.pfw.gz"));
    if !file(count - 1).exists() {
        std::fs::create_dir_all(&folder).map_err(file_failed(&folder))?;
        let program = root().join("../shared/tools/gen_pfw.py");
        let mut generator = Command::new("python3");
        generator.arg(program).arg(&folder);
        run(generator.args(["--files", &count.to_string(), "--mb", &mb.to_string()]))?;
    }
    Ok((0..count).map(file).collect())
}

struct Bench {
    program: PathBuf,
    server: Server,
}

impl Bench {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(arguments)
            .env("TRACEHOLD_SERVER", self.server.url());
        command
    }

    /// A finalized storage of these files with all its chunk indexes; returns its id.
    fn filled(&self, traces: &[PathBuf]) -> Outcome<String> {
        let mut api = self.server.api();
        let storage = api.create_storage("bench");
        let push = ["push", "--storage", &storage, "--agent", "bench"];
        output(self.command(&push).args(traces))?;
        api.finalize(&storage);
        let begin = Instant::now();
        loop {
            let files = api.files(&storage);
            let count = |wanted: &str| files.iter().filter(|(_, role, _)| role == wanted).count();
            if count("chunk_index") == count("data") {
                return Ok(storage);
            }
            if begin.elapsed() > INDEXES_WITHIN {
                return Err(Failure::Run("chunk indexes are missing".to_owned()));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn fetch(&self, verb: &str, url: &str, folder: &Path) -> Outcome {
        output(self.command(&[verb, url]).arg(folder)).map(drop)
    }
}

/// Bytes that a query transferred from the server, according to `--explain`.
fn moved_bytes(query: &mut Command) -> Outcome<f64> {
    let explained = query.arg("--explain").output();
    let text = explained.map_err(|error| Failure::Run(error.to_string()))?;
    let text = String::from_utf8_lossy(&text.stderr).into_owned();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("bytes transferred: "));
    let number = line.and_then(|number| number.trim().parse().ok());
    number.ok_or_else(|| Failure::Answer {
        command: "tracehold query --explain".into(),
        why: text,
    })
}

/// The total size of the data files in a folder.
#[expect(clippy::cast_precision_loss, reason = "only part of it is printed")]
fn data_bytes(folder: &Path) -> Outcome<f64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder).map_err(file_failed(folder))? {
        let path = entry.map_err(file_failed(folder))?.path();
        if path.extension().is_some_and(|ending| ending == "itdata") {
            bytes += path.metadata().map_err(file_failed(&path))?.len();
        }
    }
    Ok(bytes as f64)
}
