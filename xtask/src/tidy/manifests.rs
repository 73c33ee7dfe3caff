//! Versions of dependencies are chosen in the root manifest only.

use super::Finding;
use super::source::Text;

/// Packages that are not members of the workspace cannot inherit.
const OWN_WORKSPACE: &[&str] = &["Cargo.toml", "fuzz/Cargo.toml"];

/// Every dependency of a member must inherit from the workspace.
pub(super) fn findings(texts: &[Text]) -> Vec<Finding> {
    texts
        .iter()
        .filter(|text| text.path.ends_with("Cargo.toml"))
        .filter(|text| !OWN_WORKSPACE.contains(&text.path.as_str()))
        .flat_map(manifest_findings)
        .collect()
}

fn manifest_findings(manifest: &Text) -> Vec<Finding> {
    let mut in_dependencies = false;
    manifest.line_findings(|line| {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(table) = line.strip_prefix('[') {
            in_dependencies = table.trim_end_matches(']').ends_with("dependencies");
        } else if in_dependencies && !line.is_empty() && !inherits(line) {
            let what = "say `name.workspace = true`; versions are chosen in the root Cargo.toml";
            return Some(what.to_owned());
        }
        None
    })
}

fn inherits(line: &str) -> bool {
    let compact: String = line.chars().filter(|c| !c.is_whitespace()).collect();
    compact.contains(".workspace=true")
        || compact.contains("workspace=true,")
        || compact.contains("workspace=true}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::check_lines;

    fn check(path: &str, content: &str, expected: &[usize]) {
        check_lines(findings, path, content, expected);
    }

    #[test]
    fn a_version_outside_the_root_is_reported() {
        let inherited =
            "[dependencies]\na.workspace = true\nb = { workspace = true, features = [] }";
        check("x/Cargo.toml", inherited, &[]);
        check(
            "x/Cargo.toml",
            "[dependencies]\n# why\na = \"1\"\n[lints]\nworkspace = 1",
            &[3],
        );
        check(
            "x/Cargo.toml",
            "[target.'cfg(unix)'.dev-dependencies]\na = { path = \"..\" }",
            &[2],
        );
        check("Cargo.toml", "[workspace.dependencies]\na = \"1\"", &[]);
    }
}
