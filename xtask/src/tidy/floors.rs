//! Which crate may import which: the floors of `ARCHITECTURE.md` as data.

use serde_json::Value;

use super::Finding;
use crate::failure::{Failure, Outcome};

/// A crate, its floor, and every workspace crate that it may import.
struct Room {
    name: &'static str,
    floor: u8,
    may_import: &'static [&'static str],
}

const FLOOR_0: &[&str] = &["ctf", "io-trace", "query-language", "storage-format"];

const FLOORS_0_AND_1: &[&str] = &[
    "chunk-index",
    "ctf",
    "io-trace",
    "query-language",
    "storage-format",
    "trace-kinds",
];

/// Everything below the query engine except `storage-core`: the engine gets bytes through `Fetch`
/// and does not know where they are.
const BELOW_QUERIES: &[&str] = &[
    "chunk-index",
    "ctf",
    "ctf-folder",
    "io-analysis",
    "io-trace",
    "query-language",
    "row-formats",
    "storage-format",
    "trace-kinds",
];

const FLOORS_0_TO_2: &[&str] = &[
    "chunk-index",
    "ctf",
    "ctf-folder",
    "io-analysis",
    "io-trace",
    "query-language",
    "row-formats",
    "storage-core",
    "storage-format",
    "trace-kinds",
];

const ROOF: u8 = 9;

/// One row for each crate. A crate may be listed before it exists.
const ROOMS: &[Room] = &[
    Room {
        name: "storage-format",
        floor: 0,
        may_import: &[],
    },
    Room {
        name: "audit-log",
        floor: 0,
        may_import: &[],
    },
    Room {
        name: "ctf",
        floor: 0,
        may_import: &[],
    },
    Room {
        name: "query-language",
        floor: 0,
        may_import: &[],
    },
    // Below the storages, because the disk interface and the caches call it.
    Room {
        name: "io-trace",
        floor: 0,
        may_import: &[],
    },
    Room {
        name: "trace-kinds",
        floor: 1,
        may_import: FLOOR_0,
    },
    Room {
        name: "chunk-index",
        floor: 1,
        may_import: FLOOR_0,
    },
    Room {
        name: "ctf-folder",
        floor: 2,
        may_import: FLOORS_0_AND_1,
    },
    Room {
        name: "row-formats",
        floor: 2,
        may_import: FLOORS_0_AND_1,
    },
    Room {
        name: "io-analysis",
        floor: 2,
        may_import: FLOORS_0_AND_1,
    },
    // It never examines a payload, so it needs no decoder and no index. Labels use the parser of
    // times of the query language.
    Room {
        name: "storage-core",
        floor: 2,
        may_import: &["io-trace", "query-language", "storage-format"],
    },
    Room {
        name: "query-engine",
        floor: 3,
        may_import: BELOW_QUERIES,
    },
    Room {
        name: "recording",
        floor: 3,
        may_import: FLOORS_0_TO_2,
    },
    Room {
        name: "migrations",
        floor: 3,
        may_import: &["storage-core", "storage-format"],
    },
    Room {
        name: "object-tier",
        floor: 2,
        may_import: &["storage-format"],
    },
    // It reads storages over HTTP or from a folder, never through `storage-core`.
    Room {
        name: "client",
        floor: 4,
        may_import: &[
            "audit-log",
            "chunk-index",
            "ctf",
            "ctf-folder",
            "io-analysis",
            "io-trace",
            "query-engine",
            "query-language",
            "row-formats",
            "storage-format",
            "trace-kinds",
        ],
    },
    Room {
        name: "server",
        floor: 4,
        may_import: &[
            "audit-log",
            "chunk-index",
            "ctf",
            "ctf-folder",
            "io-analysis",
            "io-trace",
            "migrations",
            "object-tier",
            "query-engine",
            "query-language",
            "recording",
            "row-formats",
            "storage-core",
            "storage-format",
            "trace-kinds",
        ],
    },
    // The harness starts the programs and speaks HTTP; it imports crates only to check results.
    Room {
        name: "tests",
        floor: ROOF - 1,
        may_import: &[
            "client",
            "ctf",
            "object-tier",
            "query-language",
            "row-formats",
            "storage-format",
            "trace-kinds",
        ],
    },
    Room {
        name: "xtask",
        floor: ROOF,
        may_import: &["tests"],
    },
];

/// External crates that only some crates may import, and why.
const RESERVED: &[(&str, &[&str], &str)] = &[
    ("arrow-array", &["row-formats"], "only rows become tables"),
    ("arrow-ipc", &["row-formats"], "only rows become tables"),
    ("arrow-schema", &["row-formats"], "only rows become tables"),
    ("parquet", &["row-formats"], "only rows become tables"),
    (
        "memmap2",
        &["ctf"],
        "a read error must be an error, not a signal; ctf's example maps its input",
    ),
    ("axum", &["server"], "HTTP routing is the server's task"),
    ("sled", &["storage-core"], "only the catalog uses it"),
    (
        "tokio-uring",
        &["storage-core"],
        "only the I/O thread uses it",
    ),
    (
        "bincode",
        &["storage-format"],
        "only bodies inside envelopes use it",
    ),
    (
        "ring",
        &["audit-log", "client", "server", "storage-format"],
        "only secrets and seals need it",
    ),
    ("blake3", &["storage-format"], "only seals use it"),
    ("subtle", &["server"], "only its secrets need it"),
    (
        "reqwest",
        &["client", "object-tier"],
        "the server asks nobody but the object store",
    ),
    (
        "object_store",
        &["object-tier"],
        "only object-tier knows the store",
    ),
    (
        "arrow-array",
        &["row-formats"],
        "only row-formats writes tables",
    ),
    (
        "arrow-ipc",
        &["row-formats"],
        "only row-formats writes tables",
    ),
    (
        "arrow-schema",
        &["row-formats"],
        "only row-formats writes tables",
    ),
    (
        "parquet",
        &["row-formats"],
        "only row-formats writes tables",
    ),
];

/// The lowest floor that may use the async runtime.
const TOKIO_FLOOR: u8 = 2;

/// Checks every dependency of every crate, including those of tests and build scripts.
pub(super) fn findings(metadata: &str) -> Outcome<Vec<Finding>> {
    let malformed = |why: String| Failure::Answer {
        command: "cargo metadata".to_owned(),
        why,
    };
    let metadata: Value =
        serde_json::from_str(metadata).map_err(|error| malformed(error.to_string()))?;
    let packages = metadata["packages"]
        .as_array()
        .ok_or_else(|| malformed("it has no packages".to_owned()))?;
    Ok(packages.iter().flat_map(package_findings).collect())
}

fn package_findings(package: &Value) -> Vec<Finding> {
    let name = package["name"].as_str().unwrap_or_default();
    let path = format!("{name}/Cargo.toml");
    let Some(room) = ROOMS.iter().find(|room| room.name == name) else {
        let what = format!("crate {name} has no row in the floor table (xtask/src/tidy/floors.rs)");
        return vec![Finding::new(&path, 0, what)];
    };
    let dependencies = package["dependencies"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    dependencies
        .iter()
        .filter_map(|dependency| {
            let imported = dependency["name"].as_str().unwrap_or_default();
            let is_local = !dependency["path"].is_null();
            objection(room, imported, is_local)
        })
        .map(|what| Finding::new(&path, 0, what))
        .collect()
}

fn objection(room: &Room, imported: &str, is_local: bool) -> Option<String> {
    if is_local && !room.may_import.contains(&imported) {
        let name = room.name;
        return Some(format!(
            "{name} may not import {imported}: the floor table has no such edge"
        ));
    }
    if imported == "tokio" && room.floor < TOKIO_FLOOR {
        return Some(format!(
            "tokio starts on floor {TOKIO_FLOOR}; this crate is on floor {}",
            room.floor
        ));
    }
    let (name, rooms, why) = RESERVED.iter().find(|(name, ..)| *name == imported)?;
    let allowed = rooms.contains(&room.name);
    (!allowed).then(|| format!("{name} belongs to {}: {why}", rooms.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, dependencies: &[(&str, bool)], expected: &[&str]) {
        let dependencies: Vec<Value> = dependencies
            .iter()
            .map(|(name, is_local)| {
                let path = if *is_local {
                    Value::from("/x")
                } else {
                    Value::Null
                };
                serde_json::json!({ "name": name, "path": path })
            })
            .collect();
        let package = serde_json::json!({ "name": name, "dependencies": dependencies });
        let metadata = serde_json::json!({ "packages": [package] }).to_string();
        let found: Vec<String> = findings(&metadata)
            .unwrap()
            .into_iter()
            .map(|finding| finding.what)
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn edges_in_the_table_pass() {
        check(
            "storage-core",
            &[("storage-format", true), ("tokio", false), ("sled", false)],
            &[],
        );
        check("server", &[("storage-core", true), ("axum", false)], &[]);
    }

    #[test]
    fn other_edges_are_reported() {
        let edge = "may not import storage-core: the floor table has no such edge";
        check(
            "client",
            &[("storage-core", true)],
            &[&format!("client {edge}")],
        );
        check("ctf", &[("storage-core", true)], &[&format!("ctf {edge}")]);
        check(
            "chunk-index",
            &[("tokio", false)],
            &["tokio starts on floor 2; this crate is on floor 1"],
        );
        let why = "axum belongs to server: HTTP routing is the server's task";
        check("client", &[("axum", false)], &[why]);
        let why = "parquet belongs to row-formats: only rows become tables";
        check("query-engine", &[("parquet", false)], &[why]);
    }

    #[test]
    fn a_crate_without_a_row_is_reported() {
        let what = "crate utils has no row in the floor table (xtask/src/tidy/floors.rs)";
        check("utils", &[], &[what]);
    }

    #[test]
    fn every_edge_in_the_table_points_down() {
        for room in ROOMS {
            for imported in room.may_import {
                let below = ROOMS.iter().find(|other| other.name == *imported).unwrap();
                assert!(below.floor < room.floor, "{} imports {imported}", room.name);
            }
        }
    }

    #[test]
    fn malformed_metadata_is_a_failure() {
        assert!(findings("{}").is_err());
        assert!(findings("no").is_err());
    }
}
