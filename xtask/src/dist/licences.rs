//! The licences of everything that is linked into the programs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use super::programs::TARGET;
use crate::failure::{Failure, Outcome, file_failed};
use crate::process::{cargo, output};

/// The C library of static programs has no crate.
const MUSL: &str = "musl (the C library): MIT, copyright its authors, https://musl.libc.org\n";

/// How the names of files with licences and notices begin, in lower case.
const NAMES: [&str; 5] = ["license", "licence", "copying", "notice", "copyright"];

/// Every crate that is linked, and each text once with the crates that it belongs to.
pub(super) fn collect() -> Outcome<String> {
    let linked = linked()?;
    let mut metadata = cargo(&["metadata", "--format-version", "1", "--locked"]);
    metadata.args(["--filter-platform", TARGET]);
    let document = output(&mut metadata)?;
    let document: Value = serde_json::from_str(&document).map_err(|error| Failure::Answer {
        command: "cargo metadata".to_owned(),
        why: error.to_string(),
    })?;
    let mut crates = String::from("Linked into the programs:\n\n");
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in document["packages"].as_array().into_iter().flatten() {
        let text = |key: &str| package[key].as_str().unwrap_or_default();
        let name = format!("{} v{}", text("name"), text("version"));
        if !linked.contains(&name) || package["source"].is_null() {
            continue;
        }
        crates.push_str(&format!("{name}: {}\n", text("license")));
        let folder = Path::new(text("manifest_path")).parent();
        for text in folder.map(texts_in).transpose()?.unwrap_or_default() {
            texts.entry(text).or_default().push(name.clone());
        }
    }
    crates.push_str(MUSL);
    for (text, names) in texts {
        crates.push_str(&format!("\n---- {}\n\n{}\n", names.join(", "), text.trim()));
    }
    Ok(crates)
}

/// `name vVERSION` of the crates that are linked.
fn linked() -> Outcome<BTreeSet<String>> {
    let mut tree = cargo(&["tree", "--locked", "--target", TARGET, "--edges", "normal"]);
    tree.args([
        "--package",
        "server",
        "--package",
        "client",
        "--prefix",
        "none",
    ]);
    let tree = output(tree.args(["--format", "{p}"]))?;
    let names = tree.lines().filter_map(|line| {
        let mut words = line.split(' ');
        Some(format!("{} {}", words.next()?, words.next()?))
    });
    Ok(names.collect())
}

/// The texts of licences and notices in the folder of a crate, by file name.
fn texts_in(folder: &Path) -> Outcome<Vec<String>> {
    let mut texts = Vec::new();
    for name in super::names(folder)? {
        let lower = name.to_lowercase();
        if NAMES.iter().any(|start| lower.starts_with(start)) {
            let path = folder.join(&name);
            let bytes = std::fs::read(&path).map_err(file_failed(&path))?;
            texts.push(String::from_utf8_lossy(&bytes).replace('\r', ""));
        }
    }
    Ok(texts)
}
