//! The history of figures: every verdict of every run is a line of a file, and a figure that became
//! worse than it was is said.
//!
//! The figures are ratios of one run, so they can be compared over time and machines where rates
//! cannot. They still vary; a figure is compared with the median of the runs before.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::paired::{Target, Verdict, median};
use crate::failure::{Failure, Outcome};
use crate::options::Options;

/// Runs before that a figure is compared with.
const COMPARED_MAX: usize = 5;
/// A figure that is worse than before by more than this part is said.
const WORSE: f64 = 0.1;
const REPORT: &str = "docs/performance.md";

/// A figure of an earlier run.
#[derive(Clone, Debug, PartialEq)]
struct Line {
    bench: String,
    what: String,
    time: u64,
    commit: String,
    target: Target,
    measured: f64,
}

/// The file of the history: `--history FILE`, or the one in the target folder.
pub(super) fn file_of(options: &Options) -> Outcome<PathBuf> {
    let chosen: String = options.get("history", String::new())?;
    if !chosen.is_empty() {
        return Ok(chosen.into());
    }
    Ok(crate::process::target().join("bench-history.jsonl"))
}

/// Adds the verdicts of a run to its history, and says which figures became worse.
pub(super) fn record(bench: &str, file: &Path, verdicts: &[Verdict]) {
    let before = match read(file) {
        Ok(before) => before,
        Err(error) => return println!("no history: {error}"),
    };
    for line in worse(bench, verdicts, &before) {
        println!("{line}");
    }
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH);
    let (time, commit) = (seconds.map_or(0, |time| time.as_secs()), commit());
    let lines = verdicts
        .iter()
        .filter(|verdict| verdict.measured.is_finite());
    let lines = lines.map(|verdict| {
        let line = Line {
            bench: bench.to_owned(),
            what: verdict.what.clone(),
            time,
            commit: commit.clone(),
            target: verdict.target,
            measured: verdict.measured,
        };
        format!("{}\n", line.to_json())
    });
    let text: String = lines.collect();
    let appended = OpenOptions::new().create(true).append(true).open(file);
    match appended.and_then(|mut file| file.write_all(text.as_bytes())) {
        Ok(()) => println!("history: {}", file.display()),
        Err(error) => println!("no history: {}: {error}", file.display()),
    }
}

/// The figures that are worse than the median of the runs before.
fn worse(bench: &str, verdicts: &[Verdict], before: &[Line]) -> Vec<String> {
    let compare = |verdict: &Verdict| {
        let same = |line: &&Line| line.bench == bench && line.what == verdict.what;
        let earlier = before.iter().rev().filter(same).take(COMPARED_MAX);
        let earlier: Vec<f64> = earlier.map(|line| line.measured).collect();
        let usual = median(&earlier);
        let change = match verdict.target {
            Target::AtLeast(_) => (usual - verdict.measured) / usual,
            Target::AtMost(_) => (verdict.measured - usual) / usual,
        };
        (change > WORSE).then(|| {
            format!(
                "WORSE  {}: {:.3}, {:.0} % worse than the median {usual:.3} of {} runs before",
                verdict.what,
                verdict.measured,
                change * 100.0,
                earlier.len()
            )
        })
    };
    verdicts.iter().filter_map(compare).collect()
}

/// Writes the page of figures from the history: the latest run of each benchmark.
pub(super) fn report(options: &Options) -> Outcome {
    let file = file_of(options)?;
    let lines = read(&file).map_err(Failure::Run)?;
    if lines.is_empty() {
        return Err(Failure::Run(format!(
            "{} has no figures: run a benchmark first, or name another file with --history",
            file.display()
        )));
    }
    let to: String = options.get("to", REPORT.to_owned())?;
    let before = fs::read_to_string(&to).unwrap_or_default();
    let text = page(&before, &lines);
    fs::write(&to, text).map_err(|error| Failure::Run(format!("{to}: {error}")))?;
    println!("{to}: {} figures of {}", lines.len(), file.display());
    Ok(())
}

/// What is above this line of the page is written by people and kept.
const GENERATED: &str = "<!-- Below: cargo xtask bench --report -->";

fn page(before: &str, lines: &[Line]) -> String {
    let own = match before.split_once(GENERATED) {
        Some((own, _)) => own.to_owned(),
        None => "# Performance\n\n".to_owned(),
    };
    let mut benches: BTreeMap<&str, Vec<&Line>> = BTreeMap::new();
    for line in lines {
        benches.entry(&line.bench).or_default().push(line);
    }
    let mut text = format!("{own}{GENERATED}\n");
    for (bench, lines) in benches {
        let latest = lines.iter().map(|line| line.time).max().unwrap_or_default();
        let newest: Vec<_> = lines.iter().filter(|line| line.time == latest).collect();
        let commit = newest.first().map_or("", |line| line.commit.as_str());
        text += &format!(
            "\n## {bench}\n\n`cargo xtask bench {bench}` at {commit}.\n\n\
             | figure | measured | target | | earlier runs |\n| --- | --- | --- | --- | --- |\n"
        );
        for line in newest {
            let same = |other: &&&Line| other.what == line.what && other.time < latest;
            let earlier: Vec<String> = (lines.iter().rev().filter(same).take(COMPARED_MAX))
                .map(|line| format!("{:.3}", line.measured))
                .collect();
            let verdict = Verdict::new(line.what.as_str(), line.target, line.measured);
            let (relation, limit) = match line.target {
                Target::AtLeast(limit) => ("at least", limit),
                Target::AtMost(limit) => ("at most", limit),
            };
            let met = if verdict.met() { "met" } else { "**missed**" };
            text += &format!(
                "| {} | {:.3} | {relation} {limit} | {met} | {} |\n",
                line.what.replace('|', "/"),
                line.measured,
                earlier.join(", ")
            );
        }
    }
    text
}

fn read(file: &Path) -> Result<Vec<Line>, String> {
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(format!("{}: {error}", file.display())),
    };
    let numbered = (1..).zip(text.lines());
    let parse = |(number, line): (usize, &str)| {
        Line::of_json(line).ok_or_else(|| format!("{}:{number}: not a figure", file.display()))
    };
    numbered.map(parse).collect()
}

fn commit() -> String {
    let shown = Command::new("git")
        .args(["rev-parse", "--short=10", "HEAD"])
        .output();
    let text = shown.map(|shown| String::from_utf8_lossy(&shown.stdout).trim().to_owned());
    text.unwrap_or_default()
}

impl Line {
    fn to_json(&self) -> Value {
        let (relation, limit) = match self.target {
            Target::AtLeast(limit) => ("at_least", limit),
            Target::AtMost(limit) => ("at_most", limit),
        };
        json!({
            "bench": self.bench, "what": self.what, "time": self.time, "commit": self.commit,
            relation: limit, "measured": self.measured,
        })
    }

    fn of_json(text: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(text).ok()?;
        let text = |name: &str| value[name].as_str().map(str::to_owned);
        let at_least = value["at_least"].as_f64().map(Target::AtLeast);
        Some(Self {
            bench: text("bench")?,
            what: text("what")?,
            time: value["time"].as_u64()?,
            commit: text("commit")?,
            target: at_least.or_else(|| value["at_most"].as_f64().map(Target::AtMost))?,
            measured: value["measured"].as_f64()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(what: &str, time: u64, target: Target, measured: f64) -> Line {
        Line {
            bench: "range".to_owned(),
            what: what.to_owned(),
            time,
            commit: "0123456789".to_owned(),
            target,
            measured,
        }
    }

    #[test]
    fn a_line_is_read_as_it_was_written() {
        for target in [Target::AtLeast(0.9), Target::AtMost(512.0)] {
            let line = line("64 KiB", 5, target, 1.25);
            assert_eq!(Line::of_json(&line.to_json().to_string()), Some(line));
        }
        assert_eq!(Line::of_json("{}"), None);
    }

    #[test]
    fn a_figure_that_became_worse_is_said() {
        let more = Target::AtLeast(1.0);
        let before: Vec<Line> = (0..7).map(|run| line("ratio", run, more, 2.0)).collect();
        let said =
            |target, measured| worse("range", &[Verdict::new("ratio", target, measured)], &before);
        assert!(said(more, 1.81).is_empty() && said(more, 3.0).is_empty());
        assert!(
            said(more, 1.78)[0].contains("11 % worse"),
            "{:?}",
            said(more, 1.78)
        );
        // Of what should be small, more is worse.
        assert!(said(Target::AtMost(9.0), 2.1).is_empty());
        assert_eq!(said(Target::AtMost(9.0), 2.3).len(), 1);
        assert!(worse("other", &[Verdict::new("ratio", more, 0.1)], &before).is_empty());
    }

    #[test]
    fn the_page_has_the_latest_run_and_keeps_what_people_wrote() {
        let more = Target::AtLeast(1.0);
        let lines = [
            line("a", 1, more, 0.5),
            line("a", 2, more, 1.5),
            line("b", 2, more, 0.7),
        ];
        let text = page(&format!("# Mine\n\nWords.\n\n{GENERATED}\nold"), &lines);
        assert!(text.starts_with("# Mine\n\nWords.\n\n"), "{text}");
        assert!(
            text.contains("| a | 1.500 | at least 1 | met | 0.500 |\n"),
            "{text}"
        );
        assert!(
            text.contains("| b | 0.700 | at least 1 | **missed** |  |\n"),
            "{text}"
        );
        assert!(!text.contains("old"));
        assert_eq!(page(&text, &lines), text);
    }
}
