//! `traceholdd`: reads its configuration, serves, and ends with 0 when everything was committed.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use server::{Config, Overrides, run, start_logging};

/// Buffers of a packet's size come and go with every request; the allocator of the C library gives
/// such memory back to the kernel each time and faults it in again.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Wrong use or configuration.
const EXIT_WRONG_USE: u8 = 2;
/// The server could not start, or not end well.
const EXIT_FAILED: u8 = 4;

/// The Tracehold server: keeps performance traces and serves them by byte range.
#[derive(Debug, Parser)]
#[command(name = "traceholdd", version)]
struct Flags {
    /// Settings, as TOML; see config/default.toml for all of them.
    #[arg(long, value_name = "FILE", env = "TRACEHOLD_CONFIG")]
    config: Option<PathBuf>,
    /// Address to listen on; port 0 takes a free one.
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// Where everything is kept.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Print the settings in effect and end.
    #[arg(long)]
    print_config: bool,
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    let overrides = Overrides {
        file: flags.config,
        listen: flags.listen,
        data_dir: flags.data_dir,
    };
    let config = match Config::load(&overrides, std::env::vars()) {
        Ok(config) => config,
        Err(error) => return fail(&error, EXIT_WRONG_USE),
    };
    if flags.print_config {
        say(&config.to_toml());
        return ExitCode::SUCCESS;
    }
    if let Err(error) = start_logging(&config.log) {
        return fail(&error, EXIT_WRONG_USE);
    }
    match run(config, |address| say(&greeting(address))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error, EXIT_FAILED),
    }
}

/// The ready line, which programs wait for, and what to do next, for people.
fn greeting(address: SocketAddr) -> String {
    let server = match address.port() {
        7117 => String::new(),
        _ => format!(" --server http://{address}"),
    };
    format!(
        "listening on http://{address}\n\
         next, in another terminal (from this folder: cargo run --release -p client -- …):\n  \
         tracehold storage create{server} --name first\n  \
         tracehold push{server} --storage first PATH-OF-A-TRACE\n  \
         tracehold storage finalize{server} first\n"
    )
}

/// Writes to standard output; who started the server may not listen, and that is no reason to end.
fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    if out
        .write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .is_err()
    {
        tracing::debug!("nobody reads the standard output");
    }
}

fn fail(error: &dyn std::error::Error, code: u8) -> ExitCode {
    let mut log = std::io::stderr().lock();
    // Nothing can be said when the standard error is closed; the exit code says it too.
    writeln!(log, "traceholdd: {error}").unwrap_or(());
    ExitCode::from(code)
}
