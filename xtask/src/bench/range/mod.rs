//! Byte ranges of one finalized data file, the whole of it, and bodies that are thrown away,
//! against nginx on the same file.

mod load;
mod nginx;

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::time::Duration;

use harness::{Agent, Api, Connection, Random, Request, Server, Settings, parts};

pub(super) use self::load::RangeLoad;
use self::nginx::{Nginx, NginxConfig};
use super::paired::{Figures, Side, Target, Verdict, alternate, conclude};
use super::table::Table;
use crate::failure::{Failure, Outcome};
use crate::install::{self, Origin, Tool};
use crate::options::Options;
use crate::process::{command, dist_server, fresh_folder, output, root};

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
    Tool {
        program: "curl",
        from: Origin::Apt(&["curl"]),
        needed_for: "getting a whole file",
    },
];

/// The size of a packet, and the number of packets in 1 GiB.
const PACKET_BYTES: usize = 1 << 20;
const PACKET_COUNT: u64 = 1 << 10;

const NAMES: [&str; 2] = ["tracehold", "nginx"];
/// A server stops within this time.
const STOP: Duration = Duration::from_secs(60);

/// One server of the comparison.
pub(super) struct Party {
    pub(super) url: String,
    pub(super) pid: u32,
}

impl Party {
    /// A file of our server.
    pub(super) fn of(server: &Server, file: &Finalized) -> Self {
        Self::new(&server.url(), server.pid()).at(&file.path(0))
    }

    fn new(url: &str, pid: u32) -> Self {
        Self {
            url: url.to_owned(),
            pid,
        }
    }

    /// A path of the same server.
    fn at(&self, path: &str) -> Self {
        Self::new(&format!("{}{path}", self.url), self.pid)
    }
}

/// What every row of the comparison needs.
struct Bench<'a> {
    options: &'a Options,
    folder: PathBuf,
    file: Finalized,
    verdicts: Vec<Verdict>,
}

/// `--runs 5 --seconds 5 --connections 16 --threads 0 --workers 1`: threads of traceholdd (0 = its
/// default), workers of nginx.
pub(crate) fn run_bench(options: &Options) -> Outcome {
    install::ensure(TOOLS)?;
    let folder = fresh_folder("bench/range")?;
    let mut server = Server::start(&folder, &settings(options, "")?);
    let file = finalized_file(&mut server.api());
    let mut bench = Bench {
        options,
        folder,
        file,
        verdicts: Vec::new(),
    };
    bench.plain(&server)?;
    server.terminate();
    server.wait(STOP);
    bench.encrypted()?;
    conclude(&bench.verdicts);
    Ok(())
}

/// A server with these further lines of configuration.
fn settings(options: &Options, further: &str) -> Outcome<Settings> {
    let threads: u32 = options.get("threads", 0)?;
    let config = format!("[runtime]\nthreads = {threads}\n{further}");
    Ok(Settings {
        program: Some(dist_server()?),
        ..Settings::with_config(&config)
    })
}

impl Bench<'_> {
    /// The rows without encryption.
    fn plain(&mut self, server: &Server) -> Outcome {
        let config = NginxConfig::default();
        let nginx = self.nginx(server.data(), &config)?;
        same_answers(server, &nginx, &self.file)?;
        let parties = [
            Party::new(&server.url(), server.pid()),
            Party::new(&nginx.url(), nginx.worker()?),
        ];
        self.ranges(&parties, "", [1.1, 2.3])?;
        let sending = NginxConfig {
            is_sendfile: true,
            ..config
        };
        let sending = self.nginx(server.data(), &sending)?;
        self.whole_file(&parties, &Party::new(&sending.url(), sending.worker()?))?;
        self.discarded_posts(&parties[1])
    }

    /// The same over TLS.
    fn encrypted(&mut self) -> Outcome {
        let files = tls_files();
        let tls = format!(
            "[tls]\ncertificate_file = {:?}\nkey_file = {:?}\n",
            files.0, files.1
        );
        let server = Server::listening(&self.folder, &settings(self.options, &tls)?);
        let server = server.map_err(|error| Failure::Run(format!("no server: {error}")))?;
        let config = NginxConfig {
            tls: Some(files),
            ..NginxConfig::default()
        };
        let nginx = self.nginx(server.data(), &config)?;
        let url = format!("https://{}", server.address());
        let parties = [
            Party::new(&url, server.pid()),
            Party::new(&nginx.url(), nginx.worker()?),
        ];
        self.ranges(&parties, " over TLS", [0.9, 0.9])
    }

    fn nginx(&self, data: &Path, config: &NginxConfig) -> Outcome<Nginx> {
        let workers = self.options.get("workers", 1)?;
        Nginx::start(&self.folder, &data.join("storages"), workers, config)
    }

    /// Rates of single and of multiple ranges, and the slowest hundredth of the latter.
    fn ranges(&mut self, parties: &[Party; 2], how: &str, minima: [f64; 2]) -> Outcome {
        let seconds = self.options.get("seconds", 5)?;
        let connections = self.options.get("connections", 16)?;
        let length = self.file.length;
        let single = RangeLoad::single(&self.folder, length, seconds, connections)?;
        let multiple = RangeLoad::multiple(&self.folder, length, seconds, connections)?;
        let rows = [
            ("64 KiB single range", single),
            ("16 x 4 KiB multi-range", multiple),
        ];
        for ((name, load), minimum) in rows.into_iter().zip(minima) {
            let slowest = RefCell::new([Vec::new(), Vec::new()]);
            let run = |at: usize| {
                let path = self.file.path(at);
                let measured = load.measure(&parties[at].at(&path))?;
                slowest.borrow_mut()[at].push(measured.p99);
                Ok(measured.rate)
            };
            let figures = alternate(self.options.runs()?, &mut both(&run))?;
            println!("{name}{how}");
            print!("{}", Table::of_figures("requests/s", &figures));
            let ratio = figures[0].ratio(&figures[1]);
            let what = format!("{name}{how}, of nginx");
            let verdict = Verdict::new(what, Target::AtLeast(minimum), ratio);
            self.verdicts.push(verdict);
            if how.is_empty() && name.starts_with("16") {
                let slowest = slowest.into_inner().map(|mut runs| {
                    // The run that warms the caches.
                    runs.remove(0);
                    runs
                });
                let figures = named(slowest);
                print!("{}", Table::of_figures("p99 in ms", &figures));
                let ratio = figures[0].ratio(&figures[1]);
                let what = format!("{name}, p99, of nginx");
                self.verdicts
                    .push(Verdict::new(what, Target::AtMost(1.0), ratio));
            }
        }
        Ok(())
    }

    /// The rate of the whole file to one client, also of nginx with `sendfile`.
    fn whole_file(&mut self, parties: &[Party; 2], sending: &Party) -> Outcome {
        let all = [&parties[0], &parties[1], sending];
        let get = |at: usize| download(&all[at].at(&self.file.path(at)).url, self.file.length);
        let names = ["tracehold", "nginx", "nginx, sendfile on"];
        let mut sides: Vec<Side<'_>> = (0..all.len())
            .map(|at| Side {
                name: names[at],
                run: Box::new(move || get(at)),
            })
            .collect();
        let figures = alternate(self.options.runs()?, &mut sides)?;
        println!("1 GiB file");
        print!("{}", Table::of_figures("GB/s", &figures));
        for (at, what) in [
            (1, "1 GiB file, of nginx"),
            (2, "1 GiB file, of nginx with sendfile"),
        ] {
            let ratio = figures[0].ratio(&figures[at]);
            self.verdicts
                .push(Verdict::new(what, Target::AtLeast(1.0), ratio));
        }
        Ok(())
    }

    /// CPU time of a server for a packet of 64 KiB that it reads and keeps nowhere.
    fn discarded_posts(&mut self, nginx: &Party) -> Outcome {
        let folder = self.folder.join("discard");
        let server = Server::start(
            &folder,
            &settings(self.options, "[bench]\ndiscard = true\n")?,
        );
        let mut api = server.api();
        let storage = api.create_storage("discarded");
        let agent = Agent::declare(&mut api, &storage, "bench", "posts", "none");
        let ours = Party::new(&server.url(), server.pid()).at(agent.path());
        let parties = [ours, nginx.at("/discard")];
        let seconds = self.options.get("seconds", 5)?;
        let load = RangeLoad::posts(&self.folder, seconds, self.options.get("connections", 16)?)?;
        let run = |at: usize| Ok(load.measure(&parties[at])?.cpu);
        let figures = alternate(self.options.runs()?, &mut both(&run))?;
        println!("64 KiB POST that is discarded");
        print!("{}", Table::of_figures("CPU µs a request", &figures));
        let ratio = figures[0].ratio(&figures[1]);
        let what = "CPU time of a discarded 64 KiB POST, of nginx";
        self.verdicts
            .push(Verdict::new(what, Target::AtMost(1.0), ratio));
        Ok(())
    }
}

/// The two sides of a comparison.
fn both<'a>(run: &'a impl Fn(usize) -> Outcome<f64>) -> [Side<'a>; 2] {
    [0, 1].map(|at| Side {
        name: NAMES[at],
        run: Box::new(move || run(at)),
    })
}

fn named(runs: [Vec<f64>; 2]) -> [Figures; 2] {
    let mut names = NAMES.into_iter();
    runs.map(|runs| Figures {
        name: names.next().unwrap_or_default().to_owned(),
        runs,
    })
}

/// Bytes per nanosecond at which curl gets a file.
fn download(url: &str, length: u64) -> Outcome<f64> {
    let mut curl = command("curl", &["--silent", "--output", "/dev/null"]);
    curl.args([
        "--write-out",
        "%{speed_download} %{http_code} %{size_download}",
    ]);
    let answer = output(curl.arg(url))?;
    let fields: Vec<&str> = answer.split_whitespace().collect();
    match fields[..] {
        [speed, "200", size] if size == length.to_string() => {
            let speed: Option<f64> = speed.parse().ok();
            speed.map(|speed| speed / 1e9)
        }
        _ => None,
    }
    .ok_or_else(|| Failure::Answer {
        command: "curl".to_owned(),
        why: format!("not the whole file: {answer}"),
    })
}

/// Certificate and key of the tests.
fn tls_files() -> (PathBuf, PathBuf) {
    let folder = root().join("tests/data/tls");
    (folder.join("server.pem"), folder.join("server.key"))
}

/// A finalized data file.
pub(super) struct Finalized {
    pub(super) storage: String,
    pub(super) name: String,
    pub(super) length: u64,
}

impl Finalized {
    /// Its path at our server (0), or below the folder of storages.
    fn path(&self, party: usize) -> String {
        let prefix = if party == 0 { "/storage" } else { "" };
        format!("{prefix}/{}/{}", self.storage, self.name)
    }
}

/// Pushes 1 GiB, and finalizes.
pub(super) fn finalized_file(api: &mut Api) -> Finalized {
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
    Finalized {
        storage,
        name,
        length,
    }
}

/// Both must send the same bytes, otherwise a comparison of their speed is meaningless.
fn same_answers(server: &Server, nginx: &Nginx, file: &Finalized) -> Outcome {
    let mut random = Random::new(7);
    let mut ours = server.connect();
    let mut theirs = Connection::open(nginx.address()).map_err(io_failure)?;
    for count in [1, 16] {
        let sixteenth = file.length / 16;
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
        let ours = request(&mut ours, file.path(0))?;
        let theirs = request(&mut theirs, file.path(1))?;
        if ours != theirs {
            return Err(Failure::Run(format!("the answers to {range} differ")));
        }
    }
    Ok(())
}

fn io_failure(error: std::io::Error) -> Failure {
    Failure::Run(format!("a range request failed: {error}"))
}
