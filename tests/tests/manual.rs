//! Completions and pages of the manual are those of the commands.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use harness::{tracehold, traceholdd, without};

fn programs() -> [(&'static str, PathBuf); 2] {
    [("tracehold", tracehold()), ("traceholdd", traceholdd())]
}

fn completions(program: &Path, shell: &str) -> String {
    let output = Command::new(program).args(["completions", shell]).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// What bash offers at the end of these words.
fn offered(folder: &Path, name: &str, words: &[&str]) -> BTreeSet<String> {
    let count = words.len();
    let (last, before) = (words[count - 1], words[count - 2]);
    let script = format!(
        "set -e; source {folder}/{name}.bash; COMP_WORDS=({words}); COMP_CWORD={index}; \
         _{name} {name} \"{last}\" \"{before}\" || true; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        folder = folder.display(),
        words = quoted(words),
        index = count - 1,
    );
    let output = Command::new("bash")
        .args(["--norc", "-c", &script])
        .output();
    let output = output.unwrap();
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{output:?}"
    );
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(str::to_owned).collect()
}

fn quoted(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
    quoted.join(" ")
}

#[test]
fn bash_completes_commands_and_options() {
    let folder = tempfile::tempdir().unwrap();
    for (name, program) in programs() {
        let path = folder.path().join(format!("{name}.bash"));
        std::fs::write(path, completions(&program, "bash")).unwrap();
    }
    for (name, words, wanted) in [
        ("tracehold", &["tracehold", "sto"][..], "storage"),
        ("tracehold", &["tracehold", "storage", "fin"], "finalize"),
        (
            "tracehold",
            &["tracehold", "storage", "copy", "--na"],
            "--name",
        ),
        ("tracehold", &["tracehold", "push", "--ser"], "--server"),
        ("traceholdd", &["traceholdd", "aud"], "audit"),
        ("traceholdd", &["traceholdd", "--data"], "--data-dir"),
    ] {
        let offered = offered(folder.path(), name, words);
        assert_eq!(offered, BTreeSet::from([wanted.to_owned()]), "{words:?}");
    }
}

#[test]
fn other_shells_have_completions() {
    for (name, program) in programs() {
        for (shell, line) in [
            ("zsh", format!("#compdef {name}")),
            ("fish", format!("complete -c {name}")),
        ] {
            let script = completions(&program, shell);
            assert!(script.contains(&line), "{shell}: {script}");
        }
        let unknown = Command::new(&program).args(["completions", "csh"]).output();
        assert_eq!(unknown.unwrap().status.code(), Some(2));
    }
}

fn man(page: &Path) -> Option<Output> {
    let output = Command::new("man")
        .args(["--warnings=w", "-E", "UTF-8", "-l"])
        .arg(page)
        .env("MANPAGER", "cat")
        .env("MANWIDTH", "100")
        .output();
    if output.is_err() {
        without("man");
    }
    output.ok()
}

#[test]
fn every_command_has_a_page_that_man_prints() {
    let folder = tempfile::tempdir().unwrap();
    for (_, program) in programs() {
        let written = Command::new(program)
            .arg("manual")
            .arg(folder.path())
            .status();
        assert!(written.unwrap().success());
    }
    for (page, text) in [
        ("tracehold.1", "Store traces on a Tracehold server"),
        ("tracehold-storage-finalize.1", "--token-file"),
        ("tracehold-query.1", "--group-by"),
        ("traceholdd.1", "--data-dir"),
        ("traceholdd-token-create.1", "--expires"),
    ] {
        let page = folder.path().join(page);
        assert!(page.is_file(), "{}", page.display());
        let Some(printed) = man(&page) else { return };
        let warnings = String::from_utf8_lossy(&printed.stderr);
        assert!(
            printed.status.success() && warnings.is_empty(),
            "{warnings}"
        );
        let printed = String::from_utf8_lossy(&printed.stdout);
        assert!(printed.contains(text), "{printed}");
    }
}

/// A page does not contain what the environment of its maker contained.
#[test]
fn pages_do_not_repeat_the_environment() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(tracehold());
    command.arg("manual").arg(folder.path());
    command.env("TRACEHOLD_SERVER", "http://private.example");
    assert!(command.status().unwrap().success());
    for page in folder.path().read_dir().unwrap() {
        let text = std::fs::read_to_string(page.unwrap().path()).unwrap();
        assert!(!text.contains("private.example"), "{text}");
    }
}

/// The settings that the pages for operators name exist.
#[test]
fn settings_in_the_pages_exist() {
    let output = Command::new(traceholdd())
        .arg("--print-config")
        .output()
        .unwrap();
    let settings = String::from_utf8(output.stdout).unwrap();
    let mut section = String::new();
    let mut known = BTreeSet::new();
    for line in settings.lines() {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']').to_owned();
        } else if let Some((key, _)) = line.split_once(" = ") {
            known.insert(format!("{section}.{key}"));
        }
    }
    let sections: BTreeSet<&str> = known.iter().filter_map(|it| it.split('.').next()).collect();
    for page in ["install", "upgrade", "tuning", "uninstall", "monitoring"] {
        let path = format!("{}/../docs/{page}.md", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        for word in text.split('`').skip(1).step_by(2) {
            let name = word.split([' ', '=']).next().unwrap_or_default();
            let is_setting = name.split_once('.').is_some_and(|(section, key)| {
                sections.contains(section) && !key.contains(['.', '/'])
            });
            assert!(
                !is_setting || known.contains(name),
                "{page}.md names {name}"
            );
        }
    }
}
