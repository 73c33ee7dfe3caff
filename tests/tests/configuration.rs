//! Invalid settings end the server before it starts, with the setting and what is allowed.

use std::process::Command;

/// Exit code and all output of `traceholdd config check`.
fn check(arguments: &[&str], env: &[(&str, &str)]) -> (Option<i32>, String) {
    let output = Command::new(harness::traceholdd())
        .args(arguments)
        .envs(env.iter().copied())
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

#[test]
fn config_check_reports_invalid_settings() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let data = data.to_str().unwrap();
    let arguments = ["config", "check", "--data-dir", data];
    let (code, text) = check(&arguments, &[("TRACEHOLD_LOG_LEVEL", "warn")]);
    assert_eq!(code, Some(0), "{text}");
    for part in ["level = \"warn\"", data, "connections_max = 1024"] {
        assert!(text.contains(part), "{text} lacks {part:?}");
    }
    // All errors at once.
    let env = [
        ("TRACEHOLD_LOG_LEVEL", "inof"),
        ("TRACEHOLD_RUNTIME_THREADS", "-1"),
    ];
    let (code, text) = check(&arguments, &env);
    assert_eq!((code, text.lines().count()), (Some(2), 2), "{text}");
    for (key, value, parts) in [
        (
            "LOG_LEVEL",
            "inof",
            ["log.level", "\"inof\"", "info, debug"],
        ),
        (
            "RUNTIME_THREADS",
            "100000",
            ["runtime.threads", "100000", "0 to 1024"],
        ),
        (
            "HTTP_LISTEN",
            "0.0.0.0:0",
            ["http.listen", "0.0.0.0:0", "--insecure"],
        ),
    ] {
        let key = format!("TRACEHOLD_{key}");
        let env = [(key.as_str(), value)];
        // The server refuses to start with what the check refuses.
        for arguments in [&arguments[..], &arguments[2..]] {
            let (code, text) = check(arguments, &env);
            assert_eq!(code, Some(2), "{text}");
            for part in parts {
                assert!(text.contains(part), "{text} lacks {part:?}");
            }
        }
    }
    assert!(!std::path::Path::new(data).exists());
}
