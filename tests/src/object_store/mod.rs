//! Object stores for tests, all on loopback: moto, a radosgw of Ceph with all that it needs, and
//! stores that do not speak like S3; and a proxy before them that does what networks and stores do.

mod other;
mod proxy;
mod radosgw;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use self::other::Dialect;
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
    dialect: Dialect,
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
            dialect: Dialect::S3,
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
            dialect: Dialect::S3,
            children,
            address,
            _folder: folder,
        };
        store.begin();
        Some(store)
    }

    /// Starts Azurite, which speaks like Azure Blob Storage. If it is not installed, the reason is
    /// printed: the test is skipped.
    ///
    /// # Panics
    /// If it does not start.
    pub fn azurite() -> Option<Self> {
        Self::other(Dialect::Azure)
    }

    /// Starts our imitation of Google Cloud Storage.
    ///
    /// # Panics
    /// If it does not start.
    pub fn google() -> Option<Self> {
        Self::other(Dialect::Google)
    }

    /// The same, which answers everybody.
    ///
    /// # Panics
    /// If it does not start.
    pub fn open_google() -> Option<Self> {
        Self::other(Dialect::OpenGoogle)
    }

    fn other(dialect: Dialect) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder for the store");
        let address = free_address();
        let child = dialect.start(folder.path(), address)?;
        let store = Self {
            dialect,
            children: vec![child],
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
        let is_made = || match self.dialect {
            Dialect::S3 => self.try_python(&make).is_ok(),
            other => other.make_bucket(self.address),
        };
        while !is_made() {
            assert!(begun.elapsed() < READY_LIMIT, "the store makes no bucket");
            thread::sleep(Duration::from_millis(200));
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of the bucket, and that of the server.
    pub fn urls(&self) -> (String, String) {
        self.dialect.urls(self.address)
    }

    /// A file with credentials, as the service has them.
    pub fn credentials_file(&self) -> String {
        self.dialect.credentials_file()
    }

    /// Runs Python with a client of boto3, `s3`, and the name of the `bucket`, for a store that
    /// speaks like S3; returns its output.
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
        let keys = match self.dialect {
            Dialect::S3 => self.python(script),
            other => other.keys(self.address).expect("the store lists its keys"),
        };
        let mut keys: Vec<_> = keys.lines().map(str::to_owned).collect();
        keys.sort();
        keys
    }

    /// The settings of a node that reaches a store that speaks like S3 at `endpoint`.
    pub fn settings_at(endpoint: SocketAddr, node: &str, more: &str) -> Settings {
        settings(Dialect::S3, endpoint, node, more)
    }

    /// The settings of a node that reaches this store through a proxy.
    pub fn settings_through(&self, proxy: &StoreProxy, node: &str, more: &str) -> Settings {
        settings(self.dialect, proxy.address(), node, more)
    }

    /// The settings of a node.
    pub fn settings(&self, node: &str, more: &str) -> Settings {
        settings(self.dialect, self.address, node, more)
    }
}

fn settings(dialect: Dialect, endpoint: SocketAddr, node: &str, more: &str) -> Settings {
    let (url, endpoint) = dialect.urls(endpoint);
    let config = format!(
        "[object_store]\nurl = \"{url}\"\nendpoint = \"{endpoint}\"\n\
         node = \"{node}\"\ncheck_seconds = 1\n{more}"
    );
    let mut settings = Settings::with_config(&config);
    settings.environment = dialect.environment();
    settings
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
