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

const GROUND: &[&str] = &["ctf", "io-trace", "trace-format", "trace-query"];

const READING: &[&str] = &[
    "ctf",
    "io-trace",
    "trace-events",
    "trace-format",
    "trace-index",
    "trace-query",
];

const ROOF: u8 = 9;

const ROOMS: &[Room] = &[
    Room {
        name: "trace-format",
        floor: 0,
        may_import: &[],
    },
    Room {
        name: "ctf",
        floor: 0,
        may_import: &[],
    },
    Room {
        name: "trace-query",
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
        name: "trace-events",
        floor: 1,
        may_import: GROUND,
    },
    Room {
        name: "trace-index",
        floor: 1,
        may_import: GROUND,
    },
    Room {
        name: "storage-core",
        floor: 2,
        may_import: &["io-trace", "trace-format"],
    },
    Room {
        name: "trace-read",
        floor: 2,
        may_import: READING,
    },
    Room {
        name: "trace-analysis",
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
            "trace-events",
            "trace-format",
            "trace-index",
            "trace-query",
            "trace-read",
        ],
    },
    Room {
        name: "migrations",
        floor: 3,
        may_import: &["storage-core", "trace-format"],
    },
    Room {
        name: "client",
        floor: 3,
        may_import: &[
            "ctf",
            "io-trace",
            "trace-analysis",
            "trace-events",
            "trace-format",
            "trace-index",
            "trace-query",
            "trace-read",
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
            "trace-analysis",
            "trace-events",
            "trace-format",
            "trace-index",
            "trace-query",
            "trace-read",
        ],
    },
    // The harness starts the programs and speaks HTTP; what it imports is for judging them.
    Room {
        name: "tests",
        floor: ROOF - 1,
        may_import: &[
            "client",
            "ctf",
            "trace-events",
            "trace-format",
            "trace-query",
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
        &["trace-format"],
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
            &[("trace-format", true), ("tokio", false), ("sled", false)],
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
            "trace-index",
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
