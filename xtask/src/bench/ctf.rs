//! Decoding a real LTTng-UST trace, against Babeltrace 2.
//!
//! The reader to beat is yactfr, which no package manager provides. It took 0.55 of the CPU time of
//! Debian's `babeltrace2 -o dummy` on such a trace, so this is what the figures are compared with.

use std::path::{Path, PathBuf};

use super::paired::{Figures, Side, Target, Verdict, alternate, conclude, cpu_seconds};
use super::table::Table;
use crate::failure::{Failure, Outcome};
use crate::install::{self, Origin, Tool};
use crate::options::Options;
use crate::process::{cargo, command, measure, root, run, target};

pub(super) const TOOLS: &[Tool] = &[
    Tool {
        program: "babeltrace2",
        from: Origin::Apt(&["babeltrace2"]),
        needed_for: "comparison",
    },
    Tool {
        program: "lttng",
        from: Origin::Apt(&["lttng-tools", "liblttng-ust-dev", "gcc"]),
        needed_for: "recording the trace",
    },
];

const YACTFR_OF_BABELTRACE: f64 = 0.55;
const ELEMENTS_RATIO_MIN: f64 = 3.0;
const EVENTS_RATIO_MIN: f64 = 6.0;
const TIME_AND_NAME_PER_SECOND_MIN: f64 = 20e6;
const THREADS_RATIO_MIN: f64 = 1.8;
const TEXT_RATIO_MIN: f64 = 8.0;
const PEAK_MIB_MAX: f64 = 32.0;
const LAST_MILLISECOND_MAX: f64 = 50.0;

/// Tracehold's name in comparisons of two programs.
const OURS: &str = "tracehold decode";

/// `--trace FOLDER` uses a recorded trace, `--text no` skips the comparison of text output.
pub(super) fn run_bench(options: &Options) -> Outcome {
    install::ensure(TOOLS)?;
    let default = target().join("bench/ctf-trace");
    let trace: PathBuf = options.get("trace", default.display().to_string())?.into();
    let folder = recorded(&trace)?;
    run(&mut cargo(&[
        "build",
        "--profile",
        "dist",
        "-p",
        "ctf",
        "--example",
        "speed",
    ]))?;
    let mut verdicts = Vec::new();
    decoding(options, &folder, &mut verdicts)?;
    threads(options, &folder, &mut verdicts)?;
    if options.get("text", "yes".to_owned())? == "yes" {
        run(&mut cargo(&["build", "--profile", "dist", "-p", "client"]))?;
        text(options, &folder, &mut verdicts)?;
        last_millisecond(options, &folder, &mut verdicts)?;
    }
    conclude(&verdicts);
    Ok(())
}

/// The folder of the trace in `trace`, which is recorded if it does not exist.
pub(super) fn recorded(trace: &Path) -> Outcome<PathBuf> {
    record(trace)?;
    trace_folder(trace).ok_or_else(|| no_trace(trace))
}

/// Records 4.8 million events in 350 MB, unless the trace exists.
fn record(trace: &Path) -> Outcome {
    if trace_folder(trace).is_some() {
        return Ok(());
    }
    let generator = root().join("../shared/tools/lttng/gen.sh");
    if !generator.is_file() {
        return Err(no_trace(trace));
    }
    let generator = generator.display().to_string();
    run(&mut command(
        "bash",
        &[&generator, &trace.display().to_string()],
    ))
}

fn no_trace(trace: &Path) -> Failure {
    Failure::Run(format!(
        "{} contains no trace: name one with --trace FOLDER",
        trace.display()
    ))
}

/// The folder with the metadata, at any depth.
fn trace_folder(folder: &Path) -> Option<PathBuf> {
    if folder.join("metadata").is_file() {
        return Some(folder.to_owned());
    }
    let mut entries: Vec<PathBuf> = std::fs::read_dir(folder)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    entries.sort();
    entries
        .iter()
        .filter(|path| path.is_dir())
        .find_map(|path| trace_folder(path))
}

/// The decoder, on mapped files as in yactfr, or on files read in pieces.
fn ours(folder: &Path, mode: &str, threads: &str, input: &str) -> std::process::Command {
    let program = target().join("dist/examples/speed").display().to_string();
    let folder = folder.display().to_string();
    command(&program, &[&folder, mode, threads, input])
}

/// The memory limit in addition to the input, which is therefore read in pieces.
fn peak_memory(folder: &Path) -> Outcome<u64> {
    let mut peak = 0;
    for mode in ["elements", "events", "time"] {
        let usage = measure(&mut ours(folder, mode, "1", "read"))?;
        peak = peak.max(usage.peak_rss);
    }
    Ok(peak)
}

fn decoding(options: &Options, folder: &Path, verdicts: &mut Vec<Verdict>) -> Outcome {
    let path = folder.display().to_string();
    let events = std::cell::Cell::new(0.0);
    let side = |name, mode: &'static str| Side {
        name,
        run: Box::new(|| {
            let usage = measure(&mut ours(folder, mode, "1", "mapped"))?;
            let count = usage
                .stdout
                .split(' ')
                .next()
                .and_then(|count| count.parse().ok());
            events.set(count.unwrap_or(f64::NAN));
            Ok(cpu_seconds(&usage))
        }),
    };
    let mut sides = [
        side("elements", "elements"),
        side("events, every field", "events"),
        side("events, time and name", "time"),
        Side {
            name: "babeltrace2 -o dummy",
            run: Box::new(|| {
                let dummy = measure(&mut command("babeltrace2", &["-o", "dummy", &path]))?;
                Ok(cpu_seconds(&dummy))
            }),
        },
    ];
    let figures = alternate(options.runs()?, &mut sides)?;
    drop(sides);
    print!("{}", Table::of_figures("CPU s", &figures));
    let times = |ours: &Figures| YACTFR_OF_BABELTRACE * figures[3].ratio(ours);
    let per_second = events.get() / figures[2].median();
    let mib = peak_memory(folder)? as f64 / f64::from(1 << 20);
    verdicts.extend([
        Verdict::new(
            "elements, times yactfr",
            Target::AtLeast(ELEMENTS_RATIO_MIN),
            times(&figures[0]),
        ),
        Verdict::new(
            "events, times yactfr",
            Target::AtLeast(EVENTS_RATIO_MIN),
            times(&figures[1]),
        ),
        Verdict::new(
            "time and name, events per CPU second",
            Target::AtLeast(TIME_AND_NAME_PER_SECOND_MIN),
            per_second,
        ),
        Verdict::new("peak memory, MiB", Target::AtMost(PEAK_MIB_MAX), mib),
    ]);
    Ok(())
}

fn threads(options: &Options, folder: &Path, verdicts: &mut Vec<Verdict>) -> Outcome {
    let side = |name, threads: &'static str| Side {
        name,
        run: Box::new(move || {
            Ok(measure(&mut ours(folder, "events", threads, "mapped"))?
                .wall
                .as_secs_f64())
        }),
    };
    let figures = alternate(
        options.runs()?,
        &mut [side("one thread", "1"), side("two", "2")],
    )?;
    print!("{}", Table::of_figures("wall s", &figures));
    verdicts.push(Verdict::new(
        "two threads, times one",
        Target::AtLeast(THREADS_RATIO_MIN),
        figures[0].ratio(&figures[1]),
    ));
    Ok(())
}

fn text(options: &Options, folder: &Path, verdicts: &mut Vec<Verdict>) -> Outcome {
    let peak = std::cell::Cell::new(0);
    let highest = &peak;
    let side = |name: &'static str, script: String| Side {
        name,
        // The text is longer than the trace, so it is not stored.
        run: Box::new(move || {
            let mut shell = command("sh", &["-c", &script]);
            let usage = measure(shell.env("TZ", "UTC"))?;
            if name == OURS {
                highest.set(usage.peak_rss.max(highest.get()));
            }
            Ok(cpu_seconds(&usage))
        }),
    };
    let path = folder.display();
    let decode = format!("exec {} > /dev/null", decode_text(folder));
    let babeltrace = format!("babeltrace2 --clock-gmt '{path}' > /dev/null");
    let mut sides = [side(OURS, decode), side("babeltrace2", babeltrace)];
    let figures = alternate(options.runs()?, &mut sides)?;
    drop(sides);
    print!("{}", Table::of_figures("CPU s", &figures));
    verdicts.push(Verdict::new(
        "text, times babeltrace2",
        Target::AtLeast(TEXT_RATIO_MIN),
        figures[1].ratio(&figures[0]),
    ));
    verdicts.push(Verdict::new(
        "peak memory of the text, MiB",
        Target::AtMost(PEAK_MIB_MAX),
        peak.get() as f64 / f64::from(1 << 20),
    ));
    Ok(())
}

fn decode_text(folder: &Path) -> String {
    let program = target().join("dist/tracehold");
    format!(
        "'{}' decode '{}' --format text",
        program.display(),
        folder.display()
    )
}

/// The events of the last millisecond, by wall time, since a user waits for them.
fn last_millisecond(options: &Options, folder: &Path, verdicts: &mut Vec<Verdict>) -> Outcome {
    let end = measure(&mut ours(folder, "end", "1", "read"))?.stdout;
    let end: i64 = end.trim().parse().map_err(|_| no_trace(folder))?;
    let script = format!("{} --from {} | wc -l", decode_text(folder), end - 1_000_000);
    let lines = std::cell::Cell::new(0_u64);
    let side = Side {
        name: "the last millisecond",
        run: Box::new(|| {
            let usage = measure(&mut command("sh", &["-c", &script]))?;
            lines.set(usage.stdout.trim().parse().unwrap_or_default());
            Ok(usage.wall.as_secs_f64() * 1e3)
        }),
    };
    let figures = alternate(options.runs()?, &mut [side])?;
    print!("{}", Table::of_figures("wall ms", &figures));
    println!("{} events in the last millisecond", lines.get());
    verdicts.push(Verdict::new(
        "the last millisecond, ms",
        Target::AtMost(LAST_MILLISECOND_MAX),
        figures[0].median(),
    ));
    Ok(())
}
