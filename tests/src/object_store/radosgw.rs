//! A Ceph of one monitor, one daemon with its objects in memory, and a radosgw.

use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::{READY_LIMIT, free_address, quiet};

/// The programs that it needs.
const PROGRAMS: [&str; 7] = [
    "ceph",
    "ceph-authtool",
    "ceph-mon",
    "ceph-osd",
    "monmaptool",
    "radosgw",
    "radosgw-admin",
];

pub(super) fn is_installed() -> bool {
    PROGRAMS
        .iter()
        .all(|program| quiet(program).arg("--version").status().is_ok())
}

/// Starts all of it in `folder`, with a user that has these keys.
pub(super) fn start(folder: &Path, port: u16, keys: (&str, &str)) -> Vec<Child> {
    let ceph = Ceph {
        folder: folder.to_owned(),
    };
    for each in ["mon", "osd/0", "run", "log"] {
        fs::create_dir_all(folder.join(each)).expect("a folder of the store");
    }
    let id = Uuid::new_v4();
    let monitor = free_address();
    fs::write(
        folder.join("ceph.conf"),
        configuration(folder, id, monitor, port),
    )
    .expect("a configuration");
    ceph.run(
        "ceph-authtool",
        &[
            "keyring",
            "--create-keyring",
            "--gen-key",
            "-n",
            "mon.",
            "--cap",
            "mon",
            "allow *",
        ],
    );
    ceph.run(
        "ceph-authtool",
        &[
            "keyring",
            "--gen-key",
            "-n",
            "client.admin",
            "--cap",
            "mon",
            "allow *",
            "--cap",
            "osd",
            "allow *",
            "--cap",
            "mgr",
            "allow *",
        ],
    );
    ceph.run(
        "ceph-authtool",
        &[
            "keyring",
            "--gen-key",
            "-n",
            "client.rgw.a",
            "--cap",
            "mon",
            "allow *",
            "--cap",
            "osd",
            "allow *",
            "--cap",
            "mgr",
            "allow *",
        ],
    );
    let (map_id, address) = (id.to_string(), format!("[v2:{monitor}]"));
    ceph.run(
        "monmaptool",
        &[
            "--create",
            "--clobber",
            "--fsid",
            &map_id,
            "--addv",
            "a",
            &address,
            "monmap",
        ],
    );
    ceph.run(
        "ceph-mon",
        &[
            "-i",
            "a",
            "--mkfs",
            "--monmap",
            "monmap",
            "--keyring",
            "keyring",
        ],
    );
    let mut children = vec![ceph.spawn("ceph-mon", &["-f", "-i", "a"])];
    let osd_id = Uuid::new_v4().to_string();
    ceph.until("ceph", &["--connect-timeout", "5", "osd", "new", &osd_id]);
    ceph.run(
        "ceph-authtool",
        &[
            "osd/0/keyring",
            "--create-keyring",
            "--gen-key",
            "-n",
            "osd.0",
            "--cap",
            "mon",
            "allow profile osd",
            "--cap",
            "osd",
            "allow *",
        ],
    );
    ceph.until("ceph", &["auth", "add", "osd.0", "-i", "osd/0/keyring"]);
    ceph.run("ceph-osd", &["-i", "0", "--mkfs", "--osd-uuid", &osd_id]);
    children.push(ceph.spawn("ceph-osd", &["-f", "-i", "0"]));
    ceph.until(
        "ceph",
        &["osd", "crush", "add", "0", "1.0", "root=default", "host=vm"],
    );
    children.push(ceph.spawn("radosgw", &["-f", "-n", "client.rgw.a"]));
    let (access, secret) = keys;
    ceph.until(
        "radosgw-admin",
        &[
            "user",
            "create",
            "--uid=t",
            "--display-name=t",
            "--access-key",
            access,
            "--secret-key",
            secret,
        ],
    );
    children
}

struct Ceph {
    folder: std::path::PathBuf,
}

impl Ceph {
    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = quiet(program);
        command.current_dir(&self.folder).args(arguments);
        command.env("CEPH_CONF", self.folder.join("ceph.conf"));
        command
    }

    fn run(&self, program: &str, arguments: &[&str]) {
        let output = self
            .command(program, arguments)
            .output()
            .expect("a program of Ceph");
        assert!(
            output.status.success(),
            "{program} {arguments:?}: {output:?}"
        );
    }

    /// Tries a command until it succeeds: what it needs may not be there yet.
    fn until(&self, program: &str, arguments: &[&str]) {
        let begun = Instant::now();
        loop {
            let status = self.command(program, arguments).status();
            if status.expect("a program of Ceph").success() {
                return;
            }
            assert!(begun.elapsed() < READY_LIMIT, "{program} {arguments:?}");
            thread::sleep(Duration::from_millis(250));
        }
    }

    fn spawn(&self, program: &str, arguments: &[&str]) -> Child {
        let child = self.command(program, arguments).spawn();
        child.expect("a program of Ceph")
    }
}

fn configuration(folder: &Path, id: Uuid, monitor: std::net::SocketAddr, port: u16) -> String {
    let at = |name: &str| folder.join(name).display().to_string();
    let (mon, osd, run, log, keyring) =
        (at("mon"), at("osd/0"), at("run"), at("log"), at("keyring"));
    format!(
        "[global]\nfsid = {id}\nmon initial members = a\nmon host = [v2:{monitor}]\n\
         auth cluster required = cephx\nauth service required = cephx\n\
         auth client required = cephx\npublic addr = 127.0.0.1\ncluster addr = 127.0.0.1\n\
         ms bind ipv6 = false\nosd pool default size = 1\nosd pool default min size = 1\n\
         osd pool default pg num = 4\nosd pool default pgp num = 4\n\
         mon allow pool size one = true\nmon max pg per osd = 2000\nosd crush chooseleaf type = 0\n\
         osd objectstore = memstore\nmemstore device bytes = 4294967296\n\
         osd memory target = 1073741824\nrun dir = {run}\npid file = {run}/$name.pid\n\
         admin socket = {run}/$name.asok\nlog file = {log}/$name.log\n\
         mon cluster log file = {log}/cluster.log\nmon data = {mon}\nosd data = {osd}\n\
         keyring = {keyring}\nrgw dns name = localhost\nrgw relaxed region enforcement = true\n\
         [osd.0]\nkeyring = {osd}/keyring\n\
         [client.rgw.a]\nrgw frontends = beast endpoint=127.0.0.1:{port} tcp_nodelay=1\n\
         rgw thread pool size = 32\n"
    )
}
