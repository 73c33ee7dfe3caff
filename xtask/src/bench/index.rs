//! Indexing and querying DFTracer files against zcat, DFTracer's own tools and DuckDB.
//!
//! The files are written by `../shared/tools/gen_pfw.py` and reused. `dftracer-utils` and `duckdb`
//! are installed from PyPI into a virtual environment; if that fails, their comparisons are
//! skipped.
//!
//! What a time contains: Tracehold and DFTracer's tools are measured as complete programs, from
//! start to exit, including opening all files and sidecars. "DuckDB, query alone" is the first
//! query of a process that has started, loaded DuckDB and connected, so it only opens the Parquet
//! file or the gzip files; Tracehold is compared with this figure. "DuckDB, program" includes the
//! start of Python and DuckDB. "start" is Tracehold with nothing to do. All files are in memory:
//! each program runs once before it is measured.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::paired::{Figures, Side, Target, Verdict, alternate, conclude, cpu_seconds, median};
use super::table::Table;
use crate::failure::{Failure, Outcome};
use crate::options::Options;
use crate::process::{cargo, command, measure, on_path, output, root, run, target};

const PACKAGES: [&str; 2] = ["dftracer-utils==0.0.14", "duckdb"];
const MIB: f64 = 1_048_576.0;
const OURS: &str = "tracehold query";
const OURS_COLUMNS: &str = "tracehold query, columns";
const PARQUET: &str = "DuckDB on Parquet, query alone";
const GZIP: &str = "DuckDB on gzip, query alone";
/// How many times faster two cores must index than one, allowing for an uneven number of files.
const SPEED_UP: f64 = 1.6;

/// A query, in the languages of all three programs.
struct Question {
    name: &'static str,
    ours: &'static [&'static str],
    /// For `dftracer_view --query`; empty if it has no such query.
    view: &'static str,
    /// Follows `SELECT`; the table is `t`.
    duckdb: &'static str,
    /// At most this fraction of the time of `dftracer_view`, and of DuckDB's query on Parquet.
    view_part: f64,
    duckdb_part: f64,
}

const QUESTIONS: &[Question] = &[
    Question {
        name: "rare name",
        ours: &["name == 'rare_event'", "--count"],
        view: "name == \"rare_event\"",
        duckdb: "count(*) FROM t WHERE name = 'rare_event'",
        view_part: 0.3,
        duckdb_part: 1.0,
    },
    Question {
        name: "rare file hash",
        ours: &["fhash == '9491d01b1349b1d6'", "--count"],
        view: "fhash == \"9491d01b1349b1d6\"",
        duckdb: "count(*) FROM t WHERE fhash = '9491d01b1349b1d6'",
        view_part: 0.3,
        duckdb_part: 1.0,
    },
    Question {
        name: "window of a second",
        ours: &[
            "ts >= 1795226030000000 and ts < 1795226031000000",
            "--count",
        ],
        view: "ts >= 1795226030000000 and ts < 1795226031000000",
        duckdb: "count(*) FROM t WHERE ts >= 1795226030000000 AND ts < 1795226031000000",
        view_part: 0.3,
        duckdb_part: 1.0,
    },
    Question {
        name: "long events",
        ours: &["dur > 5000000", "--count"],
        view: "dur > 5000000",
        duckdb: "count(*) FROM t WHERE dur > 5000000",
        view_part: f64::INFINITY,
        duckdb_part: 2.0,
    },
    Question {
        name: "group by name",
        ours: &["--group-by", "name"],
        view: "",
        duckdb: "name, count(*), sum(dur), min(dur), max(dur) FROM t GROUP BY name",
        view_part: f64::INFINITY,
        duckdb_part: f64::INFINITY,
    },
    Question {
        name: "filter without pruning",
        ours: &["ret == 131072 and dur > 50", "--count"],
        view: "",
        duckdb: "count(*) FROM t WHERE ret = 131072 AND dur > 50",
        view_part: f64::INFINITY,
        duckdb_part: f64::INFINITY,
    },
];

/// Time limit for grouping by name, in seconds.
const GROUP_SECONDS: f64 = 0.1;
const PEAK_MIB: f64 = 256.0;

/// `--runs 5 --files 16 --mb 80 --member-mb 16 --data FOLDER`.
pub(crate) fn run_bench(options: &Options) -> Outcome {
    run(&mut cargo(&[
        "build",
        "--profile",
        "dist",
        "--package",
        "client",
    ]))?;
    let runs = options.runs()?;
    let bench = Bench::prepare(options)?;
    let mut verdicts = bench.index(runs)?;
    for question in QUESTIONS {
        verdicts.extend(bench.compare_query(question, runs)?);
    }
    conclude(&verdicts);
    Ok(())
}

/// The files of DFTracer lines, generated unless they are there.
pub(super) fn files(options: &Options) -> Outcome<Vec<PathBuf>> {
    let default = target().join("bench/index/data").display().to_string();
    let data = PathBuf::from(options.get("data", default)?);
    make_folder(&data)?;
    let count: usize = options.get("files", 16)?;
    let file = |number: usize| data.join(format!("trace-{number}-of-{count}.pfw.gz"));
    if !file(count - 1).exists() {
        let (mb, member): (u64, u64) = (options.get("mb", 80)?, options.get("member-mb", 16)?);
        let program = root().join("../shared/tools/gen_pfw.py");
        let numbers = [count.to_string(), mb.to_string(), member.to_string()];
        run(Command::new("python3").arg(program).arg(&data).args([
            "--files",
            &numbers[0],
            "--mb",
            &numbers[1],
            "--member-mb",
            &numbers[2],
        ]))?;
    }
    Ok((0..count).map(file).collect())
}

fn make_folder(path: &Path) -> Outcome {
    std::fs::create_dir_all(path).map_err(|source| Failure::File {
        path: path.to_owned(),
        source,
    })
}

struct Bench {
    files: Vec<PathBuf>,
    /// The same files (hard links), indexed with columns.
    with_columns: Vec<PathBuf>,
    /// The environment with DFTracer's tools and DuckDB.
    tools: Option<PathBuf>,
    parquet: PathBuf,
}

impl Bench {
    fn prepare(options: &Options) -> Outcome<Bench> {
        let folder = target().join("bench/index");
        let files = files(options)?;
        let data = files[0].parent().unwrap_or(&folder).to_owned();
        // Not in the data folder: DFTracer's tools read every file below the folder that they are
        // given.
        let linked = data.with_file_name("columns");
        make_folder(&linked)?;
        let tools = folder.join("tools");
        let bench = Bench {
            with_columns: files
                .iter()
                .map(|file| link(file, &linked))
                .collect::<Outcome<_>>()?,
            files,
            tools: install(&tools),
            parquet: data.join("copy.parquet"),
        };
        if bench.tools.is_some() && !bench.parquet.exists() {
            bench.duckdb(&format!(
                "COPY (SELECT * FROM {}) TO '{}'",
                bench.json(),
                bench.parquet.display()
            ))?;
        }
        Ok(bench)
    }

    fn ours(&self, verb: &str, files: &[PathBuf], arguments: &[&str]) -> Command {
        let mut command = tracehold(&[verb]);
        command.args(files).args(arguments);
        command
    }

    fn tool(&self, name: &str) -> Option<Command> {
        let program = self.tools.as_ref()?.join("bin").join(name);
        program.exists().then(|| Command::new(program))
    }

    /// The compressed files as a DuckDB table.
    fn json(&self) -> String {
        let files: Vec<String> = self
            .files
            .iter()
            .map(|file| format!("'{}'", file.display()))
            .collect();
        format!(
            "(SELECT name, cat, pid, tid, ts, dur, args->>'fhash' AS fhash, \
             TRY_CAST(args->>'ret' AS BIGINT) AS ret FROM read_json([{}], \
             format='newline_delimited', ignore_errors=true, columns={{name:'VARCHAR', \
             cat:'VARCHAR', pid:'BIGINT', tid:'BIGINT', ts:'BIGINT', dur:'BIGINT', ph:'BIGINT', \
             args:'JSON'}}) WHERE ph <> 4)",
            files.join(", ")
        )
    }

    /// The duration of a DuckDB statement, in seconds.
    fn duckdb(&self, statement: &str) -> Outcome<f64> {
        let answer = output(&mut self.duckdb_program(statement)?)?;
        answer.trim().parse().map_err(|_| Failure::Answer {
            command: "duckdb".into(),
            why: answer,
        })
    }

    /// A program that runs one DuckDB statement and prints its duration in seconds.
    fn duckdb_program(&self, statement: &str) -> Outcome<Command> {
        let program = "import duckdb, sys, time\nc = duckdb.connect()\n\
                       c.execute('SET enable_progress_bar = false')\nb = time.perf_counter()\n\
                       c.execute(sys.argv[1]).fetchall()\nprint(time.perf_counter() - b)";
        let mut python = self
            .tool("python3")
            .ok_or_else(|| Failure::Run("no DuckDB".into()))?;
        python.args(["-c", program, statement]);
        Ok(python)
    }

    /// Cost and size of the index.
    fn index(&self, runs: usize) -> Outcome<Vec<Verdict>> {
        let mut peak = 0;
        let mut walls = Vec::new();
        let mut sides = vec![
            Side {
                name: "tracehold index",
                run: Box::new(|| {
                    let usage = measure(&mut self.ours("index", &self.files, &["--force"]))?;
                    peak = peak.max(usage.peak_rss);
                    walls.push(usage.wall.as_secs_f64());
                    Ok(cpu_seconds(&usage))
                }),
            },
            Side {
                name: "tracehold index --columns",
                run: Box::new(|| {
                    let arguments = ["--force", "--columns"];
                    let usage = measure(&mut self.ours("index", &self.with_columns, &arguments))?;
                    Ok(cpu_seconds(&usage))
                }),
            },
            Side {
                name: "zcat",
                run: Box::new(|| {
                    let zcat = format!("zcat {} > /dev/null", quoted(&self.files));
                    Ok(cpu_seconds(&measure(
                        Command::new("sh").args(["-c", &zcat]),
                    )?))
                }),
            },
        ];
        let figures = alternate(runs, &mut sides)?;
        drop(sides);
        println!("{}", Table::of_figures("CPU s", &figures));
        let size = bytes(self.files.iter().map(|file| sidecar(file, "idx")));
        let columns = bytes(self.with_columns.iter().map(|file| sidecar(file, "cidx")));
        let total = bytes(self.files.iter().cloned());
        println!("columns: {:.3} of the compressed size", columns / total);
        if let Some(mut index) = self.tool("dftracer_index") {
            let folder = self.files[0].parent().unwrap_or(Path::new("."));
            let usage = measure(index.arg("-d").arg(folder).arg("-f"))?;
            println!("dftracer_index: {:.2} CPU s", cpu_seconds(&usage));
        }
        let mut verdicts = vec![
            verdict("index, CPU of zcat", 0.5, figures[0].ratio(&figures[2])),
            verdict("index, fraction of the compressed size", 0.01, size / total),
            verdict("index, peak memory in MiB", PEAK_MIB, peak as f64 / MIB),
        ];
        verdicts.extend(self.scaling(runs, median(&walls))?);
        Ok(verdicts)
    }

    /// How much faster two cores index than one.
    fn scaling(&self, runs: usize, two_cores: f64) -> Outcome<Option<Verdict>> {
        if !on_path("taskset") || std::thread::available_parallelism().map_or(1, usize::from) != 2 {
            return Ok(None);
        }
        let mut walls = Vec::new();
        for _ in 0..runs {
            let mut one = Command::new("taskset");
            one.args(["-c", "0"]).arg(program()).arg("index");
            one.args(&self.files).arg("--force");
            walls.push(measure(&mut one)?.wall.as_secs_f64());
        }
        let faster = median(&walls) / two_cores;
        let target = Target::AtLeast(SPEED_UP);
        Ok(Some(Verdict::new(
            "index, speedup with two cores",
            target,
            faster,
        )))
    }

    /// Times of one query with every program.
    fn compare_query(&self, question: &Question, runs: usize) -> Outcome<Vec<Verdict>> {
        let ours = |files| {
            move || {
                let usage = measure(&mut self.ours("query", files, question.ours))?;
                Ok(usage.wall.as_secs_f64())
            }
        };
        let mut sides = vec![
            Side {
                name: OURS,
                run: Box::new(ours(&self.files)),
            },
            Side {
                name: OURS_COLUMNS,
                run: Box::new(ours(&self.with_columns)),
            },
            Side {
                name: "tracehold, start",
                run: Box::new(|| Ok(measure(&mut tracehold(&["--version"]))?.wall.as_secs_f64())),
            },
        ];
        if let Some(folder) = self.files[0].parent().filter(|_| !question.view.is_empty())
            && self.tool("dftracer_view").is_some()
        {
            sides.push(Side {
                name: "dftracer_view",
                run: Box::new(move || {
                    let tool = self.tool("dftracer_view");
                    let mut view = tool.ok_or_else(|| Failure::Run("no dftracer_view".into()))?;
                    let view = view.arg("-d").arg(folder).args(["--query", question.view]);
                    Ok(measure(view)?.wall.as_secs_f64())
                }),
            });
        }
        if self.tools.is_some() {
            let statement = |table: &str| {
                let from = format!(" FROM {table} AS t ");
                format!("SELECT {}", question.duckdb.replace(" FROM t ", &from))
            };
            let parquet = statement(&format!("'{}'", self.parquet.display()));
            let (table, gzip) = (parquet.clone(), statement(&self.json()));
            sides.push(Side {
                name: "DuckDB on Parquet, program",
                run: Box::new(move || {
                    let usage = measure(&mut self.duckdb_program(&table)?)?;
                    Ok(usage.wall.as_secs_f64())
                }),
            });
            for (name, statement) in [(PARQUET, parquet), (GZIP, gzip)] {
                sides.push(Side {
                    name,
                    run: Box::new(move || self.duckdb(&statement)),
                });
            }
        }
        let figures = alternate(runs, &mut sides)?;
        drop(sides);
        println!("{}:\n{}", question.name, Table::of_figures("s", &figures));
        Ok(judge(question, &figures))
    }
}

fn judge(question: &Question, figures: &[Figures]) -> Vec<Verdict> {
    let other = |name: &str| figures.iter().find(|side| side.name == name);
    let mut verdicts = Vec::new();
    for ours in figures
        .iter()
        .filter(|side| [OURS, OURS_COLUMNS].contains(&&*side.name))
    {
        let with = if ours.name == OURS { "" } else { ", columns" };
        for (name, part) in [
            ("dftracer_view", question.view_part),
            (PARQUET, question.duckdb_part),
        ] {
            if let Some(side) = other(name).filter(|_| part.is_finite()) {
                let what = format!("{}{with}, relative to {name}", question.name);
                verdicts.push(verdict(what, part, ours.ratio(side)));
            }
        }
        match question.name {
            "group by name" => {
                let what = format!("group by name{with}, s");
                verdicts.push(verdict(what, GROUP_SECONDS, ours.median()));
            }
            "filter without pruning" => {
                if let Some(side) = other(GZIP) {
                    let what = format!("full scan{with}, relative to {GZIP}");
                    verdicts.push(verdict(what, 0.5, ours.ratio(side)));
                }
            }
            _ => {}
        }
    }
    verdicts
}

fn program() -> PathBuf {
    target().join("dist/tracehold")
}

fn tracehold(arguments: &[&str]) -> Command {
    command(&program().display().to_string(), arguments)
}

/// A hard link to a file in another folder of the same disk.
fn link(file: &Path, folder: &Path) -> Outcome<PathBuf> {
    let link = folder.join(file.file_name().unwrap_or_default());
    match std::fs::hard_link(file, &link) {
        Err(source) if source.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(Failure::File { path: link, source })
        }
        _ => Ok(link),
    }
}

fn sidecar(file: &Path, kind: &str) -> PathBuf {
    PathBuf::from(format!("{}.{kind}", file.display()))
}

/// The total size of the files that exist.
fn bytes(files: impl Iterator<Item = PathBuf>) -> f64 {
    let len = |file: PathBuf| std::fs::metadata(file).map_or(0, |data| data.len());
    files.map(len).sum::<u64>() as f64
}

fn verdict(what: impl Into<String>, at_most: f64, measured: f64) -> Verdict {
    Verdict::new(what, Target::AtMost(at_most), measured)
}

fn quoted(files: &[PathBuf]) -> String {
    files
        .iter()
        .map(|file| format!("'{}'", file.display()))
        .collect::<Vec<_>>()
        .join(" ")
}

/// The environment with the tools, installed if missing; `None` if the installation fails.
fn install(folder: &Path) -> Option<PathBuf> {
    let python = folder.join("bin/python3");
    if !python.exists() {
        if !on_path("python3") {
            return None;
        }
        let made = run(Command::new("python3").args(["-m", "venv"]).arg(folder));
        let installed = made.and_then(|()| {
            run(Command::new(&python)
                .args(["-m", "pip", "install", "-q"])
                .args(PACKAGES))
        });
        if let Err(failure) = installed {
            println!("DFTracer's tools and DuckDB are skipped: {failure}");
            return None;
        }
    }
    Some(folder.to_owned())
}
