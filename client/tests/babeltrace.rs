//! `decode` with the options of `babeltrace2`, compared with what that prints.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn trace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/lttng")
}

fn decode(options: &[&str], path: &Path, zone: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tracehold"))
        .arg("decode")
        .args(options)
        .arg(path)
        .env("TZ", zone)
        .output()
        .expect("the program starts")
}

/// What Babeltrace prints; `None` when it is not installed.
#[expect(clippy::print_stdout, reason = "a test says what it skipped")]
fn babeltrace(options: &[&str], path: &Path, zone: &str) -> Option<Vec<u8>> {
    let mut program = Command::new("babeltrace2");
    let run = program.args(options).arg(path).env("TZ", zone).output();
    match run {
        Ok(output) => Some(output.stdout),
        Err(error) => {
            println!("skipped: babeltrace2: {error}");
            None
        }
    }
}

fn first_difference(ours: &[u8], theirs: &[u8]) -> String {
    let [ours, theirs] = [ours, theirs].map(|text| String::from_utf8_lossy(text).into_owned());
    let counts = (ours.lines().count(), theirs.lines().count());
    let differ = ours.lines().zip(theirs.lines()).find(|(a, b)| a != b);
    format!("{counts:?} {differ:#?}")
}

/// Compares the output with the same options for both programs.
fn check(options: &[&str]) {
    check_in(options, options, &trace(), "UTC");
}

fn check_in(options: &[&str], theirs: &[&str], path: &Path, zone: &str) {
    let output = decode(options, path, zone);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{options:?}: {errors}");
    if let Some(expected) = babeltrace(theirs, path, zone) {
        assert!(
            output.stdout == expected,
            "{options:?}: {}",
            first_difference(&output.stdout, &expected)
        );
    }
}

#[test]
fn forms_of_times() {
    check(&["--clock-gmt"]);
    check(&["--clock-seconds"]);
    check(&["--clock-cycles"]);
    check(&["--clock-date"]);
    check(&["--clock-date", "--clock-seconds"]);
    check(&["--clock-date", "--clock-seconds", "--clock-cycles"]);
    check(&["--no-delta"]);
    check(&["--no-delta", "--clock-date"]);
    check(&["--clock-offset=5", "--clock-date"]);
    check(&[
        "--clock-offset=-86400",
        "--clock-offset-ns=-7",
        "--clock-date",
    ]);
    for zone in ["America/New_York", "Asia/Kathmandu", "UTC"] {
        let theirs = ["--clock-date"];
        check_in(&["--clock-date", "--clock-local"], &theirs, &trace(), zone);
        check_in(&["--clock-local"], &[], &trace(), zone);
        let theirs = ["--clock-date", "--clock-gmt"];
        check_in(&["--clock-date"], &theirs, &trace(), zone);
    }
}

#[test]
fn names_and_properties() {
    for names in [
        "none",
        "all",
        "scope",
        "header",
        "payload",
        "context",
        "args",
        "ctx",
        "payload,scope",
        "header,context",
    ] {
        check(&["--names", names]);
    }
    for fields in [
        "all",
        "trace",
        "trace:hostname",
        "trace:domain",
        "trace:procname",
        "trace:vpid",
        "loglevel",
        "emf",
        "callsite",
        "all,callsite",
        "loglevel,trace:domain",
        "trace:hostname,loglevel",
    ] {
        check(&["--fields", fields]);
        check(&["--fields", fields, "--names", "all"]);
        check(&["-f", fields, "-n", "header", "--no-delta", "--clock-cycles"]);
    }
    // Traces are named by where they were found.
    for path in ["uid", "uid/0/64-bit"] {
        let options = ["--fields", "trace"];
        check_in(&options, &options, &trace().join(path), "UTC");
    }
}

#[test]
fn windows_that_begin_after_their_end_are_refused() {
    let cases: [&[&str]; 3] = [
        &["-b", "1795242148.9", "-e", "1795242148.1"],
        &["--timerange", "1795242148.9,1795242148.1"],
        &["--from", "1795242149s", "--to", "1795242148s"],
    ];
    for options in cases {
        let output = decode(options, &trace(), "UTC");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{options:?}: {errors}");
        assert!(errors.contains("begins after its end"), "{errors}");
    }
}

/// Events without a time have other separators.
#[test]
fn properties_of_a_trace_without_a_clock() {
    let folder = tempfile::tempdir().expect("a folder");
    let metadata = "/* CTF 1.8 */\n\
        trace { major = 1; minor = 8; byte_order = le; };\n\
        event { name = \"e\"; fields := struct { integer { size = 8; } a; }; };\n";
    std::fs::write(folder.path().join("metadata"), metadata).expect("a file");
    std::fs::write(folder.path().join("stream"), [1, 2]).expect("a file");
    for fields in ["all", "trace", "trace:hostname", "loglevel"] {
        for names in ["all", "none", "header"] {
            let options = ["--fields", fields, "--names", names];
            check_in(&options, &options, folder.path(), "UTC");
        }
    }
}

#[test]
fn windows_include_their_end() {
    let (begin, end) = ("06:22:28.022833023", "06:22:28.022834024");
    let seconds = ("1795242148.022833023", "1795242148.022834024");
    let dates = (
        "2026-11-21 06:22:28.022833023",
        "2026-11-21 06:22:28.022834024",
    );
    for (begin, end) in [(begin, end), seconds, dates] {
        let gmt = "--clock-gmt";
        check(&["--begin", begin, gmt]);
        check(&["--end", end, gmt]);
        check(&["-b", begin, "-e", end, gmt]);
        check(&["--timerange", &format!("{begin},{end}"), gmt]);
        check(&["--timerange", &format!("[{begin},{end}]"), gmt]);
        let output = decode(&["-b", begin, "-e", end], &trace(), "UTC");
        assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 2);
    }
    for text in [
        "1795242148",
        "2026-11-21 06:22:28",
        "2026-11-21 06:22",
        "2026-11-21",
        "06:22:28",
    ] {
        check(&["--begin", text, "--clock-gmt"]);
    }
    // Times without an offset are local with --clock-local, as in babeltrace2.
    let zone = "America/New_York";
    for begin in ["2026-11-21 01:22:28.022833023", "01:22:28.022833023"] {
        let theirs = ["--begin", begin];
        check_in(
            &["--begin", begin, "--clock-local"],
            &theirs,
            &trace(),
            zone,
        );
    }
}

#[test]
fn other_formats() {
    let single = trace().join("uid/0/64-bit");
    check_in(
        &["-o", "ctf-metadata"],
        &["-o", "ctf-metadata"],
        &single,
        "UTC",
    );
    check_in(&["-o", "dummy"], &["-o", "dummy"], &trace(), "UTC");
    let theirs = ["-c", "sink.utils.counter"];
    check_in(&["-o", "counter"], &theirs, &trace(), "UTC");
    check(&["--stream-intersection"]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("text");
    let output = decode(&["-w", path.to_str().unwrap()], &trace(), "UTC");
    assert!(output.status.success() && output.stdout.is_empty());
    let expected = decode(&[], &trace(), "UTC").stdout;
    assert!(std::fs::read(&path).unwrap() == expected);
}

#[test]
fn all_and_no_names_are_refused() {
    let output = decode(&["--names", "none,all"], &trace(), "UTC");
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
}

#[test]
fn options_of_ctf_are_refused_for_other_traces() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/io_small.trace");
    for options in [&["--no-delta"][..], &["-o", "counter"], &["--names", "all"]] {
        let output = decode(options, &path, "UTC");
        assert_eq!(output.status.code(), Some(2), "{options:?}");
    }
}
