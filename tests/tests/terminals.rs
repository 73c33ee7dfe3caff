//! What people see in a terminal: tables that fit, colours, progress. Files and pipes have neither.

use std::path::{Path, PathBuf};
use std::process::Command;

use harness::{Server, Terminal};

use crate::queries::{push, run};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("data")
        .join(name)
}

/// What the command shows in a terminal.
fn show(columns: u16, arguments: &[&str], env: &[(&str, &str)]) -> String {
    let (shown, status) = Terminal::start(columns, arguments, env).finish();
    assert!(status.success(), "{arguments:?}: {shown}");
    shown
}

#[test]
fn tables_fit_the_terminal() {
    let path = data("chrome_viztracer.json");
    let by_name = ["query", path.to_str().unwrap(), "", "--group-by", "name"];
    let slim = [&by_name[..], &["--aggregate", "count,max:dur"]].concat();
    let plain = [("NO_COLOR", "1")];
    let (_, whole, _) = run(&slim);
    let widest = whole
        .lines()
        .map(|line| line.chars().count())
        .max()
        .unwrap();
    assert!(widest > 60, "{whole}");
    // The width that the system says, and the one that the user says.
    let in_60 = show(60, &slim, &plain);
    assert!(in_60.contains('…'), "{in_60}");
    assert_eq!(in_60.lines().count(), whole.lines().count());
    assert!(
        in_60.lines().all(|line| line.chars().count() <= 60),
        "{in_60}"
    );
    let said = [("NO_COLOR", "1"), ("COLUMNS", "60")];
    assert_eq!(show(200, &slim, &said), in_60);
    assert_eq!(show(1000, &slim, &plain), whole);
    // A table of many numbers does not fit: every cell has a line.
    let (_, whole, _) = run(&by_name);
    let records = show(60, &by_name, &plain);
    assert!(
        records.lines().all(|line| line.chars().count() <= 60),
        "{records}"
    );
    let groups = whole.lines().count() - 1;
    let heads = records.lines().filter(|line| line.starts_with("NAME "));
    assert_eq!(heads.count(), groups, "{records}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("table");
    let written = [&slim[..], &["-o", file.to_str().unwrap()]].concat();
    show(60, &written, &[]);
    let (_, whole, _) = run(&slim);
    assert_eq!(std::fs::read_to_string(file).unwrap(), whole);
}

#[test]
fn colours_are_for_terminals_that_want_them() {
    let path = data("chrome_viztracer.json");
    let query = ["query", path.to_str().unwrap(), "", "--group-by", "ph"];
    let is_coloured = |text: &str| text.contains('\u{1b}');
    assert!(show(80, &query, &[]).starts_with("\u{1b}[1mPH\u{1b}[0m"));
    for env in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        assert!(!is_coloured(&show(80, &query, &[env])), "{env:?}");
    }
    assert!(is_coloured(&show(80, &query, &[("NO_COLOR", "")])));
    let (_, out, _) = run(&query);
    assert!(!is_coloured(&out), "{out}");
    let wrong = ["query", "/nowhere/at/all"];
    let (shown, _) = Terminal::start(80, &wrong, &[]).finish();
    assert!(
        shown.starts_with("\u{1b}[1m\u{1b}[31mtracehold:\u{1b}[0m "),
        "{shown:?}"
    );
    let (_, _, errors) = run(&wrong);
    assert!(errors.starts_with("tracehold: "), "{errors:?}");
}

#[test]
fn a_query_that_takes_long_shows_that_it_goes_on() {
    let (_folder, server, mut api) = Server::fresh();
    let storage = api.create_storage("trace");
    push(&server, &storage, &data("trace-0-of-1.pfw.gz"), "65536");
    let url = server.url();
    let query = ["query", "--server", &url, "--storage", &storage, "--count"];
    let quiet = [&query[..], &["--quiet"]].concat();
    let signal = |name: &str| {
        let pid = server.pid().to_string();
        assert!(
            Command::new("kill")
                .args([name, &pid])
                .status()
                .unwrap()
                .success()
        );
    };
    signal("-STOP");
    let mut shown = Terminal::start(80, &query, &[]);
    let silent = Terminal::start(80, &quiet, &[]);
    shown.wait_for("0 B read");
    signal("-CONT");
    let (_, count, _) = run(&query);
    let (shown, status) = shown.finish();
    assert!(status.success() && shown.ends_with(&count), "{shown:?}");
    let (silent, status) = silent.finish();
    assert!(status.success(), "{silent:?}");
    assert_eq!(silent, count);
}
