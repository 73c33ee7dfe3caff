//! Child processes: run one, read its output, and measure its CPU time and memory.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::failure::{Failure, Outcome};

/// With these options cargo builds the server with all object stores, as the tests need it.
pub(crate) const ALL_STORES: [&str; 2] = ["--features", "server/azure,server/gcp"];

/// The root folder of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask is in the root folder")
        .to_owned()
}

/// Cargo's target folder.
pub(crate) fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => root().join(folder),
        None => root().join("target"),
    }
}

/// The server with the profile `dist`, or from the folder that PROGRAMS_UNDER_TEST names.
pub(crate) fn dist_server() -> Outcome<PathBuf> {
    dist_program("server", "traceholdd")
}

/// The command line with the profile `dist`, or from the same folder.
pub(crate) fn dist_client() -> Outcome<PathBuf> {
    dist_program("client", "tracehold")
}

fn dist_program(package: &str, name: &str) -> Outcome<PathBuf> {
    if let Some(folder) = std::env::var_os("PROGRAMS_UNDER_TEST") {
        return Ok(PathBuf::from(folder).join(name));
    }
    run(&mut cargo(&[
        "build",
        "--profile",
        "dist",
        "--package",
        package,
    ]))?;
    Ok(target().join("dist").join(name))
}

/// Creates an empty folder for a job below cargo's target folder.
pub(crate) fn fresh_folder(name: &str) -> Outcome<PathBuf> {
    let folder = target().join(name);
    let failure = |source| Failure::File {
        path: folder.clone(),
        source,
    };
    if folder.exists() {
        std::fs::remove_dir_all(&folder).map_err(failure)?;
    }
    std::fs::create_dir_all(&folder).map_err(failure)?;
    Ok(folder)
}

/// A command in the root of the repository.
pub(crate) fn command(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root());
    command
}

/// `cargo` with these arguments: the same cargo that runs this program.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    command(
        &std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()),
        arguments,
    )
}

/// The command as one line, for messages.
pub(crate) fn line(command: &Command) -> String {
    let program = Path::new(command.get_program())
        .file_name()
        .unwrap_or_default();
    let mut text = program.to_string_lossy().into_owned();
    for argument in command.get_args() {
        text.push(' ');
        text.push_str(&argument.to_string_lossy());
    }
    text
}

/// Whether the command runs and exits with 0; its output is discarded.
pub(crate) fn run_quietly(command: &mut Command) -> bool {
    let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

/// Prints the command, runs it in this terminal, and fails unless it exits with 0.
pub(crate) fn run(command: &mut Command) -> Outcome {
    let line = line(command);
    eprintln!("$ {line}");
    let status = command.status().map_err(|source| Failure::Start {
        program: line.clone(),
        source,
    })?;
    if status.success() {
        return Ok(());
    }
    Err(Failure::Exit {
        command: line,
        status: status.to_string(),
    })
}

/// The standard output of the command; its standard error goes to this terminal.
pub(crate) fn output(command: &mut Command) -> Outcome<String> {
    let line = line(command);
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|source| Failure::Start {
            program: line.clone(),
            source,
        })?;
    if !output.status.success() {
        return Err(Failure::Exit {
            command: line,
            status: output.status.to_string(),
        });
    }
    String::from_utf8(output.stdout).map_err(|error| Failure::Answer {
        command: line,
        why: error.to_string(),
    })
}

/// Whether a program of this name is on the path.
pub(crate) fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Resources used by one run of a child.
#[derive(Clone, Debug)]
pub(crate) struct Usage {
    /// Wall time.
    pub wall: Duration,
    /// User and system time of the child and of all that it waited for; resolution 10 ms.
    pub cpu: Duration,
    /// The peak resident memory of the child itself, in bytes; 0 if it exited too fast to be
    /// sampled.
    pub peak_rss: u64,
    /// Its standard output.
    pub stdout: String,
}

/// Runs a command to completion and measures it. Fails unless it exits with 0.
///
/// CPU time is the growth of this process's total for waited-for children, so no other child may
/// exit meanwhile: measured runs are sequential.
pub(crate) fn measure(command: &mut Command) -> Outcome<Usage> {
    let line = line(command);
    let start_failure = |source| Failure::Start {
        program: line.clone(),
        source,
    };
    let cpu_before = waited_children_cpu()?;
    let begin = Instant::now();
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .map_err(start_failure)?;
    let mut pipe = child.stdout.take().expect("standard output is a pipe");
    let reader = thread::spawn(move || {
        let mut text = Vec::new();
        pipe.read_to_end(&mut text).map(|_| text)
    });
    let mut peak_rss = 0;
    let status = loop {
        // The peak only grows, so the last sample before the exit misses at most one interval.
        peak_rss = peak_rss.max(peak_rss_of(child.id()));
        match child.try_wait().map_err(start_failure)? {
            Some(status) => break status,
            None => thread::sleep(Duration::from_millis(2)),
        }
    };
    let wall = begin.elapsed();
    let text = reader
        .join()
        .expect("the reader does not panic")
        .map_err(start_failure)?;
    if !status.success() {
        return Err(Failure::Exit {
            command: line,
            status: status.to_string(),
        });
    }
    let cpu = waited_children_cpu()?.saturating_sub(cpu_before);
    Ok(Usage {
        wall,
        cpu,
        peak_rss,
        stdout: String::from_utf8_lossy(&text).into_owned(),
    })
}

/// User and system time of a running process, including the children it waited for.
pub(crate) fn cpu_of(pid: u32) -> Outcome<Duration> {
    let times = stat_times(&format!("/proc/{pid}/stat"))?;
    Ok(ticks(times.iter().sum()))
}

fn waited_children_cpu() -> Outcome<Duration> {
    let times = stat_times("/proc/self/stat")?;
    Ok(ticks(times[2] + times[3]))
}

/// The four times in a `stat` file of the proc file system (`man 5 proc`), in ticks: user, system,
/// and both of the children that were waited for.
fn stat_times(path: &str) -> Outcome<[u64; 4]> {
    let path = PathBuf::from(path);
    let text = std::fs::read_to_string(&path).map_err(|source| Failure::File {
        path: path.clone(),
        source,
    })?;
    parse_stat_times(&text).ok_or_else(|| Failure::Answer {
        command: path.display().to_string(),
        why: format!("no times in {text:?}"),
    })
}

fn parse_stat_times(text: &str) -> Option<[u64; 4]> {
    // The second field, the program's name in parentheses, may contain spaces and parentheses.
    let (_, rest) = text.rsplit_once(") ")?;
    let mut fields = rest
        .split_ascii_whitespace()
        .skip(11)
        .map(|field| field.parse().ok());
    Some([
        fields.next()??,
        fields.next()??,
        fields.next()??,
        fields.next()??,
    ])
}

/// Linux reports these times in hundredths of a second on every platform that Rust supports.
fn ticks(count: u64) -> Duration {
    Duration::from_millis(count.saturating_mul(10))
}

/// The peak resident memory of a process so far, in bytes; 0 if it no longer exists.
pub(crate) fn peak_rss_of(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let kib = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0).saturating_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_after_a_name_with_spaces() {
        let text = "7 (a ) b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16";
        assert_eq!(parse_stat_times(text), Some([11, 12, 13, 14]));
        assert_eq!(parse_stat_times("7 (a) S 1"), None);
    }

    #[test]
    fn a_busy_child_is_measured() {
        let script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo done";
        let usage = measure(&mut command("sh", &["-c", script])).unwrap();
        assert_eq!(usage.stdout, "done\n");
        assert!(usage.cpu >= Duration::from_millis(10), "{usage:?}");
        assert!(usage.peak_rss > 100_000, "{usage:?}");
    }

    #[test]
    fn a_status_other_than_0_is_a_failure() {
        let failure = measure(&mut command("sh", &["-c", "exit 3"])).unwrap_err();
        assert!(failure.to_string().contains("exit status: 3"), "{failure}");
    }
}
