//! Named points at which a test kills the process. What happens there is decided by the program:
//! this crate does not know the plan of the test.

use std::sync::OnceLock;

static ON_POINT: OnceLock<fn(&str)> = OnceLock::new();

/// Calls this at each point that is reached from now on. Only the first call counts.
pub fn on_point(call: fn(&str)) {
    // One program has one plan.
    let _ = ON_POINT.set(call);
}

/// Whether the sabotage with this name is on, as in `storage-core`.
pub(crate) fn is_sabotaged(name: &str) -> bool {
    std::env::var("FAULT_SABOTAGE").is_ok_and(|on| on == name)
}

pub(crate) fn reach(name: &str) {
    if let Some(call) = ON_POINT.get() {
        call(name);
    }
}
