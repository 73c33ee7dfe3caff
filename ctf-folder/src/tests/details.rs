//! All messages with their properties, compared with the output of Babeltrace 2.0.

use super::corpus::corpus;
use super::trace_folders;
use crate::{DetailsOptions, OnFault, TraceFolder, write_details};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The text of `sink.text.details`; `None` if the program is missing or refuses the trace.
fn theirs(path: &Path, parameters: &str) -> Option<Vec<u8>> {
    let mut command = Command::new("babeltrace2");
    command.arg(path).args(["-c", "sink.text.details"]);
    if !parameters.is_empty() {
        command.args(["-p", parameters]);
    }
    let Ok(output) = command.env("TZ", "UTC").output() else {
        println!("skipped: babeltrace2 is not installed");
        return None;
    };
    output.status.success().then_some(output.stdout)
}

fn ours(path: &Path, parameters: &str) -> Result<Vec<u8>, String> {
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
    let written = write_details(&traces, options, OnFault::Stop, &mut text);
    let written = written.map_err(|error| error.to_string())?;
    assert!(written.faults.is_empty(), "{:?}", written.faults);
    Ok(text)
}

/// What differs, if both can read the trace; the outer `None` if Babeltrace cannot.
fn difference(path: &Path, parameters: &str) -> Option<Option<String>> {
    let theirs = theirs(path, parameters)?;
    Some(match ours(path, parameters) {
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
