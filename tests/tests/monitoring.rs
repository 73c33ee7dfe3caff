//! The alert rules and the dashboard: they hold, and the server has the metrics that they use.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use harness::{ObjectStore, Request, Server, without};

use crate::document_blocks::blocks;

fn repository(path: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join(path)
}

fn text(path: &str) -> String {
    fs::read_to_string(repository(path)).unwrap()
}

/// Prometheus's tool accepts this input without a complaint; a note if it is not installed.
fn check_with_promtool(arguments: &[&str], input: &str) {
    let mut command = Command::new("promtool");
    command.args(arguments).current_dir(repository("."));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut child) = command.stderr(Stdio::piped()).spawn() else {
        return without("promtool");
    };
    // What it does not read is not an error.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success(), "promtool {arguments:?}: {said}");
}

/// The metrics of a server with an object store, which need not answer.
fn metrics() -> String {
    let folder = tempfile::tempdir().unwrap();
    let settings = ObjectStore::settings_at(([127, 0, 0, 1], 9).into(), "one", "");
    let server = Server::start(folder.path(), &settings);
    let response = server.api().send(&Request::new("GET", "/metrics"));
    String::from_utf8(response.unwrap().body).unwrap()
}

fn alerts() -> Vec<String> {
    let rules = text("deploy/prometheus/alerts.yaml");
    let names = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "));
    names.map(str::to_owned).collect()
}

#[test]
fn the_tests_of_the_alerts_pass() {
    check_with_promtool(&["test", "rules", "deploy/prometheus/alerts_test.yaml"], "");
}

#[test]
fn each_alert_is_fired_by_a_test_and_explained() {
    let tests = text("deploy/prometheus/alerts_test.yaml");
    let pages = text("docs/monitoring.md");
    let alerts = alerts();
    assert!(!alerts.is_empty());
    for alert in alerts {
        let evaluated = format!("ALERTS{{alertname=\"{alert}\", alertstate=\"firing\"}}");
        assert_eq!(tests.matches(&evaluated).count(), 2, "{alert}");
        let fired = format!("{{alertname=\"{alert}\", severity=");
        assert_eq!(tests.matches(&fired).count(), 1, "{alert}");
        assert!(pages.contains(&format!("\n### {alert}\n")), "{alert}");
    }
}

#[test]
fn the_configuration_of_the_page_is_one() {
    let folder = tempfile::tempdir().unwrap();
    let rules = repository("deploy/prometheus/alerts.yaml");
    fs::copy(rules, folder.path().join("alerts.yaml")).unwrap();
    let blocks = blocks(&text("docs/monitoring.md"));
    let configurations = blocks.iter().filter(|block| block.kind == "yaml");
    for (number, block) in configurations.enumerate() {
        assert_eq!(number, 0, "one block is the configuration");
        let path = folder.path().join("prometheus.yml");
        fs::write(&path, &block.text).unwrap();
        check_with_promtool(&["check", "config", path.to_str().unwrap()], "");
        // What a comment says of tokens is a setting, too.
        let with_token = block.text.replace("# authorization:", "authorization:");
        assert_ne!(with_token, block.text);
        fs::write(&path, with_token).unwrap();
        let arguments = ["check", "config", "--syntax-only", path.to_str().unwrap()];
        check_with_promtool(&arguments, "");
    }
}

#[test]
fn metrics_follow_the_conventions_of_prometheus() {
    check_with_promtool(&["check", "metrics"], &metrics());
}

#[test]
fn the_server_has_the_metrics_of_alerts_and_dashboard() {
    let metrics = metrics();
    let types = metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "));
    let mut known = BTreeSet::new();
    for name in types.filter_map(|line| line.split(' ').next()) {
        known.extend(["", "_bucket", "_sum", "_count"].map(|end| format!("{name}{end}")));
    }
    for path in [
        "deploy/prometheus/alerts.yaml",
        "deploy/grafana/tracehold.json",
    ] {
        let text = text(path);
        let words =
            text.split(|character: char| !character.is_ascii_alphanumeric() && character != '_');
        let used: BTreeSet<&str> = words
            .filter(|word| word.starts_with("tracehold_") || word.starts_with("process_"))
            .collect();
        assert!(used.len() > 10, "{path}: {used:?}");
        let unknown: Vec<&&str> = used.iter().filter(|name| !known.contains(**name)).collect();
        assert!(unknown.is_empty(), "{path} uses {unknown:?}");
    }
}

#[test]
fn the_dashboard_has_a_place_for_each_panel() {
    let dashboard: serde_json::Value =
        serde_json::from_str(&text("deploy/grafana/tracehold.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let numbers: BTreeSet<u64> = panels.iter().filter_map(|it| it["id"].as_u64()).collect();
    assert_eq!(numbers.len(), panels.len());
    let mut places = BTreeSet::new();
    for panel in panels {
        let at = |field: &str| panel["gridPos"][field].as_u64().unwrap();
        assert!(at("x") + at("w") <= 24, "{}", panel["title"]);
        for (x, y) in (at("x")..at("x") + at("w"))
            .flat_map(|x| (at("y")..at("y") + at("h")).map(move |y| (x, y)))
        {
            assert!(places.insert((x, y)), "{} covers another", panel["title"]);
        }
        let targets = panel["targets"].as_array();
        let is_drawn = panel["type"] == "row" || targets.is_some_and(|all| !all.is_empty());
        assert!(is_drawn, "{} has no query", panel["title"]);
    }
}
