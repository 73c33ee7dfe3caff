//! Faults in what nodes do in an object store: three of them share one, and for each point that a
//! node reaches, it is killed there and started again. Nothing that was acknowledged may be missing
//! then, nothing may be there twice, no node may show half a storage, and what was begun must end.

mod nodes;
mod scripts;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use self::nodes::{Armed, Cluster};
use self::scripts::{SCRIPTS, Script};
use super::trial::message;
use super::{FaultCount, FaultPlan, FaultReport};
use crate::object_store::ObjectStore;

/// The names of points of this kind begin with this.
pub(super) const POINTS: &str = "tier.";
const KIND: &str = "node killed at a point";
/// A point is faulted at most this many times in one script on one node.
const NTH_MAX: u64 = 2;
/// The points of the short form, with the script and the node that reach them: one for each kind of
/// work, where the most is at stake.
const SHORT: &[(&str, usize, &str)] = &[
    ("upload", 0, "tier.upload.heads_sent"),
    ("upload", 0, "tier.upload.sealed"),
    ("eviction", 0, "tier.evict.noted"),
    ("takeover", 1, "tier.chain.owned"),
    ("takeover", 1, "tier.rebuild.record"),
    ("deletion", 1, "tier.delete.here"),
    ("collection", 0, "tier.collect.begun"),
];

/// A script during which a node is killed.
#[derive(Clone, Debug)]
struct Row {
    script: &'static Script,
    armed: Armed,
}

/// Tries every fault of the plan in the object store. Without moto, nothing is tried.
///
/// # Panics
/// If a script fails without a fault.
pub fn run_cluster_faults(plan: &FaultPlan, progress: impl Fn(&str) + Sync) -> FaultReport {
    let Some(store) = ObjectStore::moto() else {
        return FaultReport::default();
    };
    let rows = if plan.is_short && plan.only.is_empty() {
        short_rows()
    } else {
        all_rows(plan, &store)
    };
    let rows: Vec<Row> = rows
        .into_iter()
        .filter(|row| row.armed.point.starts_with(&plan.only))
        .collect();
    let report = Mutex::new(FaultReport::default());
    let hit = Mutex::new(BTreeSet::new());
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some((at, row)) = {
            let at = next.fetch_add(1, Ordering::Relaxed);
            rows.get(at).map(|row| (at, row))
        } {
            let folder = plan.folder.join(format!("cluster-{at}"));
            let outcome = try_row(plan, &store, &folder, row);
            if outcome != Ok(false) {
                let mut hit = hit.lock().expect("no row panics with the points");
                hit.insert(row.armed.point.clone());
            }
            let mut report = report.lock().expect("no row panics with the report");
            note(&mut report, row, outcome, &folder, &progress);
        }
    };
    thread::scope(|scope| {
        for _ in 0..plan.threads.max(1) {
            scope.spawn(work);
        }
    });
    let mut report = report.into_inner().expect("no row panics with the report");
    let hit = hit.into_inner().expect("no row panics with the points");
    let wanted: BTreeSet<&str> = if plan.is_short && plan.only.is_empty() {
        SHORT.iter().map(|(_, _, point)| *point).collect()
    } else {
        plan.points.iter().map(String::as_str).collect()
    };
    let is_wanted = |point: &&str| {
        point.starts_with(POINTS) && point.starts_with(&plan.only) && !hit.contains(*point)
    };
    let unreached = wanted.into_iter().filter(is_wanted);
    report.unreached = unreached.map(str::to_owned).collect();
    report
}

fn short_rows() -> Vec<Row> {
    let row = |&(name, node, point): &(&str, usize, &str)| {
        let mut scripts = SCRIPTS.iter();
        let script = scripts.find(|script| script.name == name);
        Row {
            script: script.expect("the short form names scripts"),
            armed: Armed {
                node,
                point: point.to_owned(),
                nth: 1,
            },
        }
    };
    SHORT.iter().map(row).collect()
}

/// A row for each point that a node reaches in a script without a fault.
fn all_rows(plan: &FaultPlan, store: &ObjectStore) -> Vec<Row> {
    let run = |script: &'static Script| {
        let folder = plan.folder.join(format!("clean-{}", script.name));
        let mut cluster = Cluster::begin(store, &folder, &plan.settings, script.nodes, None);
        (script.run)(&mut cluster);
        let reached = cluster.take_reached();
        drop(cluster);
        // What remains is removed with the folder of the run.
        std::fs::remove_dir_all(&folder).ok();
        reached
    };
    let mut rows = Vec::new();
    let run = &run;
    let clean: Vec<_> = thread::scope(|scope| {
        let runs = SCRIPTS
            .iter()
            .map(|script| scope.spawn(move || run(script)));
        let runs: Vec<_> = runs.collect();
        runs.into_iter()
            .map(|run| run.join().expect("a script succeeds without faults"))
            .collect()
    });
    for (script, nodes) in SCRIPTS.iter().zip(clean) {
        for (node, reached) in nodes.into_iter().enumerate() {
            rows.extend(rows_of(script, node, &reached));
        }
    }
    if plan.is_short {
        // The first row of each point.
        let mut seen = BTreeSet::new();
        rows.retain(|row| seen.insert(row.armed.point.clone()));
    }
    rows
}

fn rows_of(script: &'static Script, node: usize, reached: &BTreeMap<String, u64>) -> Vec<Row> {
    let points = reached.iter();
    let points = points.filter(|(point, _)| point.starts_with(POINTS));
    let rows = points.flat_map(|(point, count)| {
        (1..=NTH_MAX.min(*count)).map(|nth| Row {
            script,
            armed: Armed {
                node,
                point: point.clone(),
                nth,
            },
        })
    });
    rows.collect()
}

/// Whether the fault happened; an error says what was lost.
fn try_row(
    plan: &FaultPlan,
    store: &ObjectStore,
    folder: &Path,
    row: &Row,
) -> Result<bool, String> {
    let run = || {
        let armed = Some(row.armed.clone());
        let mut cluster = Cluster::begin(store, folder, &plan.settings, row.script.nodes, armed);
        (row.script.run)(&mut cluster);
        cluster.end()
    };
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| message(&*panic))
}

fn note(
    report: &mut FaultReport,
    row: &Row,
    outcome: Result<bool, String>,
    folder: &Path,
    progress: &(impl Fn(&str) + Sync),
) {
    let count: &mut FaultCount = report.counts.entry(KIND).or_default();
    match outcome {
        Ok(is_reached) => {
            count.tried += usize::from(is_reached);
            count.survived += usize::from(is_reached);
            // What remains is removed with the folder of the run.
            std::fs::remove_dir_all(folder).ok();
        }
        Err(why) => {
            let (name, armed, place) = (row.script.name, &row.armed, folder.display());
            let line = format!("{name}, {armed:?} ({place}): {why}");
            progress(&line);
            count.tried += 1;
            report.lost.push(line);
        }
    }
}
