//! The files for Docker Compose: what they say of the image is so, and their nodes work together
//! when their commands and settings are given to processes, with moto in place of the store.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use harness::{ObjectStore, Server, Settings, object_store_python};
use serde_json::Value;

use crate::queries::{answers, push, wait_for_indexes};

const PATIENCE: Duration = Duration::from_secs(60);
const TRACE: &str = "data/trace-0-of-1.pfw.gz";
const QUERY: &str = "dur > 5ms";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A file with its merges resolved, as Compose reads it.
fn compose(python: &Path, name: &str) -> Value {
    let script = "import json, sys, yaml; json.dump(yaml.safe_load(open(sys.argv[1])), sys.stdout)";
    let file = root().join("deploy").join(name);
    let output = Command::new(python)
        .args(["-c", script])
        .arg(&file)
        .output();
    let output = output.unwrap();
    assert!(output.status.success(), "{name}: {output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The value of a variable that the image sets.
fn of_image(dockerfile: &str, name: &str) -> String {
    let set = format!("{name}=");
    let mut words = dockerfile.split_whitespace();
    let word = words.find(|word| word.starts_with(&set));
    word.unwrap_or_else(|| panic!("the image sets no {name}"))[set.len()..].to_owned()
}

fn texts(list: &Value) -> Vec<&str> {
    let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(Value::as_str).collect()
}

fn environment(service: &Value) -> Vec<(String, String)> {
    let variables = service["environment"].as_object().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let variables = variables.iter();
    variables
        .map(|(name, value)| (name.clone(), text(value)))
        .collect()
}

/// Volumes, services and files that a service names are there, and what it says of the image is
/// what the `Dockerfile` says.
fn check_service(file: &Value, name: &str, service: &Value) {
    let dockerfile = fs::read_to_string(root().join("Dockerfile")).unwrap();
    for volume in texts(&service["volumes"]) {
        let (volume, at) = volume.split_once(':').unwrap();
        assert!(file["volumes"].get(volume).is_some(), "{name}: {volume}");
        if service["image"] == "tracehold" {
            assert_eq!(at, of_image(&dockerfile, "TRACEHOLD_STORAGE_DATA_DIR"));
        }
    }
    for other in texts(&service["depends_on"]) {
        assert!(file["services"].get(other).is_some(), "{name}: {other}");
    }
    for option in texts(&service["security_opt"]) {
        if let Some(profile) = option.strip_prefix("seccomp:") {
            let profile = fs::read(root().join("deploy").join(profile)).unwrap();
            serde_json::from_slice::<Value>(&profile).unwrap();
        }
    }
    if service["image"] != "tracehold" {
        return;
    }
    assert_eq!(service["build"], "..", "{name}");
    let exposed = dockerfile
        .lines()
        .find_map(|line| line.strip_prefix("EXPOSE "));
    let exposed: Vec<_> = exposed.unwrap().split(' ').collect();
    for port in texts(&service["ports"]) {
        let inside = port.rsplit(':').next().unwrap();
        assert!(exposed.contains(&inside), "{name}: {port}");
        // Without tokens, who can reach a server is decided here.
        assert!(port.starts_with("127.0.0.1:"), "{name}: {port}");
    }
    // A stop commits what is in flight.
    let drain = fs::read_to_string(root().join("config/default.toml")).unwrap();
    let drain = drain
        .lines()
        .find_map(|line| line.strip_prefix("drain_seconds = "));
    let grace = service["stop_grace_period"].as_str().unwrap();
    let grace: u64 = grace.strip_suffix('s').unwrap().parse().unwrap();
    assert!(grace > drain.unwrap().parse().unwrap(), "{name}: {grace} s");
}

#[test]
fn files_for_compose_name_what_is_there() {
    let Some(python) = object_store_python() else {
        return;
    };
    for name in ["compose.yaml", "compose-nodes.yaml"] {
        let file = compose(&python, name);
        for (name, service) in file["services"].as_object().unwrap() {
            check_service(&file, name, service);
        }
    }
}

/// A program `aws` that does with boto3 what the file asks of it, and refuses all else.
fn aws(folder: &Path, python: &Path) {
    let script = format!(
        "#!{}\n\
         import boto3, sys\n\
         option, url, group, action, name, bucket = sys.argv[1:]\n\
         assert (option, group, name) == ('--endpoint-url', 's3api', '--bucket'), sys.argv\n\
         s3 = boto3.client('s3', endpoint_url=url)\n\
         getattr(s3, {{'head-bucket': 'head_bucket', 'create-bucket': 'create_bucket'}}[action])\
         (Bucket=bucket)\n",
        python.display()
    );
    let program = folder.join("aws");
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Runs the container that makes the bucket as a process, twice: the second time it is there.
fn make_bucket(service: &Value, python: &Path, at: impl Fn(&str) -> String) {
    let folder = tempfile::tempdir().unwrap();
    aws(folder.path(), python);
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", folder.path().display());
    let words = [texts(&service["entrypoint"]), texts(&service["command"])].concat();
    for _ in 0..2 {
        let mut command = Command::new(words[0]);
        command.args(words[1..].iter().map(|word| at(word)));
        command.env("PATH", &path).envs(environment(service));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

#[test]
fn the_nodes_of_the_compose_file_serve_one_bucket() {
    let (Some(store), Some(python)) = (ObjectStore::moto(), object_store_python()) else {
        return;
    };
    let file = compose(&python, "compose-nodes.yaml");
    let services = &file["services"];
    // The harness has made the bucket; the file must do it by itself.
    store.python("s3.delete_bucket(Bucket=bucket)");
    let port = texts(&services["store"]["expose"])[0];
    let inside = format!("http://store:{port}");
    let at = |text: &str| text.replace(&inside, &format!("http://{}", store.address()));
    make_bucket(&services["bucket"], &python, at);

    // moto knows no keys: those of the store must be those of its clients.
    let keys = &services["store"]["environment"];
    for client in ["bucket", "node-1", "node-2"] {
        let used = &services[client]["environment"];
        assert_eq!(used["AWS_ACCESS_KEY_ID"], keys["RUSTFS_ACCESS_KEY"]);
        assert_eq!(used["AWS_SECRET_ACCESS_KEY"], keys["RUSTFS_SECRET_KEY"]);
    }
    let start = |name: &str| {
        let service = &services[name];
        let published = texts(&service["ports"])[0].rsplit_once(':').unwrap().0;
        let url = service["environment"]["TRACEHOLD_OBJECT_STORE_NODE_URL"].as_str();
        assert_eq!(url, Some(format!("http://{published}").as_str()), "{name}");
        let variables = environment(service).into_iter();
        let settings = Settings {
            config: "[object_store]\ncheck_seconds = 1\n".to_owned(),
            environment: variables.map(|(name, value)| (name, at(&value))).collect(),
            ..Settings::default()
        };
        let folder = tempfile::tempdir().unwrap();
        let server = Server::start(folder.path(), &settings);
        (folder, server)
    };
    let (_one_folder, one) = start("node-1");
    let (_two_folder, two) = start("node-2");
    let storage = one.api().create_storage("first");
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join(TRACE);
    push(&one, &storage, &trace, "65536");
    one.api().finalize(&storage);
    wait_for_indexes(&one, &storage);
    let path = format!("/storages/{storage}");
    until("node 2 does not serve it", &two, || {
        two.api().call("GET", &path, None).status == 200
    });
    let found =
        |server: &Server| answers(&["--server", &server.url(), "--storage", &storage], QUERY);
    assert_eq!(found(&two), found(&one));
    let nodes = two.api().done("GET", "/nodes", None);
    let names = nodes["nodes"].as_array().unwrap().iter();
    let names: Vec<_> = names.map(|node| (&node["node"], &node["state"])).collect();
    assert_eq!(names.len(), 2, "{nodes}");
    assert!(names.iter().all(|(_, state)| *state == "live"), "{nodes}");
}

fn until(what: &str, server: &Server, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}:\n{}", server.log());
        std::thread::sleep(Duration::from_millis(50));
    }
}
