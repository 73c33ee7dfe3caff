//! A short run of `cargo xtask model`.

use harness::{ModelPlan, model_settings, run_model};

fn check(seed: u64) {
    let folder = tempfile::tempdir().unwrap();
    let report = run_model(&ModelPlan {
        folder: folder.path().to_owned(),
        settings: model_settings(),
        operations: 150,
        seed,
    });
    for operation in [
        "create", "push", "finalize", "label", "copy", "export", "delete",
    ] {
        assert!(
            report.done.contains_key(operation),
            "no {operation}: {report:?}"
        );
    }
    assert!(report.refused.contains_key("push"), "{report:?}");
}

#[test]
fn random_operations_match_the_model() {
    check(1);
}

#[test]
fn another_sequence_of_operations_matches_the_model() {
    check(2);
}
