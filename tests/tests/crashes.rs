//! A short run of `cargo xtask crash`.

use std::time::Duration;

use harness::{CrashPlan, crash, crash_settings};

fn check(seed: u64, kills: u32) {
    let folder = tempfile::tempdir().unwrap();
    let plan = CrashPlan {
        folder: folder.path().to_owned(),
        settings: crash_settings(),
        kills,
        seed,
        delay_max: Duration::from_millis(200),
    };
    let report = crash(&plan, |_| {});
    assert!(
        report.kills() >= kills && report.acknowledged > 0,
        "{report:?}"
    );
}

#[test]
fn kills_neither_lose_nor_duplicate_acknowledged_packets() {
    check(1, 25);
}

#[test]
fn another_order_of_kills_loses_nothing() {
    check(2, 25);
}
