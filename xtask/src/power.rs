//! `cargo xtask power`: checks the disk images that a power cut may leave.
//!
//! The tools in `../shared/tools` record the disk and build the images; both call this program for
//! the recorded run and for the check.

use std::path::{Path, PathBuf};
use std::time::Duration;

use harness::{check_image, record_power, small_disk_settings};

use crate::failure::{Failure, Outcome};
use crate::install::{self, Origin, Tool};
use crate::options::Options;
use crate::process::{command, dist_server, fresh_folder, run, target};

const TOOLS: &[Tool] = &[Tool {
    program: "nbdfuse",
    from: Origin::Apt(&["libnbd-bin", "nbdkit", "nbdkit-plugin-python", "fuse3"]),
    needed_for: "a disk that logs every block write",
}];

/// The entire image is in memory while it is built.
const DISK_MIB: u64 = 256;

/// `--states 200 --seconds 3 --seed 1`, or one of the two words that the tools call back with.
pub(crate) fn run_job(arguments: &[String]) -> Outcome {
    match arguments {
        [word, folder, log, seconds] if word == "record" => {
            let seconds = seconds
                .parse()
                .map_err(|_| not_a_number("seconds", seconds))?;
            let duration = Duration::from_secs_f64(seconds);
            record_power(
                &server_folder(folder),
                &small_disk_settings(),
                Path::new(log),
                duration,
            );
            Ok(())
        }
        [word, log, folder, cut] if word == "check" => {
            let cut = cut.parse().map_err(|_| not_a_number("cut", cut))?;
            let count = check_image(
                &server_folder(folder),
                &small_disk_settings(),
                Path::new(log),
                cut,
            );
            println!("{count} packets");
            Ok(())
        }
        _ => run_everything(&Options::parse(arguments)?),
    }
}

fn not_a_number(what: &str, text: &str) -> Failure {
    Failure::Usage(format!("{what}: {text:?} is not a number"))
}

fn server_folder(mount: &str) -> PathBuf {
    Path::new(mount).join("server")
}

fn run_everything(options: &Options) -> Outcome {
    let states: u32 = options.get("states", 200)?;
    let seconds: f64 = options.get("seconds", 3.0)?;
    let seed: u32 = options.get("seed", 1)?;
    let Some(tools) = harness::tools() else {
        return Err(Failure::Run(
            "the tools that record a disk do not exist: ../shared/tools".to_owned(),
        ));
    };
    install::ensure(TOOLS)?;
    let server = dist_server()?;
    let programs = server.parent().expect("a program is in a folder");
    let folder = fresh_folder("power")?;
    let this = std::env::current_exe().map_err(|source| Failure::Start {
        program: "xtask".to_owned(),
        source,
    })?;
    let log = target().join("power-acknowledged.log");
    let mut record = command("bash", &[]);
    record
        .arg(tools.join("fault/record.sh"))
        .arg(&folder)
        .arg((DISK_MIB << 20).to_string());
    record
        .arg(&this)
        .args(["power", "record"])
        .arg(folder.join("mnt"))
        .arg(&log);
    run(record
        .arg(seconds.to_string())
        .env("PROGRAMS_UNDER_TEST", programs))?;
    let mut replay = command("python3", &[]);
    replay
        .arg(tools.join("fault/replay.py"))
        .arg(&folder)
        .arg(DISK_MIB.to_string());
    replay.args([states.to_string(), seed.to_string()]);
    replay.arg(&this).args(["power", "check"]).arg(&log);
    run(replay.env("PROGRAMS_UNDER_TEST", programs))
}
