//! Which crate may import which: the floors of `ARCHITECTURE.md` as data.

use serde_json::Value;

use super::Finding;
use crate::failure::{Failure, Outcome};

/// A crate, its floor, and every crate of ours that it may import.
struct Room {
    name: &'static str,
    floor: u8,
    may_import: &'static [&'static str],
}

const GROUND: &[&str] = &["ctf", "io-trace", "storage-format", "query-language"];

const READING: &[&str] = &[
    "ctf",
    "io-trace",
    "trace-kinds",
    "storage-format",
    "chunk-index",
    "query-language",
];

const ROOF: u8 = 9;

const ROOMS: &[Room] = &[
    Room {
        name: "storage-format",
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
    // Below the storages, because their doors to the disk call it.
    Room {
        name: "io-trace",
        floor: 0,
        may_import: &[],
    },
    Room {
        name: "trace-kinds",
        floor: 1,
        may_import: GROUND,
    },
    Room {
        name: "chunk-index",
        floor: 1,
        may_import: GROUND,
    },
    Room {
        name: "storage-core",
        floor: 2,
        may_import: &["io-trace", "storage-format"],
    },
    Room {
        name: "query-engine",
        floor: 2,
        may_import: READING,
    },
    Room {
        name: "io-analysis",
        floor: 2,
        may_import: READING,
    },
    Room {
        name: "recording",
        floor: 3,
        may_import: &[
            "ctf",
            "io-trace",
            "storage-core",
            "trace-kinds",
            "storage-format",
            "chunk-index",
            "query-language",
            "query-engine",
        ],
    },
    Room {
        name: "migrations",
        floor: 3,
        may_import: &["storage-core", "storage-format"],
    },
    Room {
        name: "client",
        floor: 3,
        may_import: &[
            "ctf",
            "io-trace",
            "io-analysis",
            "trace-kinds",
            "storage-format",
            "chunk-index",
            "query-language",
            "query-engine",
        ],
    },
    Room {
        name: "server",
        floor: 4,
        may_import: &[
            "ctf",
            "io-trace",
            "migrations",
            "recording",
            "storage-core",
            "io-analysis",
            "trace-kinds",
            "storage-format",
            "chunk-index",
            "query-language",
            "query-engine",
        ],
    },
    // The harness starts the programs and speaks HTTP; what it imports is for judging them.
    Room {
        name: "tests",
        floor: ROOF - 1,
        may_import: &[
            "client",
            "ctf",
            "trace-kinds",
            "storage-format",
            "query-language",
        ],
    },
    Room {
        name: "xtask",
        floor: ROOF,
        may_import: &["tests"],
    },
];

/// Crates of others that only some rooms may import, and why.
const RESERVED: &[(&str, &[&str], &str)] = &[
    ("axum", &["server"], "HTTP routing is the server's"),
    ("sled", &["storage-core"], "the catalog alone knows it"),
    (
        "tokio-uring",
        &["storage-core"],
        "the I/O thread alone knows it",
    ),
    (
        "bincode",
        &["storage-format"],
        "bodies inside envelopes alone use it",
    ),
    ("reqwest", &["client"], "the server calls nobody"),
];

/// The async runtime begins on this floor.
const TOKIO_FLOOR: u8 = 2;

/// Looks at every dependency of every crate, those for tests and builds too.
pub(super) fn findings(metadata: &str) -> Outcome<Vec<Finding>> {
    let odd = |why: String| Failure::Answer {
        command: "cargo metadata".to_owned(),
        why,
    };
    let metadata: Value = serde_json::from_str(metadata).map_err(|error| odd(error.to_string()))?;
    let packages = metadata["packages"]
        .as_array()
        .ok_or_else(|| odd("it has no packages".to_owned()))?;
    Ok(packages.iter().flat_map(package_findings).collect())
}

fn package_findings(package: &Value) -> Vec<Finding> {
    let name = package["name"].as_str().unwrap_or_default();
    let path = format!("{name}/Cargo.toml");
    let Some(room) = ROOMS.iter().find(|room| room.name == name) else {
        let what = format!("crate {name} has no line in the floor table (tidy/floors.rs)");
        return vec![Finding::new(&path, 0, what)];
    };
    let dependencies = package["dependencies"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    dependencies
        .iter()
        .filter_map(|dependency| {
            let imported = dependency["name"].as_str().unwrap_or_default();
            let is_ours = !dependency["path"].is_null();
            objection(room, imported, is_ours)
        })
        .map(|what| Finding::new(&path, 0, what))
        .collect()
}

fn objection(room: &Room, imported: &str, is_ours: bool) -> Option<String> {
    if is_ours && !room.may_import.contains(&imported) {
        let name = room.name;
        return Some(format!(
            "{name} may not import {imported}: no such edge in the floor table"
        ));
    }
    if imported == "tokio" && room.floor < TOKIO_FLOOR {
        return Some(format!(
            "tokio begins on floor {TOKIO_FLOOR}; this is {}",
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
            .map(|(name, is_ours)| {
                let path = if *is_ours {
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
    fn edges_of_the_table_pass() {
        check(
            "storage-core",
            &[("storage-format", true), ("tokio", false), ("sled", false)],
            &[],
        );
        check("server", &[("storage-core", true), ("axum", false)], &[]);
    }

    #[test]
    fn other_edges_are_found() {
        let edge = "may not import storage-core: no such edge in the floor table";
        check(
            "client",
            &[("storage-core", true)],
            &[&format!("client {edge}")],
        );
        check("ctf", &[("storage-core", true)], &[&format!("ctf {edge}")]);
        check(
            "chunk-index",
            &[("tokio", false)],
            &["tokio begins on floor 2; this is 1"],
        );
        let why = "axum belongs to server: HTTP routing is the server's";
        check("client", &[("axum", false)], &[why]);
    }

    #[test]
    fn a_crate_without_a_line_is_found() {
        let what = "crate utils has no line in the floor table (tidy/floors.rs)";
        check("utils", &[], &[what]);
    }

    #[test]
    fn the_table_itself_goes_downwards() {
        for room in ROOMS {
            for imported in room.may_import {
                let below = ROOMS.iter().find(|other| other.name == *imported).unwrap();
                assert!(below.floor < room.floor, "{} imports {imported}", room.name);
            }
        }
    }

    #[test]
    fn what_is_not_metadata_is_a_failure() {
        assert!(findings("{}").is_err());
        assert!(findings("no").is_err());
    }
}
