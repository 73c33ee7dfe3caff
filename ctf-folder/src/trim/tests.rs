//! The text of a trimmed trace is the text of the window of the original, by Babeltrace.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::*;
use crate::{WriteOptions, write_events};

/// The text that Babeltrace prints; `None` if it is missing or refuses the trace.
fn theirs(path: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("babeltrace2")
        .args(["--clock-gmt", "--no-delta"])
        .args(arguments)
        .arg(path)
        .env("TZ", "UTC")
        .output();
    let Ok(output) = output else {
        println!("skipped: babeltrace2 is not installed");
        return None;
    };
    let is_read = output.status.success();
    is_read.then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn ours(trace: &TraceFolder, window: TimeWindow) -> (String, u64) {
    let options = WriteOptions {
        window,
        ..WriteOptions::default()
    };
    let mut text = Vec::new();
    let traces = std::slice::from_ref(trace);
    let written = write_events(traces, options, &mut text).unwrap();
    assert!(written.faults.is_empty(), "{:?}", written.faults);
    // The time since the previous line is unknown in the first line of a window, too.
    (String::from_utf8_lossy(&text).into_owned(), written.events)
}

fn seconds(nanoseconds: i64) -> String {
    let (second, fraction) = (
        nanoseconds.div_euclid(1_000_000_000),
        nanoseconds.rem_euclid(1_000_000_000),
    );
    format!("{second}.{fraction:09}")
}

/// Windows that cut a trace in its packets.
fn windows(trace: &TraceFolder) -> Vec<TimeWindow> {
    let packets = trace.streams.iter().flat_map(|stream| &stream.packets);
    let spans: Vec<(i64, i64)> = packets.filter_map(|p| p.begin.zip(p.end)).collect();
    let Some(first) = spans.iter().map(|span| span.0).min() else {
        return Vec::new();
    };
    let last = spans.iter().map(|span| span.1).max().unwrap_or(first);
    let at = |part: i64| first + (last - first) / 16 * part;
    let window = |from, to| TimeWindow {
        from: Some(from),
        to: Some(to),
    };
    vec![
        window(at(3), at(5)),
        window(at(0), at(9)),
        window(at(7), at(16) + 1),
        window(at(8), at(8) + 1),
    ]
}

/// Compares a trace with what is written of it; the number of windows that were compared.
fn check(path: &Path) -> Result<u32, String> {
    let Ok(trace) = TraceFolder::open(path) else {
        return Ok(0);
    };
    let mut compared = 0;
    for window in windows(&trace) {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("trimmed");
        let what = format!("{} {window:?}", path.display());
        write_trimmed(&trace, window, OnFault::Stop, &target)
            .map_err(|error| format!("{what}: {error}"))?;
        let (Some(from), Some(to)) = (window.from, window.to) else {
            continue;
        };
        let (begin, end) = (seconds(from), seconds(to - 1));
        let Some(expected) = theirs(path, &["--begin", &begin, "--end", &end]) else {
            continue;
        };
        let is_empty = fs::read_dir(&target).unwrap().count() == 1;
        if is_empty {
            if expected.is_empty() {
                compared += 1;
                continue;
            }
            return Err(format!("{what}: nothing is written"));
        }
        let found = theirs(&target, &[]).ok_or(format!("{what}: Babeltrace refuses it"))?;
        if found != expected {
            let lines = (found.lines().count(), expected.lines().count());
            return Err(format!(
                "{what}: {lines:?} lines\n{found:.400}\n{expected:.400}"
            ));
        }
        let written = TraceFolder::open(&target).unwrap();
        let (_, events) = ours(&trace, window);
        assert_eq!(ours(&written, TimeWindow::default()).1, events, "{what}");
        compared += 1;
    }
    Ok(compared)
}

fn recorded() -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"));
    path.join("../tests/data/lttng/uid/0/64-bit")
}

#[test]
fn a_recorded_trace_is_trimmed() {
    let compared = check(&recorded()).unwrap();
    assert!(compared == 4 || theirs(&recorded(), &[]).is_none());
}

#[test]
fn traces_of_the_corpus_are_trimmed() {
    let Some(corpus) = crate::tests::corpus::corpus() else {
        return;
    };
    let (mut compared, mut wrong) = (0, Vec::new());
    for part in [
        "babeltrace/ctf-traces/1",
        "yactfr/iter-data/ctf-1",
        "lttng-probe",
    ] {
        for folder in crate::tests::trace_folders(&corpus.join(part)) {
            match check(&folder) {
                Ok(windows) => compared += windows,
                Err(error) => wrong.push(error),
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{compared} compared, {} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    println!("{compared} windows compared");
}

#[test]
fn a_folder_that_is_not_empty_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("notes"), "").unwrap();
    let trace = TraceFolder::open(&recorded()).unwrap();
    let all = TimeWindow::default();
    write_trimmed(&trace, all, OnFault::Stop, folder.path()).unwrap_err();
    assert!(!folder.path().join("metadata").exists());
}

#[test]
fn without_a_window_all_files_are_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("copy");
    let trace = TraceFolder::open(&recorded()).unwrap();
    let written = write_trimmed(&trace, TimeWindow::default(), OnFault::Stop, &target).unwrap();
    assert_eq!(written.trimmed, 0);
    for name in ["metadata", "chan_0", "chan_1"] {
        let both = [recorded(), target.clone()].map(|folder| fs::read(folder.join(name)).unwrap());
        assert!(both[0] == both[1], "{name}");
    }
}

/// Its events are whole, but the packet ends behind the end of the file.
#[test]
fn a_packet_whose_padding_is_cut_off_is_no_whole_packet() {
    let folder = tempfile::tempdir().unwrap();
    let cut = folder.path().join("cut");
    fs::create_dir(&cut).unwrap();
    for (name, less) in [("metadata", 0), ("chan_0", 3_000), ("chan_1", 0)] {
        let bytes = fs::read(recorded().join(name)).unwrap();
        fs::write(cut.join(name), &bytes[..bytes.len() - less]).unwrap();
    }
    let (trace, target) = (
        TraceFolder::salvage(&cut).unwrap(),
        folder.path().join("of"),
    );
    let written = write_trimmed(&trace, TimeWindow::default(), OnFault::Skip, &target).unwrap();
    assert!(trace.faults.is_empty(), "{:?}", trace.faults);
    let faults: Vec<String> = written.faults.iter().map(ToString::to_string).collect();
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert!(faults[0].contains("chan_0: packet at byte 0"), "{faults:?}");
    assert!(!target.join("chan_0").exists());
    assert!(TraceFolder::open(&target).is_ok());
}
