use std::path::PathBuf;

use super::layers::default_toml;
use super::{Config, ConfigErrors, Overrides};

#[expect(clippy::disallowed_methods, reason = "a test makes its own files")]
fn load(file: Option<&str>, env: &[(&str, &str)]) -> Result<Config, ConfigErrors> {
    let folder = tempfile::tempdir().unwrap();
    let mut overrides = Overrides::default();
    if let Some(text) = file {
        let path = folder.path().join("t.toml");
        std::fs::write(&path, text).unwrap();
        overrides.file = Some(path);
    }
    Config::load(
        &overrides,
        env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())),
    )
}

/// The error text, with the temporary path reduced to the file name.
fn refusal(file: Option<&str>, env: &[(&str, &str)]) -> String {
    let text = load(file, env).unwrap_err().to_string();
    match text.find("t.toml") {
        Some(at) => text[at..].to_owned(),
        None => text,
    }
}

#[test]
fn the_documented_defaults_are_the_defaults_of_the_code() {
    let documented: Config = toml::from_str(default_toml()).unwrap();
    assert_eq!(documented, Config::default());
    let complete: toml::Table = toml::from_str(default_toml()).unwrap();
    let code = toml::Table::try_from(Config::default()).unwrap();
    assert_eq!(
        complete, code,
        "a setting is missing in config/default.toml"
    );
}

#[test]
fn later_layers_win() {
    let file = "[http]\nlisten = \"127.0.0.1:1\"\nconnections_max = 7\n[log]\nformat = \"json\"\n";
    let config = load(
        Some(file),
        &[
            ("TRACEHOLD_HTTP_LISTEN", "127.0.0.1:2"),
            ("TRACEHOLD_BENCH_DISCARD", "true"),
            ("TRACEHOLD_OBJECT_STORE_NODE_URL", "http://node-1"),
            ("TRACEHOLD_IO_TRACE_RING_BYTES_MAX", "7"),
        ],
    )
    .unwrap();
    assert_eq!(config.object_store.node_url, "http://node-1");
    assert_eq!(config.io_trace.ring_bytes_max, 7);
    assert_eq!(config.http.listen.port(), 2);
    assert_eq!(config.http.connections_max, 7);
    assert_eq!(config.log.format, super::LogFormat::Json);
    assert!(config.bench.discard);

    let flags = Overrides {
        listen: Some("127.0.0.1:3".parse().unwrap()),
        data_dir: Some(PathBuf::from("/x")),
        ..Overrides::default()
    };
    let env = [("TRACEHOLD_HTTP_LISTEN".to_owned(), "127.0.0.1:2".to_owned())];
    let config = Config::load(&flags, env).unwrap();
    assert_eq!(config.http.listen.port(), 3);
    assert_eq!(config.storage.data_dir, PathBuf::from("/x"));
}

#[test]
fn variables_of_other_programs_are_ignored() {
    let env = [
        ("TRACEHOLD_SERVER", "http://x"),
        ("TRACEHOLD_TOKEN", "t"),
        ("TRACEHOLD_PORT_7117", "1"),
    ];
    assert_eq!(load(None, &env), Ok(Config::default()));
}

#[test]
fn lists_come_from_variables_with_commas() {
    let fields = |text: &str| {
        let config = load(
            Some("[query]\nindex_fields = [\"args.a\"]\n"),
            &[("TRACEHOLD_QUERY_INDEX_FIELDS", text)],
        );
        config.unwrap().query.index_fields
    };
    assert_eq!(fields("args.epoch, args.step"), ["args.epoch", "args.step"]);
    assert_eq!(fields("args.epoch"), ["args.epoch"]);
    assert_eq!(fields(""), [""; 0]);
}

#[test]
fn invalid_settings_are_refused_with_location_and_remedy() {
    let check = |file: Option<&str>, env: &[(&str, &str)], wanted: &[&str]| {
        let text = refusal(file, env);
        for part in wanted {
            assert!(text.contains(part), "{text:?} lacks {part:?}");
        }
    };
    check(
        Some("[http]\nlisten_on = 1\n"),
        &[],
        &["t.toml:2:1:", "listen_on", "default.toml"],
    );
    check(Some("[htp]\n"), &[], &["t.toml:1:2:", "htp"]);
    check(
        Some("[http]\n  connections_max = \"x\"\n"),
        &[],
        &[
            "t.toml:2:21:",
            "setting http.connections_max: ",
            "string",
            "default is 1024",
        ],
    );
    check(Some("[http\n"), &[], &["t.toml:1:"]);
    check(
        None,
        &[("TRACEHOLD_RECORDNG_STANDING", "false")],
        &[
            "names no setting",
            "did you mean TRACEHOLD_RECORDING_STANDING?",
        ],
    );
    check(
        Some("[ingest]\nrequest_bytes_max = 1\n"),
        &[],
        &["ingest.request_bytes_max is 1, less than ingest.packet_bytes_max"],
    );
    check(
        None,
        &[("TRACEHOLD_HTTP", "x")],
        &[
            "TRACEHOLD_HTTP: ",
            "section",
            "TRACEHOLD_HTTP_KEY",
            "listen",
        ],
    );
    check(
        None,
        &[("TRACEHOLD_HTTP_PORT", "1")],
        &["TRACEHOLD_HTTP_PORT", "listen"],
    );
    check(
        None,
        &[("TRACEHOLD_HTTP_CONNECTIONS_MAX", "many")],
        &["many", "integer", "1024"],
    );
    check(
        None,
        &[("TRACEHOLD_LOG_FORMAT", "xml")],
        &["TRACEHOLD_LOG_FORMAT", "xml"],
    );
    check(
        None,
        &[("TRACEHOLD_HTTP_CONNECTIONS_MAX", "0")],
        &["http.connections_max", "is 0"],
    );
    for (level, file) in [
        ("inof", "[log]\nlevel = \"inof\"\n"),
        ("", "[log]\nlevel = \"\"\n"),
    ] {
        let level = format!("{level:?}");
        check(Some(file), &[], &["log.level", &level, "info", "debug"]);
    }
    check(
        None,
        &[("TRACEHOLD_RUNTIME_THREADS", "100000")],
        &[
            "TRACEHOLD_RUNTIME_THREADS",
            "runtime.threads is 100000",
            "from 0 to 1024",
        ],
    );
    check(
        Some("[storage]\nzstd_level = 9999999999\n"),
        &[],
        &["storage.zstd_level is 9999999999", "from -7 to 22"],
    );
    check(
        Some("[storage]\ndisk_resume_free_percent = 1\n"),
        &[],
        &[
            "disk_resume_free_percent is 1",
            "disk_stop_free_percent (5)",
        ],
    );
    check(
        Some("[ingest]\nin_flight_bytes_max = 5\n"),
        &[],
        &["in_flight_bytes_max", "raise it"],
    );
    check(Some("[http]\nheader_bytes_max = 10\n"), &[], &["8192"]);
    let missing = Overrides {
        file: Some(PathBuf::from("no/such.toml")),
        ..Default::default()
    };
    let error = Config::load(&missing, []).unwrap_err().to_string();
    assert!(
        error.contains("no/such.toml") && error.contains("--config"),
        "{error}"
    );
}

#[test]
fn all_that_is_invalid_is_reported() {
    let file = "[http]\nconnections_max = \"x\"\ndrain_seconds = -1\nno_key = 1\n[htp]\na = 1\n\
                [log]\nlevel = \"inof\"\n[storage]\nio = \"tape\"\ndisk_resume_free_percent = 1\n";
    let env = [
        ("TRACEHOLD_RUNTIME_THREADS", "x"),
        ("TRACEHOLD_RANGE_SIZE", "1"),
    ];
    let ConfigErrors(errors) = load(Some(file), &env).unwrap_err();
    let found: Vec<String> = errors.iter().map(ToString::to_string).collect();
    let wanted = [
        "t.toml:2:19: setting http.connections_max: invalid type: string",
        "setting http.drain_seconds is -1",
        "t.toml:4:1: section [http] has no key no_key",
        "t.toml:5:2: no section [htp]",
        "t.toml:10:6: setting storage.io: unknown variant `tape`",
        "environment variable TRACEHOLD_RANGE_SIZE",
        "environment variable TRACEHOLD_RUNTIME_THREADS",
        "setting storage.disk_resume_free_percent is 1",
        "setting log.level is \"inof\"",
    ];
    for part in wanted {
        assert!(
            found.iter().any(|error| error.contains(part)),
            "{part}: {found:#?}"
        );
    }
    assert_eq!(found.len(), wanted.len(), "{found:#?}");
}

#[test]
fn only_an_insecure_server_listens_beyond_loopback() {
    let load = |address: &str, flag: bool, setting: &str| {
        let flags = Overrides {
            listen: Some(address.parse().unwrap()),
            insecure: flag,
            ..Overrides::default()
        };
        let env = [("TRACEHOLD_HTTP_INSECURE".to_owned(), setting.to_owned())];
        Config::load(&flags, env)
    };
    for address in [
        "127.0.0.1:0",
        "127.9.9.9:0",
        "[::1]:0",
        "[::ffff:127.0.0.1]:0",
    ] {
        assert!(load(address, false, "false").is_ok(), "{address}");
    }
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0", "[::ffff:192.0.2.1]:0"] {
        let refused = load(address, false, "false").unwrap_err().to_string();
        for part in ["http.listen", address, "authentication", "--insecure"] {
            assert!(refused.contains(part), "{refused:?} lacks {part:?}");
        }
        assert!(load(address, true, "false").is_ok(), "{address}");
        assert!(load(address, false, "true").is_ok(), "{address}");
    }
}

#[test]
fn names_that_cannot_work_are_refused() {
    let check = |section: &str, key: &str, value: &str, wanted: &str| {
        let text = format!("[{section}]\n{key} = {value:?}\n");
        let found = load(Some(&text), &[])
            .err()
            .map(|errors| errors.to_string());
        let begin = format!("setting {section}.{key} {wanted}");
        match (&found, wanted) {
            (None, "") => {}
            (Some(found), _) if !wanted.is_empty() && found.starts_with(&begin) => {}
            _ => panic!("{text}{found:?}, not {begin:?}"),
        }
    };
    check("storage", "data_dir", "", "is empty");
    for label in [
        "",
        "use_case:ci",
        "use_case!=ci",
        "why!",
        "use_case:=>ci",
        "use_case=",
        "rating>=3",
        "creation_date<2026-01-01",
    ] {
        check("retention", "label", label, "");
    }
    let long = "n".repeat(1025);
    for label in [
        ":ci",
        " ",
        "=",
        "rating:four",
        "creation_date<soon",
        "data_time_frame:x/y",
        long.as_str(),
    ] {
        let refused = format!("is {label:?}, which no storage can have: label");
        check("retention", "label", label, &refused);
        check("object_store", "upload_label", label, &refused);
        check("object_store", "table_label", label, &refused);
    }
    for (label, sign) in [
        ("use_case==ci", "=="),
        ("use_case=>ci", "=>"),
        ("use_case=<ci", "=<"),
        ("use_case<>ci", "<>"),
        ("use_case>>ci", ">>"),
        ("use_case!==ci", "!=="),
        ("use_case=~ci", "=~"),
        ("use_case!!", "!!"),
    ] {
        let refused = format!("is {label:?}, and {sign} compares no labels");
        check("retention", "label", label, &refused);
        check("object_store", "upload_label", label, &refused);
    }
    let refused = "is \"use_case<\", and no text is before the empty one";
    check("retention", "label", "use_case<", refused);
    for label in ["legal_hold", "legal_hold:audit", "legal_hold!=audit"] {
        let refused = format!("is {label:?}, and storages with the label legal_hold are never");
        check("retention", "label", label, &refused);
        check("object_store", "upload_label", label, "");
    }
    for hosts in [
        "",
        "traces.example",
        "a.example, b_c.example,",
        "[::1]",
        "192.0.2.1",
    ] {
        check("http", "allowed_hosts", hosts, "");
    }
    for host in [
        "a b",
        "c/d",
        "a.example:80",
        "user@a.example",
        "*.example",
        "http://a.example",
    ] {
        check("http", "allowed_hosts", host, &format!("contains {host:?}"));
    }
    check(
        "http",
        "allowed_hosts",
        "a.example, c/d",
        "contains \"c/d\"",
    );
    for origins in ["", "https://ui.example, http://[::1]:80", "null", "app://x"] {
        check("http", "allowed_origins", origins, "");
    }
    for origins in ["", "*", "https://ui.example, http://[::1]:80", "app://x"] {
        check("http", "cors_origins", origins, "");
    }
    for origin in ["foo", "null", "https://a/", "https://*.a"] {
        let found = format!("contains {origin:?}");
        check("http", "cors_origins", origin, &found);
    }
    let mixed = "*, https://a";
    check("http", "cors_origins", mixed, "contains \"*\"");
    for origin in [
        "foo",
        "*",
        "https://",
        "https://a/",
        "https://a b",
        "//a",
        "https://u@a",
    ] {
        check(
            "http",
            "allowed_origins",
            origin,
            &format!("contains {origin:?}"),
        );
    }
}

#[test]
fn a_proxy_is_described_completely() {
    let complete = [
        ("TRACEHOLD_ACCESS_PROXY_USER_HEADER", "X-User"),
        ("TRACEHOLD_ACCESS_PROXY_GROUP_HEADER", "x-groups"),
        ("TRACEHOLD_ACCESS_PROXY_ADDRESSES", "10.0.0.0/8, ::1"),
        (
            "TRACEHOLD_ACCESS_PROXY_USER_ROLES",
            "ada=operator, a=b=agent, *=reader",
        ),
        ("TRACEHOLD_ACCESS_PROXY_GROUP_ROLES", ""),
    ];
    load(None, &complete).unwrap();
    for (at, wrong) in [
        (0, "a b"),
        (0, "Authorization"),
        // Otherwise the others would do nothing, and the server would be open.
        (0, ""),
        (0, "Range"),
        (0, "cookie"),
        (0, "Content-Encoding"),
        (0, "X-Request-Id"),
        (0, "Tracehold-Sequence"),
        (1, "X-USER"),
        (1, "host"),
        (1, "if-none-match"),
        (2, ""),
        (2, "proxy.example"),
        (2, "10.0.0.0/33"),
        (2, "10.0.0.0/x"),
        (2, "::ffff:10.0.0.0/95"),
        (3, "ada"),
        (3, "ada=admin"),
        (3, "ada=share"),
        (4, "=reader"),
    ] {
        let mut all = complete;
        all[at].1 = wrong;
        let text = refusal(None, &all);
        assert!(text.contains("setting access.proxy_"), "{wrong}: {text}");
    }
}

#[test]
fn errors_of_files_say_what_is_expected() {
    let number = "99999999999999999999";
    let file = format!("http.connections_max = {number}\n[htp]\n");
    let ConfigErrors(errors) = load(Some(&file), &[]).unwrap_err();
    let found: Vec<String> = errors.iter().map(ToString::to_string).collect();
    let wanted = format!("setting http.connections_max is {number}; set it to a number from 1");
    assert!(
        found.iter().any(|error| error.starts_with(&wanted)),
        "{found:?}"
    );
    assert_eq!(found.len(), 2, "{found:?}");
    let text = refusal(None, &[("TRACEHOLD_HTTP_CONNECTIONS_MAX", number)]);
    assert!(text.contains("from 1 to 1000000"), "{text}");
    for file in ["http = 5\n", "[[http]]\n"] {
        let text = refusal(Some(file), &[]);
        assert!(text.contains("http is a section; write [http]"), "{text}");
    }
}
