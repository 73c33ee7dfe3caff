//! All messages with their properties, compared with the output of Babeltrace 2.0.

use super::corpus::corpus;
use super::trace_folders;
use crate::{DetailsOptions, TimeWindow, TraceFolder, WriteOptions, write_details};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The text of `sink.text.details`; `None` if the program is missing or refuses the trace.
fn theirs(path: &Path, parameters: &str, window: &[String]) -> Option<Vec<u8>> {
    let mut command = Command::new("babeltrace2");
    command
        .args(window)
        .arg(path)
        .args(["-c", "sink.text.details"]);
    if !parameters.is_empty() {
        command.args(["-p", parameters]);
    }
    let Ok(output) = command.env("TZ", "UTC").output() else {
        println!("skipped: babeltrace2 is not installed");
        return None;
    };
    output.status.success().then_some(output.stdout)
}

fn ours(path: &Path, parameters: &str, how: WriteOptions) -> Result<Vec<u8>, String> {
    let mut traces = Vec::new();
    for folder in trace_folders(path) {
        traces.push(TraceFolder::open(&folder).map_err(|error| error.to_string())?);
    }
    let mut options = DetailsOptions::default();
    for parameter in parameters.split(',').filter(|text| !text.is_empty()) {
        let (name, value) = parameter.split_once('=').unwrap();
        assert!(options.set(name, value == "yes"), "{name}");
    }
    let mut text = Vec::new();
    let written = write_details(&traces, options, how, &mut text);
    let written = written.map_err(|error| error.to_string())?;
    assert!(written.faults.is_empty(), "{:?}", written.faults);
    Ok(text)
}

/// What differs, if both can read the trace; the outer `None` if Babeltrace cannot.
fn difference(path: &Path, parameters: &str) -> Option<Option<String>> {
    let theirs = theirs(path, parameters, &[])?;
    Some(match ours(path, parameters, WriteOptions::default()) {
        Ok(ours) if ours == theirs => None,
        Ok(ours) => {
            let (ours, theirs) = (
                String::from_utf8_lossy(&ours),
                String::from_utf8_lossy(&theirs),
            );
            let mut lines = ours.lines().zip(theirs.lines());
            let differ = lines.position(|(a, b)| a != b);
            let at = differ.unwrap_or_else(|| ours.lines().count().min(theirs.lines().count()));
            let near = |text: &str| {
                let lines: Vec<&str> = text.lines().skip(at.saturating_sub(2)).take(5).collect();
                lines.join("\n    ")
            };
            Some(format!(
                "{} line {at}:\n  ours:\n    {}\n  theirs:\n    {}",
                path.display(),
                near(&ours),
                near(&theirs)
            ))
        }
        Err(error) => Some(format!("{}: {error}", path.display())),
    })
}

fn recorded() -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"));
    path.join("../tests/data/lttng/uid/0/64-bit")
}

#[test]
fn every_parameter_is_that_of_babeltrace() {
    for parameters in [
        "",
        "compact=yes",
        "with-metadata=no",
        "compact=yes,with-metadata=no",
        "with-data=no",
        "with-time=no,with-uuid=no",
        "compact=yes,with-time=no",
        "with-trace-name=no,with-stream-name=no,with-stream-class-name=no",
    ] {
        let found = difference(&recorded(), parameters).flatten();
        assert_eq!(found, None, "{parameters}");
    }
}

/// Lines in alphabetical order: streams that begin or end at one instant are in no order.
fn sorted(text: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(text);
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn a_window_of_messages_is_that_of_babeltrace() {
    let compact = "compact=yes,with-metadata=no";
    let all = ours(&recorded(), compact, WriteOptions::default()).unwrap();
    let time = |line: &str| -> Option<i64> {
        let (_, rest) = line.strip_prefix('[')?.split_once(' ')?;
        rest.split_once(']')?.0.replace(',', "").parse().ok()
    };
    let all = String::from_utf8(all).unwrap();
    let events = all.lines().filter(|line| line.contains(" Event `"));
    let times: Vec<i64> = events.filter_map(time).collect();
    let (quarter, half) = (times[times.len() / 4], times[times.len() / 2]);
    let (first, last) = (times[0], times[times.len() - 1]);
    for (from, to) in [
        (Some(quarter), Some(half)),
        (Some(half + 1), None),
        (None, Some(quarter)),
        (Some(first - 1_000_000_000), Some(first)),
        (Some(last + 1_000_000_000_000), None),
        (None, Some(first - 1_000_000_000_000)),
    ] {
        let argument = |name: &str, time: Option<i64>| {
            let (second, rest) = (time? / 1_000_000_000, time? % 1_000_000_000);
            Some(format!("--{name}={second}.{rest:09}"))
        };
        let window: Vec<String> = [argument("begin", from), argument("end", to)]
            .into_iter()
            .flatten()
            .collect();
        let how = WriteOptions {
            window: TimeWindow {
                from,
                to: to.map(|to| to + 1),
            },
            ..WriteOptions::default()
        };
        for parameters in [compact, "with-metadata=no"] {
            let Some(theirs) = theirs(&recorded(), parameters, &window) else {
                return;
            };
            let ours = ours(&recorded(), parameters, how).unwrap();
            assert_eq!(sorted(&ours), sorted(&theirs), "{window:?} {parameters}");
        }
    }
}

#[test]
fn details_of_the_corpus_equal_those_of_babeltrace() {
    let Some(corpus) = corpus() else { return };
    let index = std::fs::read_to_string(corpus.join("expected/index.tsv")).unwrap();
    let (mut wrong, mut compared) = (Vec::new(), 0);
    for line in index.lines().skip(1) {
        let case = line.split('\t').next().unwrap();
        // Version 2.0 reads another stream id than the packet has; 2.1 reads the same as we do.
        if case.ends_with("ctf-1/pass-dst/trace") {
            continue;
        }
        for parameters in ["", "compact=yes"] {
            let Some(found) = difference(&corpus.join(case), parameters) else {
                break;
            };
            compared += 1;
            wrong.extend(found);
        }
    }
    let wrong: Vec<String> = wrong;
    println!("{compared} compared");
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
