//! The table of codes in `docs/http.md` has every code that the server can answer with.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The codes in the sources below a folder, as `STATUS code`.
#[expect(clippy::disallowed_methods, reason = "a test reads the sources")]
fn codes(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if !path.ends_with("tests") {
                codes(&path, found);
            }
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        // `StatusCode::NOT_FOUND, "code"` of single problems.
        for rest in text.split("StatusCode::").skip(1) {
            let code = rest.split_once(',').map(|(_, rest)| rest.trim_start());
            found.extend(code.and_then(quoted));
        }
        // `404 "code" "title"` of the catalog.
        for line in text.lines() {
            let line = line.trim_start();
            if line.split(' ').next().is_some_and(is_status) {
                found.extend(line.get(4..).and_then(quoted));
            }
        }
    }
}

fn is_status(word: &str) -> bool {
    word.len() == 3 && word.bytes().all(|byte| byte.is_ascii_digit())
}

/// The code at the beginning of a text, in quotes.
fn quoted(text: &str) -> Option<String> {
    let (code, _) = text.strip_prefix('"')?.split_once('"')?;
    let is_code = code
        .bytes()
        .all(|byte| byte.is_ascii_lowercase() || b"_0123456789".contains(&byte));
    (is_code && code.contains('_') || code == "busy").then(|| code.to_owned())
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test reads the documentation")]
fn every_code_is_documented() {
    let server = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = BTreeSet::new();
    codes(&server.join("src"), &mut found);
    assert!(found.len() > 80, "{}", found.len());
    let page = fs::read_to_string(server.join("../docs/http.md")).unwrap();
    let missing: Vec<&String> = found
        .iter()
        .filter(|code| !page.contains(&format!("`{code}`")))
        .collect();
    assert!(missing.is_empty(), "docs/http.md lacks {missing:?}");
}
