//! `tracehold decode` and `tracehold analyze` over the RocksDB traces of the corpus.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The folder of real traces; `None`, with a message, if it does not exist.
#[expect(clippy::print_stdout, reason = "a test that is skipped says so")]
fn corpus() -> Option<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpora");
    if !folder.exists() {
        println!("skipped: ../shared/corpora is not here");
        return None;
    }
    Some(folder.join("rocksdb"))
}

fn tracehold(arguments: &[&str], path: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tracehold"));
    command
        .args(arguments)
        .arg(path)
        .output()
        .expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("the program prints text")
}

#[test]
fn decode_prints_the_same_as_rocksdbs_tools() {
    let Some(folder) = corpus() else { return };
    for (trace, expected) in [
        ("io_small.trace", "io_small.txt"),
        ("io_variants.trace", "io_variants.txt"),
        ("bc_small.trace", "bc_small.csv"),
        ("bc_variants.trace", "bc_variants.csv"),
    ] {
        let output = tracehold(&["decode"], &folder.join(trace));
        assert_eq!(output.status.code(), Some(0), "{trace}");
        assert!(
            output.stdout == std::fs::read(folder.join(expected)).unwrap(),
            "{trace}"
        );
    }
}

#[test]
fn decode_prints_one_object_an_event() {
    let Some(folder) = corpus() else { return };
    let output = tracehold(
        &["decode", "--format", "ndjson"],
        &folder.join("io_small.trace"),
    );
    let lines = text(&output.stdout);
    assert_eq!(lines.lines().count(), 557);
    let first: serde_json::Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!(first["name"], "GetFileSize");
    assert_eq!(first["cat"], "wal");
    assert_eq!(first["dur"], 80);
    assert_eq!(first["args"]["file_name"], "000025.log");
}

#[test]
fn a_torn_trace_is_reported() {
    let Some(folder) = corpus() else { return };
    for verb in ["decode", "analyze"] {
        let output = tracehold(&[verb], &folder.join("io_cut_midrecord.trace"));
        assert_eq!(output.status.code(), Some(1), "{verb}");
        assert!(text(&output.stderr).contains("the trace is torn"), "{verb}");
        assert!(text(&output.stdout).contains("Append"), "{verb}");
    }
}

#[test]
fn other_files_are_refused_with_what_they_are() {
    let Some(folder) = corpus() else { return };
    for (verb, file, code, word) in [
        (
            "analyze",
            "FORMAT.md",
            2,
            "a file of unknown content; expected",
        ),
        ("decode", "query_small.trace", 1, "query trace"),
        ("analyze", "query_small.trace", 1, "query trace"),
        ("query", "query_small.trace", 1, "query trace"),
    ] {
        let output = tracehold(&[verb], &folder.join(file));
        assert_eq!(output.status.code(), Some(code), "{verb} {file}");
        assert!(
            text(&output.stderr).contains(word),
            "{}",
            text(&output.stderr)
        );
    }
}

#[test]
fn analyze_writes_files_pictures_and_exports() {
    let Some(folder) = corpus() else { return };
    let out = tempfile::tempdir().unwrap();
    let path = |name: &str| out.path().join(name).display().to_string();
    let (results, picture) = (path("results"), path("picture.svg"));
    for (trace, export, first_byte) in [
        ("io_small.trace", "fio", b'f'),
        ("io_small.trace", "csv", b's'),
        ("io_small.trace", "oracle-general", 0),
        ("bc_small.trace", "csv", b'1'),
        ("bc_small.trace", "oracle-general", 0),
    ] {
        let export = format!("{export}={}", path("export"));
        let arguments = ["analyze", "--json", "--all", "--cache-sizes", "64K,1M"];
        let outputs = ["--out", &results, "--plot", &picture, "--export", &export];
        let output = tracehold(&[&arguments[..], &outputs].concat(), &folder.join(trace));
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(report.is_object());
        assert!(
            std::fs::read_to_string(&picture)
                .unwrap()
                .starts_with("<svg")
        );
        assert_eq!(
            std::fs::read(path("export")).unwrap()[0],
            first_byte,
            "{trace} {export}"
        );
    }
    for name in [
        "0_1180_mrc",
        "all_reuse_distance",
        "summary.txt",
        "io_latency.csv",
    ] {
        assert!(out.path().join("results").join(name).exists(), "{name}");
    }
}

#[test]
fn accesses_that_an_export_cannot_have_are_counted() {
    let Some(folder) = corpus() else { return };
    let out = tempfile::tempdir().unwrap();
    for (format, trace, told) in [
        (
            "oracle-general",
            "bc_variants.trace",
            "70 accesses were skipped: ",
        ),
        ("oracle-general", "bc_small.trace", ""),
        ("fio", "io_small.trace", "96 operations were skipped: "),
        ("csv", "io_small.trace", ""),
    ] {
        let export = format!("{format}={}", out.path().join("export").display());
        let output = tracehold(&["analyze", "--export", &export], &folder.join(trace));
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{errors}");
        assert!(errors.starts_with(told), "{trace}: {errors}");
        assert_eq!(errors.is_empty(), told.is_empty(), "{trace}: {errors}");
    }
}

#[test]
fn invalid_options_are_usage_errors() {
    let Some(folder) = corpus() else { return };
    for arguments in [
        &["analyze", "--reuse-distance", "colour"][..],
        &["analyze", "--cache-sizes", "0"],
        &["analyze", "--callers", "Nobody"],
        &["analyze", "--curves-only"],
        &["analyze", "--export", "fio=/dev/null"],
        &["analyze", "--export", "parquet=x"],
        &["analyze", "--skew", "all", "--skew-buckets", "5,1"],
    ] {
        let output = tracehold(arguments, &folder.join("bc_small.trace"));
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
}
