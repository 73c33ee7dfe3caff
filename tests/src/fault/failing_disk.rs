//! A disk whose reads or writes fail: nothing is acknowledged that is not on it, and no
//! wrong bytes are served.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::world::{LIMIT, wait_until};
use crate::agent::{Agent, Receipt};
use crate::api::Api;
use crate::http::Request;
use crate::payload::packet;
use crate::server::{Server, Settings};

/// Packets before the disk fails.
const PACKETS_BEFORE: u64 = 40;
/// Packets that are tried while it fails.
const PACKETS_DURING: u64 = 10;
const STREAM: u64 = 7;

/// What fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailingKind {
    /// Writes.
    Write,
    /// Reads.
    Read,
}

/// A mounted disk that fails while a file exists.
#[derive(Clone, Debug)]
pub struct FailingDisk {
    /// The block device.
    pub device: PathBuf,
    /// Where it is mounted.
    pub mount: PathBuf,
    /// The file that makes it fail.
    pub trigger: PathBuf,
    /// What fails.
    pub kind: FailingKind,
}

impl FailingDisk {
    /// The folder of a server whose data is on the disk, and its log is not.
    fn server_folder(&self) -> PathBuf {
        let folder = self.trigger.with_file_name("server");
        let data = self.mount.join("data");
        fs::create_dir_all(&folder).expect("the folder of a run can be written");
        fs::create_dir_all(&data).expect("the disk is healthy");
        symlink(data, folder.join("data")).expect("the folder of a run can be written");
        folder
    }

    fn fail(&self) {
        File::create(&self.trigger).expect("the trigger can be created");
    }

    fn heal(&self) {
        fs::remove_file(&self.trigger).expect("the trigger exists");
    }

    /// Mounts it again, with an empty page cache.
    fn remount(&self) {
        let run = |program: &str, arguments: &[&Path]| {
            let status = Command::new(program).args(arguments).status();
            status.is_ok_and(|status| status.success())
        };
        // The kernel closes the files of a killed process a moment after its end.
        let is_unmounted = wait_until(LIMIT, || run("umount", &[&self.mount]));
        assert!(is_unmounted, "{} cannot be unmounted", self.mount.display());
        let is_mounted = run("mount", &[&self.device, &self.mount]);
        assert!(is_mounted, "{} cannot be mounted", self.device.display());
    }
}

/// Runs a server on a disk that fails meanwhile. Returns the number of operations that failed.
///
/// # Panics
/// If an acknowledged packet is lost, an answer has wrong bytes, or a failure is not reported.
pub fn check_failing_disk(disk: &FailingDisk, settings: &Settings) -> usize {
    let folder = disk.server_folder();
    let mut server = Server::start(&folder, settings);
    let mut api = server.api();
    let storage = api.create_storage("failing");
    let agent = Agent::declare(&mut api, &storage, "agent", "stream", "none");
    for sequence in 0..PACKETS_BEFORE {
        agent.push(&mut api, sequence, &packet(STREAM, sequence));
    }
    let (failed, acknowledged) = if disk.kind == FailingKind::Read {
        api.finalize(&storage);
        server.kill();
        disk.remount();
        server.restart();
        disk.fail();
        let failed = read_while_failing(&server, &storage);
        disk.heal();
        (failed, PACKETS_BEFORE)
    } else {
        disk.fail();
        let (failed, acknowledged) = push_while_failing(&mut api, &agent);
        assert_eq!(api.state(&storage), "FAILED");
        disk.heal();
        (failed, acknowledged)
    };
    assert!(failed > 0, "no operation failed");
    server.kill();
    disk.remount();
    server.restart();
    let mut api = server.api();
    for sequence in 0..acknowledged {
        // The only stream of the storage: numbers are sequences.
        let found = api.packet(&storage, sequence);
        assert!(
            found == packet(STREAM, sequence),
            "packet {sequence} differs"
        );
    }
    failed
}

/// Pushes; returns the number of refusals and the number of acknowledged packets in all.
fn push_while_failing(api: &mut Api, agent: &Agent) -> (usize, u64) {
    let mut acknowledged = PACKETS_BEFORE;
    let mut refused = 0;
    for _ in 0..PACKETS_DURING {
        let sent = agent.post(api, acknowledged, &packet(STREAM, acknowledged));
        let response = sent.expect("the server answers");
        let brief = response.brief();
        match response.status {
            200 => {
                let receipts = Receipt::all(&response.json());
                assert!(receipts.iter().all(|receipt| receipt.durable), "{brief}");
                acknowledged += 1;
            }
            500 | 503 => refused += 1,
            // The storage has failed already.
            409 if refused > 0 => refused += 1,
            _ => panic!("{brief}"),
        }
    }
    (refused, acknowledged)
}

/// Reads every packet and file; what is not an error must be right.
fn read_while_failing(server: &Server, storage: &str) -> usize {
    let mut failed = 0;
    for number in 0..PACKETS_BEFORE {
        let path = format!("/api/v1/storages/{storage}/packets/{number}");
        // A body that ends early is an error of the connection.
        match server.connect().send(&Request::new("GET", &path)) {
            Ok(response) if response.status == 200 => {
                assert!(
                    response.body == packet(STREAM, number),
                    "packet {number} differs"
                );
            }
            Ok(response) => {
                assert!(response.status >= 500, "{}", response.brief());
                failed += 1;
            }
            Err(_) => failed += 1,
        }
    }
    failed
}
