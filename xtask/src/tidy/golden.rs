//! Golden bytes of the on-disk format never change: a new version gets a new folder.
//!
//! Every file below a folder `golden/vN/` or `fixtures/vN/` has a line in `golden.sums`: its 64-bit
//! FNV-1a hash (sufficient against mistakes), length and path.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use super::Finding;
use crate::failure::{Failure, Outcome};

/// The list, in the root of the repository.
const SUMS: &str = "golden.sums";

/// Files that changed, were removed, or have no line.
pub(super) fn findings(root: &Path) -> Outcome<Vec<Finding>> {
    Ok(compare(&recorded(root)?, &present(root)?))
}

/// Adds lines for new files. Existing lines never change.
pub(super) fn bless(root: &Path) -> Outcome {
    let recorded = recorded(root)?;
    let mut sums = present(root)?;
    sums.extend(recorded);
    let mut text = String::new();
    for (path, sum) in &sums {
        writeln!(text, "{sum}  {path}").expect("writing to a string does not fail");
    }
    let path = root.join(SUMS);
    std::fs::write(&path, text).map_err(|source| Failure::File { path, source })
}

type Sums = BTreeMap<String, String>;

fn compare(recorded: &Sums, present: &Sums) -> Vec<Finding> {
    let changed = recorded
        .iter()
        .filter_map(|(path, sum)| match present.get(path) {
            None => Some(Finding::new(
                path,
                0,
                "golden bytes are permanent, but this file does not exist",
            )),
            Some(now) if now != sum => Some(Finding::new(
                path,
                0,
                "golden bytes never change: add a folder for a new version",
            )),
            Some(_) => None,
        });
    let unknown = present
        .keys()
        .filter(|path| !recorded.contains_key(*path))
        .map(|path| {
            Finding::new(
                path,
                0,
                "new golden bytes: record with cargo xtask tidy --bless",
            )
        });
    changed.chain(unknown).collect()
}

fn recorded(root: &Path) -> Outcome<Sums> {
    let path = root.join(SUMS);
    if !path.exists() {
        return Ok(Sums::new());
    }
    let text = std::fs::read_to_string(&path).map_err(|source| Failure::File { path, source })?;
    let pair = |line: &str| {
        // The size within a sum is padded with spaces; the path follows the last two.
        let (sum, path) = line.rsplit_once("  ")?;
        Some((path.to_owned(), sum.to_owned()))
    };
    Ok(text.lines().filter_map(pair).collect())
}

fn present(root: &Path) -> Outcome<Sums> {
    let list = super::listing()?;
    let mut sums = Sums::new();
    for path in list.split_terminator('\0').filter(|path| is_golden(path)) {
        let full = root.join(path);
        if full.is_file() {
            let bytes =
                std::fs::read(&full).map_err(|source| Failure::File { path: full, source })?;
            sums.insert(path.to_owned(), sum(&bytes));
        }
    }
    Ok(sums)
}

/// Below `golden/vN/` or `fixtures/vN/`.
fn is_golden(path: &str) -> bool {
    let folders: Vec<&str> = path.split('/').collect();
    let version = |name: &str| {
        name.strip_prefix('v')
            .is_some_and(|digits| digits.parse::<u32>().is_ok())
    };
    let is_version = |pair: &[&str]| matches!(pair[0], "golden" | "fixtures") && version(pair[1]);
    let folder_count = folders.len().saturating_sub(1);
    folders[..folder_count].windows(2).any(is_version)
}

fn sum(bytes: &[u8]) -> String {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x} {:>8}", bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(pairs: &[(&str, &str)]) -> Sums {
        pairs
            .iter()
            .map(|&(path, sum)| (path.to_owned(), sum.to_owned()))
            .collect()
    }

    #[test]
    fn changed_missing_and_new_files_are_reported() {
        let recorded = sums(&[("a", "1"), ("b", "2"), ("c", "3")]);
        let present = sums(&[("a", "1"), ("b", "9"), ("d", "4")]);
        let found: Vec<String> = compare(&recorded, &present)
            .into_iter()
            .map(|finding| finding.path)
            .collect();
        assert_eq!(found, ["b", "c", "d"]);
        assert_eq!(compare(&recorded, &recorded), []);
    }

    #[test]
    fn golden_folders_carry_a_version() {
        assert!(is_golden("storage-format/golden/v1/frame.bin"));
        assert!(is_golden("migrations/fixtures/v12/x/y.storage"));
        assert!(!is_golden("ctf/tests/golden/pass-a/expect"));
        assert!(!is_golden("storage-format/golden/v1"));
    }

    #[test]
    fn the_hash_is_fnv_1a() {
        // Published test vectors of the hash.
        assert_eq!(sum(b""), "cbf29ce484222325        0");
        assert_eq!(sum(b"foobar"), "85944171f73967e8        6");
    }
}
