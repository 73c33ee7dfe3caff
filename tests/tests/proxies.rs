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
