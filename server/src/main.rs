//! `traceholdd`: reads its configuration, serves requests, and exits with 0 if everything was
//! committed.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use query_language::time::parse_duration;
use server::{
    Addresses, Config, ConfigErrors, Overrides, check_named_files, create_operator_token, run,
    start_logging, verify_audit,
};

/// Every request allocates and frees buffers of packet size. The allocator of the C library returns
/// such memory to the kernel each time and faults it in again.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The audit log is damaged.
const EXIT_DAMAGED: u8 = 1;
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
    /// Accept an address that other machines can reach although there are no tokens: everyone who
    /// reaches it can read and delete everything.
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
    /// The audit log.
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Tokens of a data folder that no server uses; `tracehold token` asks a server that runs.
    #[command(subcommand)]
    Token(TokenCommand),
    /// Print the completions of this command for a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Write the pages of the manual, one for each command.
    Manual {
        /// Folder to write to; it is created if it does not exist.
        #[arg(value_name = "FOLDER")]
        folder: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
enum AuditCommand {
    /// Check that no line was removed, changed or moved; exit code 1 otherwise.
    ///
    /// Prints the number of the last line and its seal. Note them elsewhere, and compare: lines
    /// that are missing at the end, and a log that was written anew, cannot be found otherwise.
    Verify {
        /// Files of one audit log, the oldest first; by default all of the data folder.
        #[arg(value_name = "FILE")]
        files: Vec<PathBuf>,
    },
}

#[derive(Debug, Subcommand)]
enum TokenCommand {
    /// Create a token of an operator and print it: the first one, or one to replace a lost one.
    Create {
        /// What it is for; shown in lists.
        #[arg(long, default_value = "operator")]
        name: String,
        /// It expires after this time, such as 30d or 12h; never by default.
        #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
        expires: Option<i64>,
    },
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Check the settings of file, environment and flags, and the files that they name: print the
    /// effective settings, or everything that is invalid, with exit code 2.
    Check,
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    match &flags.command {
        Some(Command::Completions { shell }) => return print_completions(*shell),
        Some(Command::Manual { folder }) => return write_manual(folder),
        _ => {}
    }
    let overrides = Overrides {
        file: flags.config,
        listen: flags.listen,
        data_dir: flags.data_dir,
        // A token can be created for a server that is not let out without one.
        insecure: flags.insecure
            || matches!(flags.command, Some(Command::Token(_) | Command::Audit(_))),
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
    if is_check {
        let problems = check_named_files(&config);
        for problem in &problems {
            fail(&std::io::Error::other(problem.clone()), EXIT_USAGE);
        }
        if !problems.is_empty() {
            return ExitCode::from(EXIT_USAGE);
        }
    }
    if is_check || flags.print_config {
        return printed(&config.to_toml());
    }
    if let Some(Command::Audit(AuditCommand::Verify { files })) = &flags.command {
        return match verify_audit(config.data_dir(), files) {
            Ok((number, seal)) => printed(&format!(
                "intact: {number} lines, the last one has the seal {seal}\n"
            )),
            Err(error) => fail(&error, EXIT_DAMAGED),
        };
    }
    if let Some(Command::Token(TokenCommand::Create { name, expires })) = flags.command {
        return create_token(&config, name, expires);
    }
    if let Err(error) = start_logging(&config.log) {
        return fail(&error, EXIT_USAGE);
    }
    let scheme = if config.is_encrypted() {
        "https"
    } else {
        "http"
    };
    let greet = |addresses| {
        // A closed standard output is not a reason for a server to end.
        if print(&greeting(scheme, addresses)).is_err() {
            tracing::debug!("standard output is closed");
        }
    };
    match run(config, greet) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error, EXIT_FAILED),
    }
}

/// Creates a token and prints it.
fn create_token(config: &Config, name: String, expires: Option<i64>) -> ExitCode {
    match create_operator_token(config.data_dir(), name, expires) {
        Ok(token) => match print(&format!("{token}\n")) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                let lost = format!(
                    "standard output: {error}; the token was made and nobody has it: make another \
                     one, and revoke this one with it"
                );
                fail(&std::io::Error::other(lost), EXIT_FAILED)
            }
        },
        Err(error) => fail(&error, EXIT_FAILED),
    }
}

fn print_completions(shell: Shell) -> ExitCode {
    // The generator panics when it cannot write, so it writes into memory.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Flags::command(), "traceholdd", &mut script);
    printed(&String::from_utf8_lossy(&script))
}

#[expect(
    clippy::disallowed_methods,
    reason = "pages of the manual are not data of the server"
)]
fn write_manual(folder: &Path) -> ExitCode {
    let written = std::fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(Flags::command(), folder));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let place = folder.display();
            fail(
                &std::io::Error::other(format!("{place}: {error}")),
                EXIT_FAILED,
            )
        }
    }
}

/// The ready line, which programs wait for, and the next steps for people.
fn greeting(scheme: &str, addresses: Addresses) -> String {
    let address = addresses.http;
    let otlp: String = [
        ("OTLP/gRPC", addresses.otlp_grpc),
        ("OTLP/HTTP", addresses.otlp_http),
    ]
    .iter()
    .filter_map(|(name, address)| Some(format!("{name} on {scheme}://{}\n", address.as_ref()?)))
    .collect();
    let server = match reachable(address) {
        address if scheme == "http" && address == SocketAddr::from((Ipv4Addr::LOCALHOST, 7117)) => {
            String::new()
        }
        address => format!(" --server {scheme}://{address}"),
    };
    format!(
        "{otlp}listening on {scheme}://{address}\n\
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

/// Writes to standard output.
fn print(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Writes the result of a command; whoever closed the pipe has read enough of it.
fn printed(text: &str) -> ExitCode {
    match print(text) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => fail(
            &std::io::Error::other(format!("standard output: {error}")),
            EXIT_FAILED,
        ),
        _ => ExitCode::SUCCESS,
    }
}

fn fail(error: &dyn std::error::Error, code: u8) -> ExitCode {
    let mut log = std::io::stderr().lock();
    // If standard error is closed, only the exit code reports the failure.
    writeln!(log, "traceholdd: {error}").unwrap_or(());
    ExitCode::from(code)
}
