//! `traceholdd`: reads its configuration, serves requests, and exits with 0 if everything was
//! committed.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use server::{Config, ConfigErrors, Overrides, run, start_logging};

/// Every request allocates and frees buffers of packet size. The allocator of the C library returns
/// such memory to the kernel each time and faults it in again.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Invalid usage or configuration.
const EXIT_USAGE: u8 = 2;
/// The server failed to start or to shut down cleanly.
const EXIT_FAILED: u8 = 4;

/// The Tracehold server: stores performance traces and serves them by byte range.
#[derive(Debug, Parser)]
#[command(name = "traceholdd", version)]
struct Flags {
    /// Configuration file (TOML); config/default.toml documents all settings.
    #[arg(long, value_name = "FILE", global = true, env = "TRACEHOLD_CONFIG")]
    config: Option<PathBuf>,
    /// Address to listen on; port 0 selects a free port.
    #[arg(long, value_name = "ADDR", global = true)]
    listen: Option<SocketAddr>,
    /// Folder of all data.
    #[arg(long, value_name = "DIR", global = true)]
    data_dir: Option<PathBuf>,
    /// Accept an address that other machines can reach: the server has no authentication yet, so
    /// everyone who reaches it can read and delete everything.
    #[arg(long, global = true)]
    insecure: bool,
    /// Print the effective settings and exit.
    #[arg(long)]
    print_config: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check the configuration without starting the server.
    #[command(subcommand)]
    Config(ConfigCommand),
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Check the settings of file, environment and flags: print the effective ones, or everything
    /// that is invalid, with exit code 2.
    Check,
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    let overrides = Overrides {
        file: flags.config,
        listen: flags.listen,
        data_dir: flags.data_dir,
        insecure: flags.insecure,
    };
    let config = match Config::load(&overrides, std::env::vars()) {
        Ok(config) => config,
        Err(ConfigErrors(errors)) => {
            for error in &errors {
                fail(error, EXIT_USAGE);
            }
            return ExitCode::from(EXIT_USAGE);
        }
    };
    let is_check = matches!(flags.command, Some(Command::Config(ConfigCommand::Check)));
    if is_check || flags.print_config {
        print(&config.to_toml());
        return ExitCode::SUCCESS;
    }
    if let Err(error) = start_logging(&config.log) {
        return fail(&error, EXIT_USAGE);
    }
    let scheme = if config.is_encrypted() {
        "https"
    } else {
        "http"
    };
    match run(config, |address| print(&greeting(scheme, address))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error, EXIT_FAILED),
    }
}

/// The ready line, which programs wait for, and the next steps for people.
fn greeting(scheme: &str, address: SocketAddr) -> String {
    let server = match reachable(address) {
        address if scheme == "http" && address == SocketAddr::from((Ipv4Addr::LOCALHOST, 7117)) => {
            String::new()
        }
        address => format!(" --server {scheme}://{address}"),
    };
    format!(
        "listening on {scheme}://{address}\n\
         next, in another terminal (from this folder: cargo run --release -p client -- …):\n  \
         tracehold storage create{server} --name first\n  \
         tracehold push{server} --storage first PATH-OF-A-TRACE\n  \
         tracehold storage finalize{server} first\n"
    )
}

/// The address as a client on this machine uses it.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// Writes to standard output. A closed standard output is not a reason to exit.
fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    if out
        .write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .is_err()
    {
        tracing::debug!("standard output is closed");
    }
}

fn fail(error: &dyn std::error::Error, code: u8) -> ExitCode {
    let mut log = std::io::stderr().lock();
    // If standard error is closed, only the exit code reports the failure.
    writeln!(log, "traceholdd: {error}").unwrap_or(());
    ExitCode::from(code)
}
