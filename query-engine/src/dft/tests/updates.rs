//! Sidecars that are brought up to date.

use super::*;

#[test]
fn a_sidecar_is_brought_up_to_date_with_the_least_work() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.pfw.gz");
    std::fs::write(&path, gzip(&version_1(1, 2_000), 20_000)).unwrap();
    let mut more = options(50_000);
    more.config.add(FieldPath::new("epoch"));
    let mut other = options(50_000);
    other.config.false_positive_rate = 0.1;
    let steps = [
        (options(50_000), Update::Built),
        (options(50_000), Update::Fresh),
        (more.clone(), Update::Extended(vec!["args.epoch".into()])),
        (more.clone(), Update::Fresh),
        (options(50_000), Update::Fresh),
        (other, Update::Built),
        (
            BuildOptions {
                chunk_bytes: 70_000,
                ..more
            },
            Update::Built,
        ),
    ];
    for (options, expected) in steps {
        let indexed = update_sidecar(&path, &options, false).unwrap();
        assert_eq!((indexed.update, indexed.events), (expected, 2_000));
        let (found, report) = ask_count(std::slice::from_ref(&path), &request("epoch == 3"), true);
        assert_eq!((found, report.indexed), (200, 1));
    }
    assert_eq!(
        update_sidecar(&path, &options(50_000), true)
            .unwrap()
            .update,
        Update::Built
    );
    std::fs::write(&path, gzip(&version_1(1, 541), 20_000)).unwrap();
    assert_eq!(
        update_sidecar(&path, &options(50_000), false)
            .unwrap()
            .events,
        541
    );
}
