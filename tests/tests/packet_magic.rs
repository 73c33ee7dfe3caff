//! A CTF packet that does not begin with the magic number of packets: no query takes what follows
//! for events, and each says that they are missing.

use std::fs;
use std::path::Path;

use harness::Server;

use crate::queries::{run, wait_for_indexes};

/// The events of all packets, and of each of the first two.
const EVENTS: u64 = 800;
const OF_ONE: u64 = 218;
/// The length of a packet.
const BYTES: usize = 16_384;

fn copied(to: &Path, has_index: bool) {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/lttng/uid/0/64-bit");
    let copy = |from: &Path, to: &Path| {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
            }
        }
    };
    copy(&from, to);
    if has_index {
        copy(&from.join("index"), &to.join("index"));
    }
}

#[test]
fn a_packet_with_another_magic_number_is_told_by_every_query() {
    let folder = tempfile::tempdir().unwrap();
    let (_data, server, mut api) = Server::fresh();
    let url = server.url();
    for (packet, has_index, expected) in [
        (1, true, EVENTS - OF_ONE),
        (1, false, OF_ONE),
        (0, true, EVENTS - OF_ONE),
        // Nothing says where the next packet begins.
        (0, false, 0),
    ] {
        let case = format!("packet {packet}, index {has_index}");
        let trace = folder.path().join(&case);
        copied(&trace, has_index);
        let local = trace.to_str().unwrap();
        let count = |source: &[&str]| {
            let (code, out, errors) = run(&[&["query", "--count"], source].concat());
            (code, out.trim().parse::<u64>().unwrap_or(0), errors)
        };
        let (code, found, errors) = count(&[local]);
        assert_eq!((code, found), (0, EVENTS), "{errors}");
        let path = trace.join("chan_1");
        let mut bytes = fs::read(&path).unwrap();
        bytes[packet * BYTES] ^= 1;
        fs::write(&path, bytes).unwrap();
        let (code, found, errors) = count(&[local]);
        assert_eq!((code, found), (1, expected), "{case}: {errors}");
        assert!(errors.contains("magic number"), "{errors}");
        let (code, _, errors) = run(&["decode", local, "-o", "counter"]);
        assert!(code == 1 && errors.contains("magic number"), "{errors}");
        let storage = api.create_storage(&case);
        let (_, _, errors) = run(&["push", "--server", &url, "--storage", &storage, local]);
        let stored = ["--server", &url, "--storage", &storage];
        for is_finalized in [false, true] {
            if is_finalized {
                api.finalize(&storage);
                wait_for_indexes(&server, &storage);
            }
            let (code, found, told) = count(&stored);
            assert_eq!((code, found), (1, expected), "{case}: {errors}{told}");
            // An index counts what cannot be read.
            let reason = if is_finalized {
                "cannot be read"
            } else {
                "magic number"
            };
            assert!(told.contains(reason), "{told}");
            let (code, _, told) = count(&[&stored[..], &["--strict"]].concat());
            assert!(code != 0, "{told}");
        }
    }
}
