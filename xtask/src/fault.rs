//! `cargo xtask fault`: kills the server at every named point, and hangs up there; and each of
//! three nodes at every named point of what they do in an object store.
//!
//! `--sabotage` switches on one deliberate defect after the other; each must be found.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Instant;

use harness::{FaultPlan, FaultReport, Settings, run_cluster_faults, run_faults};

use crate::failing_disk;
use crate::failure::{Failure, Outcome, file_failed};
use crate::options::Options;
use crate::process::{
    ALL_STORES, cargo, command, fresh_folder, output, root, run, run_quietly, target,
};
use crate::suite;

/// The variable that switches a defect on.
const SABOTAGE: &str = "FAULT_SABOTAGE";

/// Servers preallocate space for their logs.
const MEMORY_BYTES_MIN: u64 = 2 << 30;

/// Crates with fault points.
const CRATES: &[&str] = &["storage-core", "object-tier", "recording", "server"];

/// Points of what nodes do in an object store.
const IN_STORE: &str = "tier.";

/// A defect that is compiled in and off by default.
struct Sabotage {
    name: &'static str,
    found_by: FoundBy,
}

/// The check that finds a defect.
enum FoundBy {
    /// Faults at the points whose names begin with this.
    Rows(&'static str),
    /// Tests of `storage-core`: the target, and a part of their names.
    Tests(&'static [&'static str], &'static str),
}

const SABOTAGES: &[Sabotage] = &[
    Sabotage {
        name: "evict-first",
        found_by: FoundBy::Rows("tier.upload."),
    },
    Sabotage {
        name: "drop-packet",
        found_by: FoundBy::Rows("ingest."),
    },
    Sabotage {
        name: "skip-rename",
        found_by: FoundBy::Rows("change."),
    },
    Sabotage {
        name: "skip-publish",
        found_by: FoundBy::Rows("change."),
    },
    Sabotage {
        name: "cancel-changes",
        found_by: FoundBy::Rows("delete."),
    },
    Sabotage {
        name: "repair-names-first",
        found_by: FoundBy::Rows("repair."),
    },
    Sabotage {
        name: "skip-sync",
        found_by: FoundBy::Tests(&["--lib"], "fault_tests::power"),
    },
    Sabotage {
        name: "skip-folder-sync",
        found_by: FoundBy::Tests(&["--lib"], "fault_tests::power"),
    },
    Sabotage {
        name: "skip-publish-sync",
        found_by: FoundBy::Tests(&["--lib"], "fault_tests::power"),
    },
    Sabotage {
        name: "skip-staged-sync",
        found_by: FoundBy::Tests(&["--lib"], "fault_tests::power"),
    },
    Sabotage {
        name: "skip-staged-folder-sync",
        found_by: FoundBy::Tests(&["--lib"], "fault_tests::changes"),
    },
    Sabotage {
        name: "copy-first",
        found_by: FoundBy::Tests(&["--lib"], "fault_tests::power"),
    },
    Sabotage {
        name: "wrong-checksum",
        found_by: FoundBy::Tests(&["--lib"], "fault_tests::every_operation"),
    },
    Sabotage {
        name: "trust-leftovers",
        found_by: FoundBy::Tests(&["--lib"], "fault_tests::arranging"),
    },
    Sabotage {
        name: "skip-naming",
        found_by: FoundBy::Tests(&["--lib"], "fault_tests::full_files"),
    },
    Sabotage {
        name: "skip-chain",
        found_by: FoundBy::Tests(&["--test", "log"], "earlier_use"),
    },
    Sabotage {
        name: "copy-last",
        found_by: FoundBy::Tests(&["--lib"], "fault_tests::copies"),
    },
    Sabotage {
        name: "skip-pause-flush",
        found_by: FoundBy::Tests(&["--lib"], "a_repair_without_room"),
    },
    Sabotage {
        name: "skip-covered-end",
        found_by: FoundBy::Tests(&["--test", "log_end"], "missed"),
    },
    Sabotage {
        name: "skip-repair-sync",
        found_by: FoundBy::Tests(&["--lib"], "power_cut_during_the_repair"),
    },
    Sabotage {
        name: "remove-pinned",
        found_by: FoundBy::Tests(&["--lib"], "tree::pin"),
    },
    Sabotage {
        name: "trust-seal",
        found_by: FoundBy::Tests(&["--lib"], "fault_tests::sealing"),
    },
];

/// Flags without a value.
const FLAGS: &[&str] = &["--report", "--sabotage", "--short"];

/// `--only PREFIX --threads 2`; `--short` for the form of CI; `--report` adds the failing disks.
pub(crate) fn run_job(arguments: &[String]) -> Outcome {
    if let [word, kind, server] = arguments
        && word == "on-disk"
    {
        return failing_disk::check(kind, server);
    }
    let has = |flag: &str| arguments.iter().any(|word| word == flag);
    let is_option = |word: &&String| !FLAGS.contains(&word.as_str());
    let rest: Vec<String> = arguments.iter().filter(is_option).cloned().collect();
    let options = Options::parse(&rest)?;
    suite::install_object_store()?;
    let server = server()?;
    let begin = Instant::now();
    let plan = FaultPlan {
        folder: folder()?,
        settings: Settings {
            program: Some(server.clone()),
            ..Settings::default()
        },
        points: points()?,
        is_short: has("--short"),
        only: options.get("only", String::new())?,
        threads: options.get("threads", 2)?,
    };
    if has("--sabotage") {
        return run_sabotages(&plan);
    }
    println!("{} fault points", plan.points.len());
    let mut report = run_all(&plan, |line| println!("LOST: {line}"));
    if has("--report") {
        for (kind, failed) in failing_disk::run_all(&server)? {
            let count = report.counts.entry(kind).or_default();
            count.tried += 1;
            count.survived += usize::from(failed.is_none());
            report.lost.extend(failed);
        }
    }
    print(&report);
    println!("in {:.0} s", begin.elapsed().as_secs_f64());
    for point in &report.unreached {
        println!("not reached: {point}");
    }
    let count = report.lost.len() + report.unreached.len();
    if count > 0 {
        let what = "faults that lost something, and points that were not reached";
        return Err(Failure::Found { what, count });
    }
    Ok(())
}

/// Tries the faults of one server, and those of nodes with an object store.
fn run_all(plan: &FaultPlan, progress: impl Fn(&str) + Sync) -> FaultReport {
    let mut report = if plan.only.starts_with(IN_STORE) {
        FaultReport::default()
    } else {
        run_faults(plan, &progress)
    };
    if plan.only.is_empty() || plan.only.starts_with(IN_STORE) {
        report.add(run_cluster_faults(plan, &progress));
    }
    report
}

/// Runs each check with its defect; fails if one finds nothing.
fn run_sabotages(plan: &FaultPlan) -> Outcome {
    let mut missed = 0;
    for Sabotage { name, found_by } in SABOTAGES {
        let is_found = match found_by {
            FoundBy::Rows(only) => {
                let mut plan = plan.clone();
                plan.folder = folder()?;
                plan.is_short = true;
                plan.only = (*only).to_owned();
                let variable = (SABOTAGE.to_owned(), (*name).to_owned());
                plan.settings.environment.push(variable);
                // A scenario may fail without any fault then.
                let report = catch_unwind(AssertUnwindSafe(|| run_all(&plan, |_| {})));
                report.map_or(true, |report| !report.lost.is_empty())
            }
            FoundBy::Tests(target, filter) => {
                let tests = || {
                    let mut tests = cargo(&["test", "--quiet", "--package", "storage-core"]);
                    tests
                        .args(["--features", "fault-points"])
                        .args(*target)
                        .arg(filter);
                    tests
                };
                run(&mut tests())?;
                !run_quietly(tests().env(SABOTAGE, name))
            }
        };
        println!("{name:<20} {}", if is_found { "found" } else { "MISSED" });
        missed += usize::from(!is_found);
    }
    if missed > 0 {
        let what = "defects that no check finds";
        return Err(Failure::Found {
            what,
            count: missed,
        });
    }
    Ok(())
}

fn print(report: &FaultReport) {
    println!(
        "{:<34} {:>6} {:>9} {:>5}",
        "fault", "tried", "survived", "lost"
    );
    for (kind, count) in &report.counts {
        let lost = count.tried - count.survived;
        println!(
            "{kind:<34} {:>6} {:>9} {lost:>5}",
            count.tried, count.survived
        );
    }
}

/// The server with its fault points and the profile of the tests, or from the folder that
/// PROGRAMS_UNDER_TEST names.
fn server() -> Outcome<PathBuf> {
    if let Some(folder) = std::env::var_os("PROGRAMS_UNDER_TEST") {
        return Ok(PathBuf::from(folder).join("traceholdd"));
    }
    // With a test target in the command, cargo selects the features of dependencies as for the
    // tests, so that only the crates with fault points are compiled again.
    let build = [
        "build",
        "--workspace",
        "--bin",
        "traceholdd",
        "--test",
        "main",
        "--features",
        "server/fault-points",
    ];
    run(cargo(&build).args(ALL_STORES))?;
    let built = target().join("debug/traceholdd");
    let copy = target().join("traceholdd-with-fault-points");
    // The next build without the feature replaces the program.
    std::fs::copy(&built, &copy).map_err(file_failed(&built))?;
    Ok(copy)
}

/// An empty folder, in memory if there is one: a killed process keeps its page cache, so nothing is
/// lost by it, and a run syncs thousands of times.
fn folder() -> Outcome<PathBuf> {
    let memory = Path::new("/dev/shm");
    if free_bytes(memory).is_none_or(|bytes| bytes < MEMORY_BYTES_MIN) {
        return fresh_folder("fault");
    }
    let folder = memory.join("tracehold-fault");
    if folder.exists() {
        std::fs::remove_dir_all(&folder).map_err(file_failed(&folder))?;
    }
    std::fs::create_dir(&folder).map_err(file_failed(&folder))?;
    Ok(folder)
}

/// The free bytes of the file system with this folder.
fn free_bytes(folder: &Path) -> Option<u64> {
    let mut free = command("df", &["--output=avail", "-B1"]);
    let text = output(free.arg(folder)).ok()?;
    text.lines().nth(1)?.trim().parse().ok()
}

/// The names of all points in the code.
fn points() -> Outcome<BTreeSet<String>> {
    let mut points = BTreeSet::new();
    for name in CRATES {
        collect(&root().join(name).join("src"), &mut points)?;
    }
    Ok(points)
}

fn collect(folder: &Path, points: &mut BTreeSet<String>) -> Outcome {
    for entry in std::fs::read_dir(folder).map_err(file_failed(folder))? {
        let path = entry.map_err(file_failed(folder))?.path();
        if path.is_dir() {
            collect(&path, points)?;
        } else if path.extension().is_some_and(|it| it == "rs")
            && !path.ends_with("fault_macros.rs")
        {
            let text = std::fs::read_to_string(&path).map_err(file_failed(&path))?;
            points.extend(names(&text));
        }
    }
    Ok(())
}

/// The names in the calls of the macro in a source.
fn names(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split("fault_point!(").skip(1).filter_map(|rest| {
        let (_, rest) = rest.split_once('"')?;
        let (name, _) = rest.split_once('"')?;
        Some(name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_found_in_both_forms() {
        let text = "a(); fault_point!(\"one\"); crate::fault_point!(async \"two\");\nb(\"three\");";
        let found: Vec<_> = names(text).collect();
        assert_eq!(found, ["one", "two"]);
    }
}
