//! Two builds of the programs under the same load in one run: did a change cost anything?
//!
//! Build the older version elsewhere (`git worktree`), with the same profile, and give the folder
//! of its programs with `--before`.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use super::ingest::{self, LoadOptions};
use super::paired::{Figures, Side, Target, Verdict, alternate, conclude};
use super::range::{self, RangeLoad};
use super::table::Table;
use super::{ctf, index};
use crate::failure::{Failure, Outcome};
use crate::install;
use crate::options::Options;
use crate::process::{command, dist_client, dist_server, fresh_folder, measure};
use harness::{Body, Pace, Server, Settings};

/// How much worse than the older programs the newer ones may be.
const RATIO_MIN: f64 = 0.97;

const MIB: f64 = (1_u64 << 20) as f64;

/// The programs of one version.
struct Version {
    name: &'static str,
    server: PathBuf,
    client: PathBuf,
}

impl Version {
    /// No figures yet.
    fn figures(&self) -> Figures {
        Figures {
            name: self.name.to_owned(),
            runs: Vec::new(),
        }
    }
}

/// `--before FOLDER [--runs 7 --seconds 3 --only ingest|range|ctf|index]`.
pub(super) fn run_bench(options: &Options) -> Outcome {
    let before = PathBuf::from(options.get("before", String::new())?);
    let versions = [
        Version {
            name: "after",
            server: dist_server()?,
            client: dist_client()?,
        },
        Version {
            name: "before",
            server: before.join("traceholdd"),
            client: before.join("tracehold"),
        },
    ];
    for program in versions
        .iter()
        .flat_map(|side| [&side.server, &side.client])
    {
        if !program.is_file() {
            return Err(Failure::Usage(format!(
                "{} does not exist: give the folder of the older programs with --before",
                program.display()
            )));
        }
    }
    let only = options.get("only", String::new())?;
    let is_chosen = |name: &str| only.is_empty() || only == name;
    let mut verdicts = Vec::new();
    if is_chosen("ingest") {
        verdicts.extend(pushes(options, &versions)?);
    }
    if is_chosen("range") {
        verdicts.extend(ranges(options, &versions)?);
    }
    if is_chosen("ctf") {
        verdicts.push(decoding(options, &versions)?);
    }
    if is_chosen("index") {
        verdicts.push(indexing(options, &versions)?);
    }
    conclude(&verdicts);
    Ok(())
}

/// Durable pushes: single packets, packets in batches, small packets; the rate, and the CPU time of
/// the server.
fn pushes(options: &Options, versions: &[Version; 2]) -> Outcome<Vec<Verdict>> {
    let mut verdicts = Vec::new();
    for (what, body) in [
        ("64 KiB packets, 1 a request", Body::One(64 << 10)),
        ("64 KiB packets, 16 a request", Body::Many(64 << 10, 16)),
        ("1 KiB packets, 256 a request", Body::Many(1 << 10, 256)),
    ] {
        let (rates, costs) = pushes_of(options, versions, body)?;
        verdicts.push(faster_is_more(what, "MiB/s", &rates));
        verdicts.push(less_is_better(what, "CPU s/GiB", &costs));
    }
    Ok(verdicts)
}

/// Half of the runs with the older server started first and half with the newer: where a server's
/// files are on the disk differs by more than the versions do.
fn pushes_of(
    options: &Options,
    versions: &[Version; 2],
    body: Body,
) -> Outcome<(Vec<Figures>, Vec<Figures>)> {
    let load = LoadOptions::parse(options)?;
    let mut rates: Vec<Figures> = versions.iter().map(|version| version.figures()).collect();
    let mut costs = rates.clone();
    for order in [[0, 1], [1, 0]] {
        let folder = fresh_folder("bench/versions-ingest")?;
        let mut parties = order.map(|side| {
            let version = &versions[side];
            let folder = folder.join(version.name);
            let party = ingest::Party::start(&version.server, &folder, "", load);
            (side, party)
        });
        parties.sort_by_key(|(side, _)| *side);
        let costs_of = [const { RefCell::new(Vec::new()) }; 2];
        let sides = parties
            .iter()
            .zip(&costs_of)
            .map(|((side, party), costs)| Side {
                name: versions[*side].name,
                run: Box::new(move || {
                    let measured = party.measure(body, Pace::Full)?;
                    costs.borrow_mut().push(measured.cpu_per_gib());
                    Ok(measured.report.bytes_per_second() / MIB)
                }),
            });
        let runs = options.runs()?.div_ceil(2);
        let figures = alternate(runs, &mut sides.collect::<Vec<_>>())?;
        for (side, figures) in figures.into_iter().enumerate() {
            rates[side].runs.extend(figures.runs);
            // The first run warms the server and does not count.
            costs[side].runs.extend(&costs_of[side].borrow()[1..]);
        }
    }
    Ok((rates, costs))
}

/// Ranges of a finalized file, single and multiple.
fn ranges(options: &Options, versions: &[Version; 2]) -> Outcome<Vec<Verdict>> {
    install::ensure(range::TOOLS)?;
    let folder = fresh_folder("bench/versions-range")?;
    let mut served = Vec::new();
    for version in versions {
        let settings = Settings {
            program: Some(version.server.clone()),
            ..Settings::default()
        };
        let server = Server::start(&folder.join(version.name), &settings);
        let file = range::finalized_file(&mut server.api());
        let party = range::Party::of(&server, &file);
        served.push((server, party, file.length));
    }
    let seconds = options.get("seconds", 3)?;
    // Data files of two versions have different lengths; both servers get the same ranges.
    let lengths = served.iter().map(|(_, _, length)| *length);
    let length = lengths.min().unwrap_or(0);
    let mut verdicts = Vec::new();
    for (what, load) in [
        (
            "64 KiB single range",
            RangeLoad::single(&folder, length, seconds, 16)?,
        ),
        (
            "16 x 4 KiB multi-range",
            RangeLoad::multiple(&folder, length, seconds, 16)?,
        ),
    ] {
        let load = &load;
        let sides = versions.iter().zip(&served).map(|(version, served)| Side {
            name: version.name,
            run: Box::new(move || Ok(load.measure(&served.1)?.rate)),
        });
        let figures = alternate(options.runs()?, &mut sides.collect::<Vec<_>>())?;
        verdicts.push(faster_is_more(what, "requests/s", &figures));
    }
    Ok(verdicts)
}

/// CPU time of decoding a CTF trace to text.
fn decoding(options: &Options, versions: &[Version; 2]) -> Outcome<Verdict> {
    install::ensure(ctf::TOOLS)?;
    let trace = crate::process::target().join("bench/ctf-trace");
    let folder = ctf::recorded(&trace)?;
    let run = |version: &Version| cpu_seconds(&version.client, &["decode".as_ref(), &folder]);
    let figures = alternate(options.runs()?, &mut timed(versions, &run))?;
    Ok(less_is_better("decode of a CTF trace", "CPU s", &figures))
}

/// CPU time of indexing DFTracer files.
fn indexing(options: &Options, versions: &[Version; 2]) -> Outcome<Verdict> {
    let files = index::files(options)?;
    let run = |version: &Version| {
        let mut arguments: Vec<&Path> = vec!["index".as_ref(), "--force".as_ref()];
        arguments.extend(files.iter().map(PathBuf::as_path));
        cpu_seconds(&version.client, &arguments)
    };
    let figures = alternate(options.runs()?, &mut timed(versions, &run))?;
    Ok(less_is_better("index of DFTracer files", "CPU s", &figures))
}

fn timed<'a>(
    versions: &'a [Version; 2],
    run: &'a dyn Fn(&Version) -> Outcome<f64>,
) -> Vec<Side<'a>> {
    versions
        .iter()
        .map(|version| Side {
            name: version.name,
            run: Box::new(move || run(version)),
        })
        .collect()
}

/// The output of the program is discarded, so that only its own work counts.
fn cpu_seconds(program: &Path, arguments: &[&Path]) -> Outcome<f64> {
    let mut shell = command("sh", &["-c", "exec \"$0\" \"$@\" >/dev/null"]);
    shell.arg(program).args(arguments);
    Ok(measure(&mut shell)?.cpu.as_secs_f64())
}

fn faster_is_more(what: &str, unit: &str, figures: &[Figures]) -> Verdict {
    println!("{what}");
    print!("{}", Table::of_figures(unit, figures));
    let ratio = figures[0].ratio(&figures[1]);
    Verdict::new(
        format!("{what}, after / before"),
        Target::AtLeast(RATIO_MIN),
        ratio,
    )
}

fn less_is_better(what: &str, unit: &str, figures: &[Figures]) -> Verdict {
    println!("{what}");
    print!("{}", Table::of_figures(unit, figures));
    let ratio = figures[0].ratio(&figures[1]);
    let target = Target::AtMost(1.0 / RATIO_MIN);
    Verdict::new(format!("CPU of {what}, after / before"), target, ratio)
}
