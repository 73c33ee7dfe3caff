//! Faults at named points: for each point of the server the process is killed there, and the client
//! hangs up there. What a restart shows must be what the answers promised.
//!
//! Each scenario first runs without a fault; that gives the points that each step reaches, and what
//! the server shows before and after it. A row then repeats the scenario with one fault.

mod control;
mod failing_disk;
mod routes;
mod rows;
mod scenario;
mod small_disk;
mod trial;
mod view;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

pub use self::failing_disk::{FailingDisk, FailingKind, check_failing_disk};
use self::rows::{Row, rows};
use self::scenario::{SCENARIOS, Scenario};
use self::trial::try_row;
use self::view::View;
use self::world::World;
use crate::server::Settings;

/// Which faults to try, and where.
#[derive(Clone, Debug)]
pub struct FaultPlan {
    /// The folder for the files of the servers.
    pub folder: PathBuf,
    /// The settings of the servers; the program must have its fault points.
    pub settings: Settings,
    /// The points in the code.
    pub points: BTreeSet<String>,
    /// Each point once for each kind of fault, instead of in every step that reaches it.
    pub is_short: bool,
    /// Only points whose names begin with this.
    pub only: String,
    /// Rows at a time.
    pub threads: usize,
}

/// The result of the faults of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultCount {
    /// Faults that happened.
    pub tried: usize,
    /// Of these, after which all was as promised.
    pub survived: usize,
}

/// The result of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultReport {
    /// By kind of fault.
    pub counts: BTreeMap<&'static str, FaultCount>,
    /// What was not as promised.
    pub lost: Vec<String>,
    /// Points that no step reached, by kind of fault.
    pub unreached: BTreeSet<String>,
}

/// A run of a scenario without a fault.
struct Clean {
    /// Before each step, and after the last.
    views: Vec<View>,
    /// How often each step reached each point.
    reached: Vec<BTreeMap<String, u64>>,
}

/// Tries every fault of the plan. `progress` gets a line for each that lost something.
///
/// # Panics
/// If a scenario fails without a fault.
pub fn run_faults(plan: &FaultPlan, progress: impl Fn(&str) + Sync) -> FaultReport {
    let clean: Vec<Clean> = thread::scope(|scope| {
        let run = |scenario| move || run_clean(plan, scenario);
        let runs: Vec<_> = SCENARIOS.iter().map(|it| scope.spawn(run(it))).collect();
        let join = |run: thread::ScopedJoinHandle<'_, Clean>| run.join();
        runs.into_iter()
            .map(|run| join(run).expect("a scenario succeeds without faults"))
            .collect()
    });
    let rows = rows(plan, &clean);
    let report = Mutex::new(FaultReport::default());
    let hit = Mutex::new(BTreeSet::new());
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..plan.threads.max(1) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(row) = rows.get(at) else { return };
                    let is_new = claim(&hit, row);
                    if !is_new && plan.is_short {
                        continue;
                    }
                    let folder = plan.folder.join(format!("row-{at}"));
                    let outcome = try_row(plan, &folder, row, &clean[row.at].views);
                    if outcome == Ok(false) && is_new {
                        unclaim(&hit, row);
                    }
                    let mut report = report.lock().expect("no row panics with the report");
                    note(&mut report, row, outcome, &folder, &progress);
                }
            });
        }
    });
    let mut report = report.into_inner().expect("no row panics with the report");
    let hit = hit.into_inner().expect("no row panics with the points");
    let wanted = rows.iter().filter_map(|row| row.fault.name());
    let reached: BTreeSet<&String> = clean
        .iter()
        .flat_map(|it| &it.reached)
        .flat_map(BTreeMap::keys)
        .collect();
    let missing = plan
        .points
        .iter()
        .filter(|point| point.starts_with(&plan.only));
    let missing = missing.filter(|point| !reached.contains(point)).cloned();
    report.unreached = wanted
        .filter(|name| !hit.contains(name))
        .chain(missing)
        .collect();
    report
}

/// Adds the point and kind of a row to those that happened; false if they are among them, or if it
/// has none.
fn claim(hit: &Mutex<BTreeSet<String>>, row: &Row) -> bool {
    let mut hit = hit.lock().expect("no row panics with the points");
    row.fault.name().is_none_or(|name| hit.insert(name))
}

fn unclaim(hit: &Mutex<BTreeSet<String>>, row: &Row) {
    let mut hit = hit.lock().expect("no row panics with the points");
    row.fault.name().map(|name| hit.remove(&name));
}

fn note(
    report: &mut FaultReport,
    row: &Row,
    outcome: Result<bool, String>,
    folder: &Path,
    progress: &(impl Fn(&str) + Sync),
) {
    let count = report.counts.entry(row.fault.kind()).or_default();
    match outcome {
        Ok(is_reached) => {
            count.tried += usize::from(is_reached);
            count.survived += usize::from(is_reached);
            // What remains is removed with the folder of the run.
            std::fs::remove_dir_all(folder).ok();
        }
        Err(why) => {
            let Row {
                scenario,
                step,
                fault,
                at_once,
                ..
            } = row;
            let when = if *at_once {
                "repeated at once"
            } else {
                "repeated after a restart"
            };
            let (name, place) = (scenario.name, folder.display());
            let line = format!("{name}, step {step}, {fault:?}, {when} ({place}): {why}");
            progress(&line);
            count.tried += 1;
            report.lost.push(line);
        }
    }
}

fn run_clean(plan: &FaultPlan, scenario: &Scenario) -> Clean {
    let folder = plan.folder.join(scenario.name.replace(' ', "-"));
    let mut world = World::begin(&folder, &plan.settings, scenario);
    let openapi = world.server.connect().send(&routes::request());
    let missing = routes::missing(&openapi.expect("a ready server answers"));
    assert!(missing.is_empty(), "routes without a scenario: {missing:?}");
    let mut clean = Clean {
        views: vec![world.view()],
        reached: Vec::new(),
    };
    for step in scenario.steps {
        world.control.note();
        world.perform(step);
        clean.views.push(world.view());
        clean.reached.push(world.control.take_reached());
    }
    world.crash();
    let last = clean.views.last().expect("there is a first view");
    let again = world.view_of(|view| view == last);
    assert!(
        again == *last,
        "{}: {}",
        scenario.name,
        again.difference(last)
    );
    clean
}
