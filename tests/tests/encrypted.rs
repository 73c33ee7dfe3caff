//! The real programs over TLS: what the command line trusts, and certificates that are replaced.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use harness::{Server, Settings, run_tracehold};

fn data(name: &str) -> String {
    format!("{}/data/tls/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn put(name: &str, folder: &Path) -> PathBuf {
    let path = folder
        .join("current")
        .with_extension(&name[name.len() - 3..]);
    std::fs::copy(data(name), &path).unwrap();
    path
}

/// A server with the pair `server` in this folder, and these further settings of `[tls]`.
fn start(folder: &Path, settings: &str) -> Server {
    let (pem, key) = (put("server.pem", folder), put("server.key", folder));
    let config = format!(
        "[tls]\ncertificate_file = {pem:?}\nkey_file = {key:?}\nreload_seconds = 1\n{settings}"
    );
    Server::listening(folder, &Settings::with_config(&config)).unwrap()
}

/// Exit code and output of `tracehold storage list` with these arguments.
fn list(server: &Server, arguments: &[&str]) -> (Option<i32>, String) {
    let url = format!("https://{}", server.address());
    let all = ["storage", "list", "--server", &url];
    let all: Vec<String> = all
        .iter()
        .chain(arguments)
        .map(ToString::to_string)
        .collect();
    let output = run_tracehold(&all);
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

#[test]
fn the_command_line_trusts_only_what_it_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), "");
    let (own, other) = (data("authority.pem"), data("stranger_authority.pem"));
    let (code, text) = list(&server, &["--ca-file", &own]);
    assert_eq!(code, Some(0), "{text}");
    let (code, text) = list(&server, &["--ca-file", &other]);
    assert!(code == Some(4) && text.contains("certificate"), "{text}");
    let (code, text) = list(&server, &["--ca-file", "/nowhere.pem"]);
    assert!(code != Some(0) && text.contains("/nowhere.pem"), "{text}");
}

#[test]
fn clients_without_a_certificate_are_refused_where_it_is_required() {
    let folder = tempfile::tempdir().unwrap();
    let settings = format!(
        "client_certificates = \"required\"\nclient_ca_file = {:?}",
        data("authority.pem")
    );
    let server = start(folder.path(), &settings);
    let authority = data("authority.pem");
    for (name, wanted) in [
        (None, Some(4)),
        (Some("client"), Some(0)),
        (Some("stranger"), Some(4)),
    ] {
        let files = name.map(|name| [data(&format!("{name}.pem")), data(&format!("{name}.key"))]);
        let mut arguments = vec!["--ca-file", authority.as_str()];
        if let Some([certificate, key]) = &files {
            arguments.extend(["--client-certificate", certificate, "--client-key", key]);
        }
        let (code, text) = list(&server, &arguments);
        assert_eq!(code, wanted, "{name:?}: {text}");
    }
}

#[test]
fn a_bad_pair_of_files_keeps_the_old_one_until_a_good_one_comes() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), "");
    let authority = data("authority.pem");
    let logs = |text: &str| {
        let begin = Instant::now();
        while !server.log().contains(text) {
            assert!(
                begin.elapsed() < Duration::from_secs(60),
                "{text} is not in the log"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    put("renewed.pem", folder.path());
    logs("the certificate in use before remains in use");
    assert_eq!(list(&server, &["--ca-file", &authority]).0, Some(0));
    put("renewed.key", folder.path());
    logs("new connections use the new certificate");
    assert_eq!(list(&server, &["--ca-file", &authority]).0, Some(0));
    let pid = server.pid().to_string();
    let sent = std::process::Command::new("kill")
        .args(["-HUP", &pid])
        .status();
    assert!(sent.unwrap().success());
    logs("received SIGHUP");
    assert_eq!(list(&server, &["--ca-file", &authority]).0, Some(0));
}
