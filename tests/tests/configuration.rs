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

#[test]
fn config_check_reads_the_files_that_settings_name() {
    let folder = tempfile::tempdir().unwrap();
    let wrong = folder.path().join("wrong");
    std::fs::write(&wrong, "no key\n").unwrap();
    let wrong = wrong.to_str().unwrap();
    let data = folder.path().join("data");
    let arguments = ["config", "check", "--data-dir", data.to_str().unwrap()];
    let store = ("TRACEHOLD_OBJECT_STORE_URL", "s3://bucket/of-traces");
    let cases: [(&[(&str, &str)], &str); 5] = [
        (
            &[
                ("TRACEHOLD_TLS_CERTIFICATE_FILE", "/nothing"),
                ("TRACEHOLD_TLS_KEY_FILE", wrong),
            ],
            "tls: ",
        ),
        (
            &[
                ("TRACEHOLD_SEAL_AT_FINALIZATION", "true"),
                ("TRACEHOLD_SEAL_KEY_FILE", wrong),
            ],
            "seal.key_file: ",
        ),
        (
            &[
                store,
                ("TRACEHOLD_OBJECT_STORE_CREDENTIALS_FILE", "/nothing"),
            ],
            "object_store: ",
        ),
        (
            &[store, ("TRACEHOLD_OBJECT_STORE_CREDENTIALS_FILE", wrong)],
            "object_store: ",
        ),
        (
            &[("TRACEHOLD_OBJECT_STORE_CREDENTIALS_FILE", wrong)],
            "setting object_store.credentials_file is set",
        ),
    ];
    for (env, key) in cases {
        let (code, text) = check(&arguments, env);
        let line = format!("traceholdd: {key}");
        assert!(
            code == Some(2) && text.starts_with(&line),
            "{env:?}: {text}"
        );
    }
}

/// What only fails later when nothing refuses it: the setting, its value, and what is said of it.
#[test]
fn settings_that_cannot_work_are_refused_before_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("file"), "no folder\n").unwrap();
    std::os::unix::fs::symlink("nowhere", path("link")).unwrap();
    let (file, below, link) = (path("file"), path("file/below/data"), path("link"));
    let not_a_folder = format!("{file} is not a folder");
    let to_nothing = format!("{link} is a link to nothing");
    let quoted = |text: &str| format!("{text:?}");
    let to_bucket = "set it to s3://BUCKET/PREFIX";
    let such_as = [
        "such as ./data",
        "such as use_case:ci",
        "list each field once",
    ];
    for (key, value, parts) in [
        (
            "storage.data_dir",
            quoted(&file),
            [not_a_folder.as_str(), such_as[0]],
        ),
        (
            "storage.data_dir",
            quoted(&below),
            [&not_a_folder, such_as[0]],
        ),
        ("storage.data_dir", quoted(&link), [&to_nothing, such_as[0]]),
        (
            "retention.label",
            quoted(":ci"),
            ["needs a name", such_as[1]],
        ),
        (
            "retention.label",
            quoted("rating:four"),
            ["a number such as 4", such_as[1]],
        ),
        (
            "retention.label",
            quoted("a b=="),
            ["== compares no labels", such_as[1]],
        ),
        (
            "object_store.upload_label",
            quoted("=x"),
            ["needs a name", such_as[1]],
        ),
        (
            "object_store.table_label",
            quoted("rating:x"),
            ["a number such as 4", such_as[1]],
        ),
        (
            "object_store.url",
            quoted("s3://"),
            ["not a bucket", to_bucket],
        ),
        (
            "object_store.url",
            quoted("s3:///x"),
            ["not a bucket", to_bucket],
        ),
        (
            "query.index_fields",
            quoted("args."),
            ["not a field", such_as[2]],
        ),
        (
            "query.index_fields",
            quoted(""),
            ["not a field", such_as[2]],
        ),
        (
            "query.index_fields",
            r#""args.a", "args.a""#.into(),
            ["\"args.a\" twice", such_as[2]],
        ),
        (
            "query.index_fields",
            r#""args.a", "a""#.into(),
            ["the same field", such_as[2]],
        ),
    ] {
        let (section, name) = key.split_once('.').unwrap();
        let value = match name {
            "index_fields" => format!("[{value}]"),
            _ => value,
        };
        let mut settings = format!("[{section}]\n{name} = {value}\n");
        if section != "storage" {
            settings.push_str(&format!("[storage]\ndata_dir = {:?}\n", path("data")));
        }
        std::fs::write(path("settings.toml"), &settings).unwrap();
        let config = path("settings.toml");
        // The server refuses to start with what the check refuses.
        for arguments in [
            &["config", "check", "--config", &config][..],
            &["--config", &config],
        ] {
            let (code, text) = check(arguments, &[]);
            let begin = format!("traceholdd: setting {key} ");
            assert!(
                code == Some(2) && text.starts_with(&begin),
                "{settings}{code:?} {text}"
            );
            assert_eq!(text.lines().count(), 1, "{settings}{text}");
            for part in parts {
                assert!(text.contains(part), "{settings}{text} lacks {part:?}");
            }
        }
    }
    assert!(!folder.path().join("data").exists());
}

/// The settings that are numbers, as `section.key`.
fn numbers() -> Vec<(String, String)> {
    let (_, text) = check(&["config", "check"], &[]);
    let mut found = Vec::new();
    let mut section = String::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']').to_owned();
        } else if let Some((key, value)) = line.split_once(" = ")
            && value.parse::<i64>().is_ok()
        {
            found.push((section.clone(), key.to_owned()));
        }
    }
    found
}

/// What the check says about all numbers with these values: a line for each, or nothing.
fn check_numbers(numbers: &[(String, String)], values: &[i64]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.toml");
    let mut text = String::new();
    let mut last = "";
    for ((section, key), value) in numbers.iter().zip(values) {
        if section != last {
            text.push_str(&format!("[{section}]\n"));
            last = section;
        }
        text.push_str(&format!("{key} = {value}\n"));
    }
    std::fs::write(&path, text).unwrap();
    let (code, text) = check(
        &["config", "check", "--config", path.to_str().unwrap()],
        &[],
    );
    let refused = text.lines().filter(|line| line.contains(" is "));
    let refused: Vec<String> = refused.map(str::to_owned).collect();
    assert!(code == Some(2) || refused.is_empty(), "{code:?} {text}");
    refused
}

#[test]
fn every_number_outside_of_its_range_is_refused_with_the_range() {
    let numbers = numbers();
    assert!(numbers.len() > 50, "{numbers:?}");
    let mut ranges = Vec::new();
    for wrong in [i64::MIN, i64::MAX] {
        let lines = check_numbers(&numbers, &vec![wrong; numbers.len()]);
        ranges.clear();
        for (section, key) in &numbers {
            let begin = format!("{section}.{key} is {wrong}; set it to a number from ");
            let line = lines.iter().find(|line| line.contains(&begin));
            let line = line.unwrap_or_else(|| panic!("nothing about {section}.{key}: {lines:?}"));
            let range = line.split_once(&begin).unwrap().1;
            let (least, most) = range.split_once(" to ").unwrap();
            ranges.push((least.parse::<i64>().unwrap(), most.parse::<i64>().unwrap()));
        }
        assert_eq!(lines.len(), numbers.len(), "{lines:?}");
    }
    for (change, expected) in [(-1, numbers.len()), (0, 0), (1, numbers.len())] {
        let at_end = |(least, most): &(i64, i64)| if change < 0 { *least } else { *most };
        let values: Vec<i64> = ranges.iter().map(|range| at_end(range) + change).collect();
        let lines = check_numbers(&numbers, &values);
        assert_eq!(lines.len(), expected, "{change}: {lines:?}");
        for (((section, key), (least, most)), value) in numbers.iter().zip(&ranges).zip(&values) {
            let line =
                format!("{section}.{key} is {value}; set it to a number from {least} to {most}");
            let is_said = lines.iter().any(|found| found.contains(&line));
            assert_eq!(is_said, expected > 0, "{line}: {lines:?}");
        }
    }
}
