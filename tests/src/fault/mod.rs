//! Faults at named points: for each point of the server the process is killed there, and the client
//! hangs up there. What a restart shows must be what the answers promised.
//!
//! Each scenario first runs without a fault; that gives the points that each step reaches, and what
//! the server shows before and after it. A row then repeats the scenario with one fault.

mod cluster;
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

pub use self::cluster::run_cluster_faults;
pub use self::failing_disk::{FailingDisk, FailingKind, check_failing_disk};
use self::rows::{Row, rows};
use self::scenario::{SCENARIOS, Scenario};
use self::trial::try_row;
use self::view::View;
use self::world::World;
use crate::server::Settings;

/// Points with this prefix are reached by work that no request waits for.
const IN_BACKGROUND: &str = "arrange.file_";

/// The short form tries the rows of a point again this often, until one has reached it.
const ROUNDS: usize = 3;

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

impl FaultReport {
    /// Adds what another run found.
    pub fn add(&mut self, other: Self) {
        self.counts.extend(other.counts);
        self.lost.extend(other.lost);
        self.unreached.extend(other.unreached);
    }
}

/// A run of a scenario without a fault.
struct Clean {
    /// Before each step, and after the last.
    views: Vec<View>,
    /// How often each step reached each point.
    reached: Vec<BTreeMap<String, u64>>,
}

impl Clean {
    /// Points that another step reached, but that work in the background may reach in this one: how
    /// many batches the packets make, and so when a file is full, depends on the machine.
    fn in_background(&self, step: usize) -> impl Iterator<Item = &str> {
        let is_here = move |point: &str| self.reached[step].contains_key(point);
        let all = self.reached.iter().flat_map(BTreeMap::keys);
        let all: BTreeSet<&str> = all.map(String::as_str).collect();
        let all = all.into_iter();
        all.filter(move |point| point.starts_with(IN_BACKGROUND) && !is_here(point))
    }
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
    let run = Run {
        plan,
        clean: &clean,
        report: Mutex::new(FaultReport::default()),
        hit: Mutex::new(BTreeSet::new()),
    };
    let all: Vec<_> = rows.iter().enumerate().collect();
    run.try_all(&all, plan.threads, &progress);
    for _ in 0..if plan.is_short { ROUNDS } else { 0 } {
        // Rows that waited for another one of their point, which may not have reached it; and work
        // in the background, which may be at another step each time.
        let left: Vec<_> = all
            .iter()
            .copied()
            .filter(|(_, row)| run.is_left(row))
            .collect();
        run.try_all(&left, 1, &progress);
    }
    let Run { report, hit, .. } = run;
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
        .filter(|point| point.starts_with(&plan.only) && !point.starts_with(cluster::POINTS));
    let missing = missing.filter(|point| !reached.contains(point)).cloned();
    report.unreached = wanted
        .filter(|name| !hit.contains(name))
        .chain(missing)
        .collect();
    report
}

/// What the threads of a run share.
struct Run<'a> {
    plan: &'a FaultPlan,
    clean: &'a [Clean],
    report: Mutex<FaultReport>,
    /// Names of the faults that happened.
    hit: Mutex<BTreeSet<String>>,
}

impl Run<'_> {
    /// Tries rows, each with its number.
    fn try_all(&self, rows: &[(usize, &Row)], threads: usize, progress: &(impl Fn(&str) + Sync)) {
        let next = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..threads.max(1) {
                scope.spawn(|| {
                    while let Some(&row) = rows.get(next.fetch_add(1, Ordering::Relaxed)) {
                        self.try_one(row, progress);
                    }
                });
            }
        });
    }

    /// Whether the fault of a row has not happened yet.
    fn is_left(&self, row: &Row) -> bool {
        let hit = self.hit.lock().expect("no row panics with the points");
        row.fault.name().is_some_and(|name| !hit.contains(&name))
    }

    fn try_one(&self, (at, row): (usize, &Row), progress: &(impl Fn(&str) + Sync)) {
        let is_new = claim(&self.hit, row);
        if !is_new && self.plan.is_short {
            return;
        }
        let folder = self.plan.folder.join(format!("row-{at}"));
        let outcome = try_row(self.plan, &folder, row, &self.clean[row.at].views);
        if outcome == Ok(false) && is_new {
            unclaim(&self.hit, row);
        }
        let mut report = self.report.lock().expect("no row panics with the report");
        note(&mut report, row, outcome, &folder, progress);
    }
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
        world.settle(scenario);
        clean.views.push(world.view());
        clean.reached.push(world.control.take_reached());
    }
    world.crash();
    let last = clean.views.last().expect("there is a first view");
    let again = world.view_of(|view| view == last);
    let unreadable = last.unreadable();
    assert!(unreadable.is_empty(), "{}: {unreadable:?}", scenario.name);
    assert!(
        again == *last,
        "{}: {}",
        scenario.name,
        again.difference(last)
    );
    clean
}
