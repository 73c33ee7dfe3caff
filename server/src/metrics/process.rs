//! The process: what it uses, under the names that all servers have.

use std::fmt::Write as _;
use std::fs::{read_dir, read_to_string};

/// Length of a clock tick in the files of the kernel, which is the same on every machine.
const TICKS_PER_SECOND: f64 = 100.0;

/// What the kernel says about this process; what cannot be read is omitted.
#[derive(Debug, Default, Clone, PartialEq)]
struct Usage {
    cpu_seconds: Option<f64>,
    resident_bytes: Option<u64>,
    virtual_bytes: Option<u64>,
    threads: Option<u64>,
    open_files: Option<u64>,
    open_files_max: Option<u64>,
}

impl Usage {
    #[expect(
        clippy::disallowed_methods,
        reason = "these are files of the kernel: reading them does not wait for a disk"
    )]
    fn now() -> Self {
        let text = |name: &str| read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
        let files = read_dir("/proc/self/fd").ok();
        Self {
            open_files: files.map(|files| files.count() as u64),
            ..Self::parse(&text("stat"), &text("status"), &text("limits"))
        }
    }

    fn parse(stat: &str, status: &str, limits: &str) -> Self {
        // The second field is the name of the program, which may contain spaces.
        let fields = stat.rsplit_once(')').map(|(_, fields)| fields);
        let mut fields = fields.unwrap_or_default().split_ascii_whitespace();
        let user: Option<f64> = fields.nth(11).and_then(|ticks| ticks.parse().ok());
        let system: Option<f64> = fields.next().and_then(|ticks| ticks.parse().ok());
        let number = |name: &str| {
            let mut lines = status.lines();
            let line = lines.find_map(|line| line.strip_prefix(name))?;
            line.split_ascii_whitespace().next()?.parse::<u64>().ok()
        };
        let kib = |name: &str| number(name).map(|kib| kib.saturating_mul(1024));
        let max = |line: &str| {
            let rest = line.strip_prefix("Max open files")?;
            rest.split_ascii_whitespace().next()?.parse().ok()
        };
        Self {
            cpu_seconds: user
                .zip(system)
                .map(|(user, system)| (user + system) / TICKS_PER_SECOND),
            resident_bytes: kib("VmRSS:"),
            virtual_bytes: kib("VmSize:"),
            threads: number("Threads:"),
            open_files: None,
            open_files_max: limits.lines().find_map(max),
        }
    }

    fn render(&self, text: &mut String) {
        let mut put = |name: &str, kind: &str, help: &str, value: Option<String>| {
            if let Some(value) = value {
                let head = format!("# HELP process_{name} {help}\n# TYPE process_{name} {kind}\n");
                text.push_str(&head);
                // Writing to memory does not fail.
                let _ = writeln!(text, "process_{name} {value}");
            }
        };
        let whole = |value: Option<u64>| value.map(|value| value.to_string());
        put(
            "cpu_seconds_total",
            "counter",
            "CPU time of all threads.",
            self.cpu_seconds.map(|seconds| seconds.to_string()),
        );
        put(
            "resident_memory_bytes",
            "gauge",
            "Memory in use.",
            whole(self.resident_bytes),
        );
        put(
            "virtual_memory_bytes",
            "gauge",
            "Address space in use.",
            whole(self.virtual_bytes),
        );
        put("threads", "gauge", "Threads.", whole(self.threads));
        put("open_fds", "gauge", "Open files.", whole(self.open_files));
        put(
            "max_fds",
            "gauge",
            "Maximum number of open files.",
            whole(self.open_files_max),
        );
    }
}

/// Appends what this process is and what it uses. `started` is the time of its start, in seconds
/// since 1970.
pub(crate) fn render_process(started: f64, text: &mut Vec<u8>) {
    let version = env!("CARGO_PKG_VERSION");
    let mut all = format!(
        "# HELP tracehold_build_info The version of the server; the value is always 1.\n\
         # TYPE tracehold_build_info gauge\n\
         tracehold_build_info{{version=\"{version}\"}} 1\n\
         # HELP process_start_time_seconds Start of the process, seconds since 1970.\n\
         # TYPE process_start_time_seconds gauge\n\
         process_start_time_seconds {started}\n"
    );
    Usage::now().render(&mut all);
    text.extend_from_slice(all.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_kernel_are_read() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194560 9 0 0 0 250 150 0 0 20 0 12 0 1 2 3";
        let status = "Name:\ta\nVmSize:\t  2000 kB\nVmRSS:\t  1000 kB\nThreads:\t12\n";
        let limits = "Limit  Soft  Hard  Units\nMax open files  1024  4096  files\n";
        let expected = Usage {
            cpu_seconds: Some(4.0),
            resident_bytes: Some(1_024_000),
            virtual_bytes: Some(2_048_000),
            threads: Some(12),
            open_files: None,
            open_files_max: Some(1024),
        };
        assert_eq!(Usage::parse(stat, status, limits), expected);
        assert_eq!(
            Usage::parse("", "", "Max open files unlimited"),
            Usage::default()
        );
    }

    #[test]
    fn this_process_is_described() {
        let mut text = Vec::new();
        render_process(7.5, &mut text);
        let text = String::from_utf8(text).unwrap();
        for name in [
            "tracehold_build_info{version=",
            "process_start_time_seconds 7.5",
            "process_cpu_seconds_total ",
            "process_resident_memory_bytes ",
            "process_threads ",
            "process_open_fds ",
            "process_max_fds ",
        ] {
            assert!(text.lines().any(|line| line.starts_with(name)), "{name}");
        }
    }
}
