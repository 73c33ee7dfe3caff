//! A proxy names the users that it has authenticated, and nobody else does.

use harness::{Request, Server, Settings};

#[test]
fn a_proxy_names_users_and_the_audit_log_has_them() {
    for (address, is_believed) in [("127.0.0.1", true), ("192.0.2.1", false)] {
        let folder = tempfile::tempdir().unwrap();
        let config = format!(
            "[access]\nproxy_user_header = \"X-User\"\nproxy_addresses = \"{address}\"\n\
             proxy_user_roles = \"ada=operator, bob=reader\"\n"
        );
        let server = Server::start(folder.path(), &Settings::with_config(&config));
        let ask = |method: &str, users: &[&str]| {
            let path = "/api/v1/storages";
            let mut request = Request::new(method, path);
            if method == "POST" {
                let json = "application/json";
                request = request
                    .header("content-type", json)
                    .body(b"{\"name\":\"s\"}");
            }
            for user in users {
                request = request.header("x-user", user);
            }
            let answer = server.connect().send(&request).unwrap();
            let code = answer.json()["code"].as_str().unwrap_or("").to_owned();
            (answer.status, code)
        };
        for (method, users, status, code) in [
            ("GET", &["bob"][..], 200, ""),
            ("POST", &["bob"], 403, "role_insufficient"),
            ("POST", &["ada"], 201, ""),
            ("GET", &["eve"], 403, "user_unknown"),
            ("GET", &["bob", "ada"], 403, "user_unknown"),
            ("GET", &[""], 401, "token_required"),
            ("GET", &[], 401, "token_required"),
        ] {
            let wanted = if is_believed {
                (status, code.to_owned())
            } else {
                (401, "token_required".to_owned())
            };
            assert_eq!(ask(method, users), wanted, "{address} {method} {users:?}");
        }
        let audit = server.data().join("audit/audit.jsonl");
        let audit = std::fs::read_to_string(audit).unwrap_or_default();
        assert_eq!(audit.contains("user ada"), is_believed, "{audit}");
    }
}

#[test]
fn a_token_comes_before_a_user_and_other_schemes_are_those_of_the_proxy() {
    let folder = tempfile::tempdir().unwrap();
    let config = "[access]\nproxy_user_header = \"X-User\"\nproxy_addresses = \"::ffff:127.0.0.1\"\n\
                  proxy_user_roles = \"ada=operator\"\n";
    let server = Server::start(folder.path(), &Settings::with_config(config));
    let ask = |(method, path): (&str, &str), fields: &[(&str, &str)], body: &str| {
        let mut request = Request::new(method, path);
        if !body.is_empty() {
            let json = "application/json";
            request = request.header("content-type", json).body(body.as_bytes());
        }
        for (name, value) in fields {
            request = request.header(name, value);
        }
        server.connect().send(&request).unwrap()
    };
    let storages = "/api/v1/storages";
    let ada = ("x-user", "ada");
    let made = ask(("POST", storages), &[ada], "{\"name\":\"s\"}").json();
    let storage = made["id"].as_str().unwrap();
    // Operators are there without a token.
    let shares = format!("{storages}/{storage}/shares");
    let share = ask(("POST", &shares), &[ada], "{\"expires_seconds\":60}");
    assert_eq!(share.status, 201, "{}", share.brief());
    let reader = "{\"name\":\"n\",\"role\":\"reader\"}";
    let token = ask(("POST", "/api/v1/tokens"), &[ada], reader).json();
    let reader = format!("Bearer {}", token["token"].as_str().unwrap());

    let (basic, wrong) = ("Basic YWRhOmFkYQ==", "bearer nothing");
    for (method, user, authorization, status, code) in [
        ("GET", "ada", "", 200, ""),
        ("GET", "ada", basic, 200, ""),
        ("POST", "ada", basic, 201, ""),
        ("GET", "ada", wrong, 401, "token_invalid"),
        ("POST", "ada", &reader, 403, "role_insufficient"),
        ("GET", "eve", "", 403, "user_unknown"),
        ("GET", "eve", basic, 403, "user_unknown"),
        ("GET", "eve", &reader, 200, ""),
        ("GET", "ada, eve", &reader, 200, ""),
        ("GET", "", basic, 401, "token_invalid"),
        ("GET", "", &reader, 200, ""),
    ] {
        let mut fields = vec![("x-user", user)];
        if !authorization.is_empty() {
            fields.push(("authorization", authorization));
        }
        let body = if method == "POST" {
            r#"{"name":"of a user"}"#
        } else {
            ""
        };
        let answer = ask((method, storages), &fields, body);
        let case = format!("{method} {user:?} {authorization:?}: {}", answer.brief());
        assert_eq!(answer.status, status, "{case}");
        assert_eq!(answer.json()["code"].as_str().unwrap_or(""), code, "{case}");
        if method == "GET" && status == 200 {
            assert_eq!(
                answer.header("cache-control"),
                Some("private, no-cache"),
                "{case}"
            );
        }
    }
}
