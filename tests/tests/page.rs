//! The page of the server, used in a browser as a person would: Chromium of Debian, driven by
//! Node.js.

use std::path::Path;
use std::process::Command;

use harness::{Request, Server, page_node_modules, run_tracehold, without};

#[test]
fn the_page_does_what_people_need() {
    let Some(modules) = page_node_modules() else {
        return;
    };
    if !Path::new("/usr/bin/chromium").exists() {
        without("chromium");
        return;
    }
    let (_folder, server, mut api) = Server::fresh();
    let storage = api.create_storage("first");
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("data");
    let trace = data.join("trace-0-of-1.pfw.gz");
    let push = ["push", "--server", &server.url(), "--storage", "first"];
    let mut arguments: Vec<String> = push.iter().map(ToString::to_string).collect();
    arguments.push(trace.to_string_lossy().into_owned());
    assert!(run_tracehold(&arguments).status.success());
    let used = Command::new("node")
        .arg(data.join("page.mjs"))
        .args([server.url(), storage])
        .arg(modules.join("../../../page"))
        .env("PAGE_MODULES", modules)
        .output()
        .unwrap();
    let text = [used.stdout, used.stderr].concat();
    assert!(used.status.success(), "{}", String::from_utf8_lossy(&text));
}

#[test]
fn files_of_the_page_are_kept_by_browsers_and_load_nothing_foreign() {
    let (_folder, server, _api) = Server::fresh();
    for path in ["/", "/docs", "/page/main.js", "/page/page.css"] {
        let first = server.api().send(&Request::new("GET", path)).unwrap();
        assert_eq!(first.status, 200, "{path}");
        let policy = first.header("content-security-policy").unwrap();
        assert!(
            policy.starts_with("default-src 'none'") && !policy.contains("unsafe"),
            "{policy}"
        );
        let etag = first.header("etag").unwrap();
        let again = Request::new("GET", path).header("if-none-match", etag);
        let again = server.api().send(&again).unwrap();
        assert_eq!((again.status, again.body.len()), (304, 0), "{path}");
    }
    let absent = Request::new("GET", "/page/absent.js");
    let absent = server.api().send(&absent).unwrap();
    assert_eq!(absent.status, 404);
    assert!(absent.brief().contains("file_not_found"));
}
