//! `cargo xtask test`: bring what the tests need, build the programs, run every test.

use crate::failure::{Failure, Outcome};
use crate::install::{self, Origin, Peer, Tool};
use crate::process::{cargo, on_path, run, target};

/// Programs that tests start and that cargo does not bring.
const TOOLS: &[Tool] = &[Tool {
    program: "python3",
    from: Origin::Apt(&["python3", "python3-venv"]),
    needed_for: "grading the byte-range answers of the server, and peers from PyPI",
}];

/// Programs of others whose reading of our files and answers is compared with ours.
const PEERS: &[Tool] = &[
    Tool {
        program: "babeltrace2",
        from: Origin::Apt(&["babeltrace2"]),
        needed_for: "reading CTF traces as others do",
    },
    Tool {
        program: "fio",
        from: Origin::Apt(&["fio"]),
        needed_for: "replaying an exported I/O trace",
    },
    Tool {
        program: "nginx",
        from: Origin::Apt(&["nginx-light"]),
        needed_for: "standing in front of the server",
    },
    Tool {
        program: "unzip",
        from: Origin::Apt(&["unzip"]),
        needed_for: "reading archives",
    },
];

/// The SDK and the exporter that the recordings are tested with.
const OPENTELEMETRY: Peer = Peer {
    name: "opentelemetry",
    packages: &[
        "opentelemetry-sdk==1.45.2",
        "opentelemetry-exporter-otlp-proto-http==1.45.2",
    ],
    module: "opentelemetry.exporter.otlp.proto.http.trace_exporter",
};

/// Readers of the tables and timelines that queries write.
const TABLES: Peer = Peer {
    name: "tables",
    packages: &["duckdb==2.0.0", "perfetto==0.59.1", "pyarrow==26.0.1"],
    module: "duckdb, perfetto, pyarrow",
};

/// Brings what our answers are compared with. Where something cannot be brought, its cases say
/// that they pass without running; in CI that is a failure.
fn bring_peers() -> Outcome {
    let mut missing: Vec<String> = install::ensure(PEERS)
        .err()
        .map(|failure| failure.to_string())
        .into_iter()
        .collect();
    for peer in [OPENTELEMETRY, TABLES] {
        if !install::ensure_peer(peer) {
            missing.push(format!("no {} for Python", peer.name));
        }
    }
    for what in &missing {
        println!("{what}: its cases pass without running");
    }
    if missing.is_empty() || std::env::var_os("CI").is_none() {
        return Ok(());
    }
    Err(Failure::Run("in CI every peer must be there".to_owned()))
}

/// Runs everything, or with a filter only the tests whose name contains it.
pub(crate) fn run_job(arguments: &[String]) -> Outcome {
    install::ensure(TOOLS)?;
    bring_peers()?;
    // The runner shows nothing of cases that pass; those that skip themselves say it here as well.
    if harness::corpora().is_none() {
        println!("cases on real traces pass without running");
    }
    // The end-to-end tests start the real programs: built once here, not by every test process.
    run(&mut cargo(&[
        "build",
        "--package",
        "server",
        "--package",
        "client",
        "--bins",
    ]))?;
    // Documentation tests come first: the last lines of this job are those of the main run.
    if arguments.is_empty() {
        run(&mut cargo(&["test", "--workspace", "--doc", "--quiet"]))?;
    }
    let mut tests = if on_path("cargo-nextest") {
        cargo(&["nextest", "run", "--workspace"])
    } else {
        cargo(&["test", "--workspace", "--lib", "--bins", "--tests"])
    };
    run(tests
        .args(arguments)
        .env("PROGRAMS_UNDER_TEST", target().join("debug")))
}
