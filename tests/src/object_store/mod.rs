//! Object stores for tests: moto, and a radosgw of Ceph with all that it needs, both on loopback;
//! and a proxy before them that does what networks and stores do.

mod proxy;
mod radosgw;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

pub use self::proxy::{StoreFault, StoreProxy};
use crate::programs::{object_store_python, without};
use crate::server::Settings;

/// Keys that moto ignores and radosgw knows.
const ACCESS_KEY: &str = "AKIATEST";
const SECRET_KEY: &str = "secretsecret";
const BUCKET: &str = "traces";
/// A store that takes longer than this to start is considered hung.
const READY_LIMIT: Duration = Duration::from_secs(120);

/// An object store. Dropping it kills it.
#[derive(Debug)]
pub struct ObjectStore {
    children: Vec<Child>,
    address: SocketAddr,
    _folder: TempDir,
}

impl ObjectStore {
    /// Starts moto. If it is not installed, the reason is printed: the test is skipped.
    ///
    /// # Panics
    /// If it does not start.
    pub fn moto() -> Option<Self> {
        let python = object_store_python()?;
        let folder = tempfile::tempdir().expect("a folder for the store");
        let address = free_address();
        let log = std::fs::File::create(folder.path().join("log")).expect("a log");
        let child = Command::new(python.with_file_name("moto_server"))
            .args(["-H", "127.0.0.1", "-p", &address.port().to_string()])
            .stdout(log.try_clone().expect("a log"))
            .stderr(log)
            .spawn()
            .expect("moto was installed");
        let store = Self {
            children: vec![child],
            address,
            _folder: folder,
        };
        store.begin();
        Some(store)
    }

    /// Starts a radosgw. If it is not installed, the reason is printed: the test is skipped.
    ///
    /// # Panics
    /// If it does not start.
    pub fn radosgw() -> Option<Self> {
        object_store_python()?;
        if !radosgw::is_installed() {
            without("radosgw");
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder for the store");
        let address = free_address();
        let children = radosgw::start(folder.path(), address.port(), (ACCESS_KEY, SECRET_KEY));
        let store = Self {
            children,
            address,
            _folder: folder,
        };
        store.begin();
        Some(store)
    }

    /// Waits until it answers, and makes the bucket.
    fn begin(&self) {
        let begun = Instant::now();
        while TcpStream::connect(self.address).is_err() {
            assert!(begun.elapsed() < READY_LIMIT, "the store does not start");
            thread::sleep(Duration::from_millis(50));
        }
        let make = format!("s3.create_bucket(Bucket={BUCKET:?})");
        while self.try_python(&make).is_err() {
            assert!(begun.elapsed() < READY_LIMIT, "the store makes no bucket");
            thread::sleep(Duration::from_millis(200));
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Runs Python with a client of boto3, `s3`, and the name of the `bucket`; returns its output.
    ///
    /// # Errors
    /// When it fails, with what it printed.
    pub fn try_python(&self, script: &str) -> Result<String, String> {
        let python = object_store_python().expect("it was there before");
        let endpoint = format!("http://{}", self.address);
        let head = format!(
            "import boto3, json\nfrom botocore.config import Config\n\
             s3 = boto3.client('s3', endpoint_url={endpoint:?}, aws_access_key_id={ACCESS_KEY:?},\n  \
             aws_secret_access_key={SECRET_KEY:?}, region_name='us-east-1',\n  \
             config=Config(s3={{'addressing_style': 'path'}}, \
             request_checksum_calculation='when_required', \
             response_checksum_validation='when_required'))\nbucket = {BUCKET:?}\n"
        );
        let output = Command::new(python)
            .args(["-c", &format!("{head}{script}")])
            .output()
            .expect("Python runs");
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// As [`Self::try_python`].
    ///
    /// # Panics
    /// When it fails.
    pub fn python(&self, script: &str) -> String {
        match self.try_python(script) {
            Ok(output) => output,
            Err(error) => panic!("{script}: {error}"),
        }
    }

    /// The keys of all objects, sorted.
    ///
    /// # Panics
    /// When the store does not answer.
    pub fn keys(&self) -> Vec<String> {
        let script = "pages = s3.get_paginator('list_objects_v2').paginate(Bucket=bucket)\n\
                      for page in pages:\n  for each in page.get('Contents', []): print(each['Key'])";
        let mut keys: Vec<_> = self.python(script).lines().map(str::to_owned).collect();
        keys.sort();
        keys
    }

    /// The settings of a node that reaches the store at `endpoint`.
    pub fn settings_at(endpoint: SocketAddr, node: &str, more: &str) -> Settings {
        let config = format!(
            "[object_store]\nurl = \"s3://{BUCKET}/cluster\"\nendpoint = \"http://{endpoint}\"\n\
             node = \"{node}\"\ncheck_seconds = 1\n{more}"
        );
        let mut settings = Settings::with_config(&config);
        let keys = [
            ("AWS_ACCESS_KEY_ID", ACCESS_KEY),
            ("AWS_SECRET_ACCESS_KEY", SECRET_KEY),
        ];
        settings.environment = keys.map(|(key, value)| (key.into(), value.into())).into();
        settings
    }

    /// The settings of a node.
    pub fn settings(&self, node: &str, more: &str) -> Settings {
        Self::settings_at(self.address, node, more)
    }
}

impl Drop for ObjectStore {
    fn drop(&mut self) {
        for child in &mut self.children {
            // It may have ended already.
            child.kill().ok();
            child.wait().ok();
        }
    }
}

/// An address where nothing listens.
fn free_address() -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
    listener.local_addr().expect("it is bound")
}

/// A command of a store, without output.
fn quiet(program: &str) -> Command {
    let mut command = Command::new(program);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}
