//! Files that are not text: inputs and pictures, each in its folder. Anything else was committed by
//! accident, such as a package that a tool left in the working folder.

use super::Finding;

/// Folders with files that are not text.
const FOLDERS: &[&str] = &[
    "chunk-index/golden/",
    "docs/pictures/",
    "fuzz/corpus/",
    "migrations/fixtures/",
    "storage-format/golden/",
    "tests/data/",
];

/// Bytes of the longest file. Whoever clones the repository fetches each version of it for ever.
const LENGTH_MAX: u64 = 256 * 1024;

/// A file of the repository.
pub(super) struct File {
    pub path: String,
    pub length: u64,
    pub is_text: bool,
}

/// One finding for each file of the wrong kind or length.
pub(super) fn findings(files: &[File]) -> Vec<Finding> {
    files.iter().filter_map(finding).collect()
}

fn finding(file: &File) -> Option<Finding> {
    let is_expected = FOLDERS.iter().any(|folder| file.path.starts_with(folder));
    if !file.is_text && !is_expected {
        let what = "not a text: remove it, or put it into one of the folders for inputs";
        return Some(Finding::new(&file.path, 0, what));
    }
    (file.length > LENGTH_MAX).then(|| {
        let length = file.length;
        let what = format!("{length} bytes, {LENGTH_MAX} are allowed: make it when it is needed");
        Finding::new(&file.path, 0, what)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, length: u64, is_text: bool, expected: &str) {
        let path = path.to_owned();
        let files = [File {
            path,
            length,
            is_text,
        }];
        let found = findings(&files);
        let whats: Vec<&str> = found.iter().map(|finding| finding.what.as_str()).collect();
        match expected {
            "" => assert!(whats.is_empty(), "{whats:?}"),
            _ => assert!(whats.len() == 1 && whats[0].contains(expected), "{whats:?}"),
        }
    }

    #[test]
    fn packages_and_programs_are_reported() {
        check("duckdb-2.0.1-cp311.whl", 25_000_000, false, "not a text");
        check("client/src/a.o", 10, false, "not a text");
        check("fuzz/corpus/a", 300_000, false, "300000 bytes");
        check("docs/a.md", 300_000, true, "300000 bytes");
    }

    #[test]
    fn inputs_pictures_and_texts_pass() {
        check("tests/data/a.gz", 156_000, false, "");
        check("docs/pictures/a.png", 90_000, false, "");
        check("Cargo.lock", 90_000, true, "");
    }
}
