//! Byte ranges of one finalized data file, against nginx on the same file.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use harness::{Agent, Api, Connection, Random, Request, Server, Settings, parts};

use super::paired::{Side, Target, Verdict, alternate, conclude};
use super::table::Table;
use crate::failure::{Failure, Outcome};
use crate::install::{self, Origin, Tool};
use crate::options::Options;
use crate::process::{command, cpu_of, dist_server, fresh_folder, output};

pub(super) const TOOLS: &[Tool] = &[
    Tool {
        program: "nginx",
        from: Origin::Apt(&["nginx-light"]),
        needed_for: "comparison",
    },
    Tool {
        program: "wrk",
        from: Origin::Apt(&["wrk"]),
        needed_for: "sending range requests",
    },
];

/// The size of a packet, and the number of packets in 1 GiB.
const PACKET_BYTES: usize = 1 << 20;
const PACKET_COUNT: u64 = 1 << 10;

const SINGLE_RATIO_MIN: f64 = 0.9;
const MULTI_RATIO_MIN: f64 = 1.0;

/// One random range of 64 KiB per request, at a multiple of 4 KiB.
const SINGLE_SCRIPT: &str = r#"
local N = tonumber(os.getenv("FILE_BYTES"))
init = function(args) math.randomseed(12345) end
request = function()
  local s = math.random(0, math.floor((N - 65536) / 4096)) * 4096
  return wrk.format("GET", nil, { ["Range"] = string.format("bytes=%d-%d", s, s + 65535) })
end
"#;

/// 16 disjoint ascending ranges of 4 KiB per request, one in each sixteenth of the file.
const MULTI_SCRIPT: &str = r#"
local N = tonumber(os.getenv("FILE_BYTES"))
local S = math.floor(N / 16 / 4096)
init = function(args) math.randomseed(54321) end
request = function()
  local t = {}
  for i = 0, 15 do
    local s = (i * S + math.random(0, S - 1)) * 4096
    t[#t + 1] = string.format("%d-%d", s, s + 4095)
  end
  return wrk.format("GET", nil, { ["Range"] = "bytes=" .. table.concat(t, ",") })
end
"#;

/// One server of the comparison.
pub(super) struct Party {
    pub(super) url: String,
    pub(super) pid: u32,
}

/// `--runs 5 --seconds 5 --connections 16 --threads 0 --workers 1`: threads of traceholdd (0 = its
/// default), workers of nginx.
pub(crate) fn run_bench(options: &Options) -> Outcome {
    let seconds: u32 = options.get("seconds", 5)?;
    let connections: u32 = options.get("connections", 16)?;
    let threads: u32 = options.get("threads", 0)?;
    install::ensure(TOOLS)?;
    let folder = fresh_folder("bench/range")?;
    let settings = Settings {
        program: Some(dist_server()?),
        ..Settings::with_config(&format!("[runtime]\nthreads = {threads}\n"))
    };
    let server = Server::start(&folder, &settings);
    let (storage, file, length) = finalized_file(&mut server.api());
    let nginx = Nginx::start(&folder, server.data(), options.get("workers", 1)?)?;
    let ours = Party {
        url: format!("{}/storage/{storage}/{file}", server.url()),
        pid: server.pid(),
    };
    let theirs = Party {
        url: nginx.url(&format!("/{storage}/{file}")),
        pid: nginx.worker()?,
    };
    same_answers(&server, &nginx, &storage, &file, length)?;

    let mut verdicts = Vec::new();
    for (name, script, minimum) in [
        ("64 KiB single range", SINGLE_SCRIPT, SINGLE_RATIO_MIN),
        ("16 x 4 KiB multi-range", MULTI_SCRIPT, MULTI_RATIO_MIN),
    ] {
        let load = RangeLoad::new(&folder, script, length, seconds, connections)?;
        let mut sides = [
            Side {
                name: "tracehold",
                run: Box::new(|| load.run(&ours)),
            },
            Side {
                name: "nginx",
                run: Box::new(|| load.run(&theirs)),
            },
        ];
        let figures = alternate(options.runs()?, &mut sides)?;
        println!("{name}");
        print!("{}", Table::of_figures("requests/s", &figures));
        let ratio = figures[0].ratio(&figures[1]);
        let what = format!("{name}, of nginx");
        verdicts.push(Verdict::new(what, Target::AtLeast(minimum), ratio));
    }
    conclude(&verdicts);
    Ok(())
}

/// Pushes 1 GiB, finalizes, and returns the storage, the data file and its length.
pub(super) fn finalized_file(api: &mut Api) -> (String, String, u64) {
    let storage = api.create_storage("bench");
    let agent = Agent::declare(api, &storage, "bench", "ranges", "none");
    let first = agent.next_sequence(api);
    for packet in 0..PACKET_COUNT {
        agent.push(
            api,
            first + packet,
            &harness::payload(1, packet, PACKET_BYTES),
        );
    }
    api.finalize(&storage);
    let files = api.files(&storage);
    let (name, _, length) = files
        .into_iter()
        .max_by_key(|&(.., length)| length)
        .expect("a storage has files");
    (storage, name, length)
}

/// Both must send the same bytes, otherwise a comparison of their speed is meaningless.
fn same_answers(server: &Server, nginx: &Nginx, storage: &str, file: &str, length: u64) -> Outcome {
    let mut random = Random::new(7);
    let mut ours = server.connect();
    let mut theirs = Connection::open(nginx.address).map_err(io_failure)?;
    for count in [1, 16] {
        let sixteenth = length / 16;
        let range = |slice| {
            let begin = slice * sixteenth + random.below(sixteenth - 4096);
            format!("{begin}-{}", begin + 4095)
        };
        let list: Vec<String> = (0..count).map(range).collect();
        let range = format!("bytes={}", list.join(","));
        let request = |connection: &mut Connection, path: String| {
            let request = Request::new("GET", &path).header("range", &range);
            connection
                .send(&request)
                .map(|response| parts(&response))
                .map_err(io_failure)
        };
        let ours = request(&mut ours, format!("/storage/{storage}/{file}"))?;
        let theirs = request(&mut theirs, format!("/{storage}/{file}"))?;
        if ours != theirs {
            return Err(Failure::Run(format!("the answers to {range} differ")));
        }
    }
    Ok(())
}

fn io_failure(error: std::io::Error) -> Failure {
    Failure::Run(format!("a range request failed: {error}"))
}

/// Range requests sent by wrk.
pub(super) struct RangeLoad {
    script: PathBuf,
    length: u64,
    seconds: u32,
    connections: u32,
}

impl RangeLoad {
    fn new(
        folder: &Path,
        script: &str,
        length: u64,
        seconds: u32,
        connections: u32,
    ) -> Outcome<Self> {
        let name = if script == MULTI_SCRIPT {
            "multiple.lua"
        } else {
            "single.lua"
        };
        let path = folder.join(name);
        std::fs::write(&path, script).map_err(|source| Failure::File {
            path: path.clone(),
            source,
        })?;
        Ok(Self {
            script: path,
            length,
            seconds,
            connections,
        })
    }

    /// Single ranges of 64 KiB of a file of `length` bytes.
    pub(super) fn single(
        folder: &Path,
        length: u64,
        seconds: u32,
        connections: u32,
    ) -> Outcome<Self> {
        Self::new(folder, SINGLE_SCRIPT, length, seconds, connections)
    }

    /// 16 ranges of 4 KiB a request of a file of `length` bytes.
    pub(super) fn multiple(
        folder: &Path,
        length: u64,
        seconds: u32,
        connections: u32,
    ) -> Outcome<Self> {
        Self::new(folder, MULTI_SCRIPT, length, seconds, connections)
    }

    /// Requests per second.
    fn run(&self, party: &Party) -> Outcome<f64> {
        self.measure(party).map(|(rate, _)| rate)
    }

    /// Requests per second, and CPU µs of the server per request.
    pub(super) fn measure(&self, party: &Party) -> Outcome<(f64, f64)> {
        let cpu_before = cpu_of(party.pid)?;
        let mut wrk = command("wrk", &["--threads", "1", "--latency"]);
        wrk.args([format!("--connections={}", self.connections)])
            .args([format!("--duration={}s", self.seconds)])
            .arg("--script")
            .arg(&self.script)
            .arg(&party.url)
            .env("FILE_BYTES", self.length.to_string());
        let answer = output(&mut wrk)?;
        let cpu = cpu_of(party.pid)?.saturating_sub(cpu_before);
        let malformed = |why: &str| Failure::Answer {
            command: "wrk".to_owned(),
            why: format!("{why} in {answer}"),
        };
        if answer.contains("Non-2xx") || answer.contains("Socket errors") {
            return Err(malformed("failed requests"));
        }
        let rate: f64 = field(&answer, "Requests/sec:").ok_or_else(|| malformed("no rate"))?;
        let count = rate * f64::from(self.seconds);
        let cpu = cpu.as_secs_f64() * 1e6 / count;
        eprintln!(
            "  {rate:.0} requests/s, {cpu:.1} CPU µs a request, p99 {}",
            field::<String>(&answer, "99%").unwrap_or_default(),
        );
        Ok((rate, cpu))
    }
}

/// The word after a label at the beginning of a line.
fn field<T: std::str::FromStr>(answer: &str, label: &str) -> Option<T> {
    let rest = answer
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(label))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// nginx with one worker on the folder of storages; dropping it stops it.
struct Nginx {
    child: Child,
    address: std::net::SocketAddr,
}

impl Nginx {
    /// Sendfile is off because with it nginx delays multi-range responses by 40 ms.
    fn start(folder: &Path, data: &Path, workers: u32) -> Outcome<Self> {
        let address = free_address().map_err(io_failure)?;
        let folder_text = folder.display();
        let mut config = format!(
            "daemon off; user root; worker_processes {workers}; pid {folder_text}/nginx.pid;\n\
             error_log {folder_text}/nginx-error.log warn;\n\
             events {{ worker_connections 1024; }}\n\
             http {{ access_log off; sendfile off; tcp_nopush off; tcp_nodelay on;\n\
             output_buffers 4 128k; keepalive_requests 100000000; keepalive_timeout 60s;\n\
             default_type application/octet-stream; open_file_cache max=16 inactive=60s;\n"
        );
        for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
            writeln!(config, "{kind}_temp_path {folder_text}/nginx-{kind};")
                .expect("writing to a string does not fail");
        }
        let root = data.join("storages");
        writeln!(
            config,
            "server {{ listen {address}; root {}; }} }}",
            root.display()
        )
        .expect("writing to a string does not fail");
        let path = folder.join("nginx.conf");
        std::fs::write(&path, config).map_err(|source| Failure::File {
            path: path.clone(),
            source,
        })?;
        let mut nginx = command("nginx", &["-p", &folder_text.to_string(), "-c"]);
        let child = nginx.arg(&path).stdout(Stdio::null()).spawn();
        let child = child.map_err(|source| Failure::Start {
            program: "nginx".to_owned(),
            source,
        })?;
        let nginx = Self { child, address };
        for _ in 0..200 {
            if Connection::open(address).is_ok() {
                return Ok(nginx);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(Failure::Run(format!(
            "nginx does not respond: see {folder_text}/nginx-error.log"
        )))
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The worker process: the first child of nginx's master.
    fn worker(&self) -> Outcome<u32> {
        let pid = self.child.id();
        let path = PathBuf::from(format!("/proc/{pid}/task/{pid}/children"));
        let text = std::fs::read_to_string(&path).map_err(|source| Failure::File {
            path: path.clone(),
            source,
        })?;
        let first = text
            .split_whitespace()
            .next()
            .and_then(|pid| pid.parse().ok());
        first.ok_or_else(|| Failure::Run("nginx has no worker process".to_owned()))
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // The master stops its workers on SIGTERM, but not on SIGKILL.
        let pid = self.child.id().to_string();
        if command("kill", &["-TERM", &pid]).status().is_ok() {
            self.child.wait().ok();
        }
    }
}

/// A port that was free a moment ago: nginx cannot report which one it got.
fn free_address() -> std::io::Result<std::net::SocketAddr> {
    std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_wrk_is_parsed() {
        let answer = "  Latency Distribution\n     99%    1.30ms\nRequests/sec:  20662.41\n";
        assert_eq!(field(answer, "Requests/sec:"), Some(20662.41));
        assert_eq!(field(answer, "99%"), Some("1.30ms".to_owned()));
        assert_eq!(field::<f64>(answer, "Socket errors:"), None);
    }
}
