//! Indexing and querying DFTracer files against zcat, DFTracer's own tools and DuckDB.
//!
//! The files are written by `../shared/tools/gen_pfw.py` and kept. `dftracer-utils` and `duckdb`
//! are installed from PyPI into an environment of their own; without them the comparisons with them
//! are left out. DuckDB's times are those of the query alone, ours and DFTracer's of the whole
//! program.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::paired::{Figures, Side, Target, Verdict, alternate, conclude, cpu_seconds};
use super::table::Table;
use crate::failure::{Failure, Outcome};
use crate::options::Options;
use crate::process::{cargo, command, measure, on_path, output, root, run, target};

const PACKAGES: [&str; 2] = ["dftracer-utils==0.0.14", "duckdb"];
const MIB: f64 = 1_048_576.0;

/// A question, in the languages of all three.
struct Question {
    name: &'static str,
    ours: &'static [&'static str],
    /// For `dftracer_view --query`; empty where it has no such question.
    view: &'static str,
    /// Behind `SELECT`, with the table as `t`.
    duckdb: &'static str,
    /// At most this part of the time of `dftracer_view`, and of DuckDB on Parquet.
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
        name: "filter that nothing prunes",
        ours: &["ret == 131072 and dur > 50", "--count"],
        view: "",
        duckdb: "count(*) FROM t WHERE ret = 131072 AND dur > 50",
        view_part: f64::INFINITY,
        duckdb_part: f64::INFINITY,
    },
];

/// Seconds that a group by name may take.
const GROUP_SECONDS: f64 = 0.1;
const PEAK_MIB: f64 = 256.0;

/// `--runs 5 --files 16 --mb 80 --member-mb 16 --data FOLDER`.
pub(crate) fn run_bench(options: &Options) -> Outcome {
    run(&mut cargo(&["build", "--release", "--package", "client"]))?;
    let runs = options.runs()?;
    let bench = Bench::prepare(options)?;
    let mut verdicts = bench.index(runs)?;
    for question in QUESTIONS {
        verdicts.extend(bench.ask(question, runs)?);
    }
    conclude(&verdicts);
    Ok(())
}

struct Bench {
    files: Vec<PathBuf>,
    /// The environment with DFTracer's tools and DuckDB.
    tools: Option<PathBuf>,
    parquet: PathBuf,
}

impl Bench {
    fn prepare(options: &Options) -> Outcome<Bench> {
        let folder = target().join("bench/index");
        let data = PathBuf::from(options.get("data", folder.join("data").display().to_string())?);
        let make = |path: &Path| {
            std::fs::create_dir_all(path).map_err(|source| Failure::File {
                path: path.to_owned(),
                source,
            })
        };
        make(&folder)?;
        make(&data)?;
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
        let tools = folder.join("tools");
        let bench = Bench {
            files: (0..count).map(file).collect(),
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

    fn ours(&self, verb: &str, arguments: &[&str]) -> Command {
        let program = target().join("release/tracehold");
        let mut command = command(&program.display().to_string(), &[verb]);
        command.args(&self.files).args(arguments);
        command
    }

    fn tool(&self, name: &str) -> Option<Command> {
        let program = self.tools.as_ref()?.join("bin").join(name);
        program.exists().then(|| Command::new(program))
    }

    /// The compressed files as a table of DuckDB.
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

    /// Seconds that a statement of DuckDB takes.
    fn duckdb(&self, statement: &str) -> Outcome<f64> {
        let program = "import duckdb, sys, time\nc = duckdb.connect()\n\
                       c.execute('SET enable_progress_bar = false')\nb = time.perf_counter()\n\
                       c.execute(sys.argv[1]).fetchall()\nprint(time.perf_counter() - b)";
        let mut python = self
            .tool("python3")
            .ok_or_else(|| Failure::Run("no DuckDB".into()))?;
        let answer = output(python.args(["-c", program, statement]))?;
        answer.trim().parse().map_err(|_| Failure::Answer {
            command: "duckdb".into(),
            why: answer,
        })
    }

    /// Cost and size of the index.
    fn index(&self, runs: usize) -> Outcome<Vec<Verdict>> {
        let mut peak = 0;
        let mut sides = vec![
            Side {
                name: "tracehold index",
                run: Box::new(|| {
                    let usage = measure(&mut self.ours("index", &["--force"]))?;
                    peak = peak.max(usage.peak_rss);
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
        let bytes = |path: &Path| std::fs::metadata(path).map_or(0.0, |data| data.len() as f64);
        let sidecar = |file: &PathBuf| bytes(&PathBuf::from(format!("{}.idx", file.display())));
        let size: f64 = self.files.iter().map(sidecar).sum();
        let whole: f64 = self.files.iter().map(|file| bytes(file)).sum();
        if let Some(mut index) = self.tool("dftracer_index") {
            let folder = self.files[0].parent().unwrap_or(Path::new("."));
            let usage = measure(index.arg("-d").arg(folder).arg("-f"))?;
            println!("dftracer_index: {:.2} CPU s", cpu_seconds(&usage));
        }
        Ok(vec![
            verdict("index, CPU of zcat", 0.5, figures[0].ratio(&figures[1])),
            verdict("index, part of the compressed size", 0.01, size / whole),
            verdict("index, peak memory in MiB", PEAK_MIB, peak as f64 / MIB),
        ])
    }

    /// Times of one question on every side.
    fn ask(&self, question: &Question, runs: usize) -> Outcome<Vec<Verdict>> {
        let mut sides = vec![Side {
            name: "tracehold query",
            run: Box::new(|| {
                let usage = measure(&mut self.ours("query", question.ours))?;
                Ok(usage.wall.as_secs_f64())
            }),
        }];
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
            for (name, table) in [
                ("DuckDB, Parquet", format!("'{}'", self.parquet.display())),
                ("DuckDB, gzip", self.json()),
            ] {
                let from = format!(" FROM {table} AS t ");
                let statement = format!("SELECT {}", question.duckdb.replace(" FROM t ", &from));
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
    let ours = &figures[0];
    let other = |name: &str| figures.iter().find(|side| side.name == name);
    let mut verdicts = Vec::new();
    for (name, part) in [
        ("dftracer_view", question.view_part),
        ("DuckDB, Parquet", question.duckdb_part),
    ] {
        if let Some(side) = other(name).filter(|_| part.is_finite()) {
            let what = format!("{}, part of {name}", question.name);
            verdicts.push(verdict(what, part, ours.ratio(side)));
        }
    }
    match question.name {
        "group by name" => {
            verdicts.push(verdict("group by name, s", GROUP_SECONDS, ours.median()));
        }
        "filter that nothing prunes" => {
            if let Some(side) = other("DuckDB, gzip") {
                verdicts.push(verdict(
                    "full scan, part of DuckDB on gzip",
                    0.5,
                    ours.ratio(side),
                ));
            }
        }
        _ => {}
    }
    verdicts
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

/// The environment with the tools, installed when it is not there; `None` where that fails.
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
            println!("compared without DFTracer's tools and DuckDB: {failure}");
            return None;
        }
    }
    Some(folder.to_owned())
}
