//! Named points at which a test stops the process or delays it, and sabotages that the tests must
//! find. All of it is compiled with the feature `fault-points` only.
//!
//! The folder that `FAULT_POINTS_FOLDER` names controls a running process. Its file `plan`
//! contains one of:
//!
//! * `note`: the name of each point that is reached becomes a line of `reached`.
//! * `POINT N kill`: the process aborts when it reaches the point for the Nth time under this plan.
//! * `POINT N hold`: there it creates `held` and waits until `released` exists.
//!
//! Without the variable or the file nothing happens. `FAULT_SABOTAGE` names one sabotage.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    sync::LazyLock,
    time::Duration,
};

use parking_lot::Mutex;

/// How often a process that waits at a point looks for the file `released`.
const POLL: Duration = Duration::from_millis(1);

static FOLDER: LazyLock<Option<PathBuf>> =
    LazyLock::new(|| std::env::var_os("FAULT_POINTS_FOLDER").map(PathBuf::from));
static SABOTAGE: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("FAULT_SABOTAGE").ok());
static PLAN: Mutex<Plan> = Mutex::new(Plan {
    text: String::new(),
    count: 0,
});

/// The plan that was read last, and how often its point was reached under it.
struct Plan {
    text: String,
    count: u64,
}

/// Whether the sabotage with this name is on.
#[must_use]
pub fn is_sabotaged(name: &str) -> bool {
    SABOTAGE.as_deref() == Some(name)
}

/// Reaches a point; blocks the thread while it holds.
pub fn reach(name: &str) {
    if let Some(released) = carry_out(name) {
        while !released.exists() {
            std::thread::sleep(POLL);
        }
    }
}

/// Reaches a point; waits without blocking the thread while it holds.
pub async fn pass(name: &str) {
    if let Some(released) = carry_out(name) {
        while !released.exists() {
            tokio::time::sleep(POLL).await;
        }
    }
}

/// Does what the plan says about this point; returns the file to wait for.
fn carry_out(name: &str) -> Option<PathBuf> {
    let folder = FOLDER.as_ref()?;
    let text = fs::read_to_string(folder.join("plan")).ok()?;
    let mut plan = PLAN.lock();
    if plan.text != text {
        *plan = Plan { text, count: 0 };
    }
    if plan.text.trim() == "note" {
        note(folder, name);
        return None;
    }
    let mut words = plan.text.split_whitespace();
    let (point, nth, action) = (words.next()?, words.next()?.parse().ok()?, words.next()?);
    if point != name {
        return None;
    }
    let is_kill = action == "kill";
    plan.count = plan.count.saturating_add(1);
    if plan.count != nth {
        return None;
    }
    if is_kill {
        std::process::abort();
    }
    let held = fs::write(folder.join("held"), name);
    held.expect("the folder of the fault points can be written");
    Some(folder.join("released"))
}

fn note(folder: &Path, name: &str) {
    let options = fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(folder.join("reached"));
    let noted = options.and_then(|mut file| file.write_all(format!("{name}\n").as_bytes()));
    noted.expect("the folder of the fault points can be written");
}
