use std::cell::{RefCell, RefMut};
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};
use std::path::PathBuf;

use anstyle::{AnsiColor, Style};
use clap::Args;
use io_analysis::Layout;
use serde::Serialize;
use serde_json::Value;
use tokio::runtime::Runtime;

use super::error::CommandError;
use crate::ClientError;
use crate::http::{Bearer, Client, Retry, ServerUrl, StorageUrl, TlsFiles};

/// Options that every subcommand accepts.
#[derive(Debug, Clone, Args)]
pub struct Global {
    /// URL of the server
    #[arg(
        long,
        global = true,
        env = "TRACEHOLD_SERVER",
        value_name = "URL",
        default_value = "http://127.0.0.1:7117"
    )]
    pub server: String,
    /// Bearer token for the server
    #[arg(
        long,
        global = true,
        env = "TRACEHOLD_TOKEN",
        value_name = "TOKEN",
        hide_env_values = true
    )]
    pub token: Option<Bearer>,
    /// File with the bearer token, if it is given neither here nor in TRACEHOLD_TOKEN
    #[arg(long, global = true, env = "TRACEHOLD_TOKEN_FILE", value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// PEM file with the authorities to trust on https, instead of those of the system
    #[arg(long, global = true, env = "TRACEHOLD_CA_FILE", value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// PEM file with a certificate to present to servers that ask for one
    #[arg(
        long,
        global = true,
        env = "TRACEHOLD_CLIENT_CERTIFICATE",
        value_name = "FILE"
    )]
    pub client_certificate: Option<PathBuf>,
    /// PEM file with the private key of that certificate
    #[arg(long, global = true, env = "TRACEHOLD_CLIENT_KEY", value_name = "FILE")]
    pub client_key: Option<PathBuf>,
    /// Print output and errors as JSON
    #[arg(long, global = true)]
    pub json: bool,
    /// Show no progress bars
    #[arg(long, global = true)]
    pub quiet: bool,
}

/// What a subcommand runs with: the global options, the output, the runtime.
#[derive(Debug)]
pub struct Context {
    global: Global,
    out: RefCell<BufWriter<Output>>,
    /// The file that replaces the standard output.
    redirected: RefCell<Option<PathBuf>>,
}

/// Where the output goes.
#[derive(Debug)]
pub enum Output {
    Stdout(Stdout),
    File(File),
}

impl Output {
    fn is_terminal(&self) -> bool {
        match self {
            Output::Stdout(stdout) => stdout.is_terminal(),
            Output::File(_) => false,
        }
    }
}

/// Whether a terminal may be sent colours: <https://no-color.org>.
fn allows_colour() -> bool {
    let no_color = std::env::var_os("NO_COLOR").unwrap_or_default();
    no_color.is_empty() && std::env::var_os("TERM").is_some_and(|term| term != "dumb")
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Output::Stdout(stdout) => stdout.write(bytes),
            Output::File(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Output::Stdout(stdout) => stdout.flush(),
            Output::File(file) => file.flush(),
        }
    }
}

impl Context {
    pub(super) fn new(global: Global) -> Self {
        Self {
            global,
            out: RefCell::new(BufWriter::with_capacity(
                1 << 16,
                Output::Stdout(io::stdout()),
            )),
            redirected: RefCell::default(),
        }
    }

    /// Whether output is JSON.
    pub fn json(&self) -> bool {
        self.global.json
    }

    /// A client of the `--server`. Its calls fail at once if the server is unreachable.
    pub fn client(&self) -> Result<Client, CommandError> {
        self.client_of(self.global.server.parse()?, Retry::default())
    }

    /// A client of the `--server` for long transfers, which waits while the server restarts.
    pub fn persistent_client(&self) -> Result<Client, CommandError> {
        self.client_of(self.global.server.parse()?, Retry::persistent())
    }

    /// A client of the server that a folder names. Whoever made the folder chose the name, so the
    /// token and the certificate are for it only if it is the `--server`.
    pub fn client_of_folder(
        &self,
        origin: &StorageUrl,
        retry: Retry,
    ) -> Result<Client, ClientError> {
        let server = origin.server.clone();
        if self.is_configured(&server)? {
            let client = self.client_of(server, retry);
            return client.map_err(|error| ClientError::input(error.to_string()));
        }
        let files = TlsFiles {
            ca: self.global.ca_file.clone(),
            ..TlsFiles::default()
        };
        Ok(Client::with_tls(server, None, retry, &files)?.with_waits(say))
    }

    /// Says that [`Self::client_of_folder`] withholds what could be presented to this server.
    pub fn note_of_withheld(&self, origin: &StorageUrl) -> Result<(), CommandError> {
        let global = &self.global;
        let has_any = global.token.is_some()
            || global.token_file.is_some()
            || global.client_certificate.is_some();
        if has_any && !self.is_configured(&origin.server)? {
            self.note(format!(
                "the folder names the server {}, which is not --server: no token or certificate is \
                 sent to it; if they are meant for it, add --server {}",
                origin.server, origin.server
            ));
        }
        Ok(())
    }

    fn is_configured(&self, server: &ServerUrl) -> Result<bool, ClientError> {
        Ok(self.global.server.parse::<ServerUrl>()? == *server)
    }

    /// A client of a server that the command line names, with the token.
    pub fn client_of(&self, server: ServerUrl, retry: Retry) -> Result<Client, CommandError> {
        let token = self.token()?;
        let files = TlsFiles {
            ca: self.global.ca_file.clone(),
            certificate: self.global.client_certificate.clone(),
            key: self.global.client_key.clone(),
        };
        Ok(Client::with_tls(server, token, retry, &files)?.with_waits(say))
    }

    /// The token, or the one in the token file.
    fn token(&self) -> Result<Option<Bearer>, CommandError> {
        let given = self.global.token.clone().filter(|token| !token.is_empty());
        match (given, &self.global.token_file) {
            (None, Some(file)) => {
                let text = std::fs::read_to_string(file);
                let text = text.map_err(|error| ClientError::file(file, error))?;
                Ok(Some(Bearer::from(text)))
            }
            (given, _) => Ok(given),
        }
    }

    /// Runs `work` to completion on a new runtime.
    pub fn block_on<T>(
        &self,
        work: impl Future<Output = Result<T, CommandError>>,
    ) -> Result<T, CommandError> {
        let runtime = Runtime::new().map_err(|error| CommandError::io("async runtime", error))?;
        runtime.block_on(work)
    }

    /// Sends the output to a file from now on.
    pub(super) fn redirect(&self, path: PathBuf, file: File) {
        *self.redirected.borrow_mut() = Some(path);
        *self.out.borrow_mut() = BufWriter::with_capacity(1 << 16, Output::File(file));
    }

    /// The buffered standard output, or the file that replaces it. It is flushed when the
    /// subcommand returns.
    pub fn out(&self) -> RefMut<'_, BufWriter<Output>> {
        self.out.borrow_mut()
    }

    /// How tables are laid out: for the terminal that the output is, or whole.
    pub fn layout(&self) -> Layout {
        if !self.is_terminal() {
            return Layout::default();
        }
        let columns = std::env::var("COLUMNS").ok();
        let columns = columns.and_then(|columns| columns.parse().ok());
        let size = || rustix::termios::tcgetwinsize(io::stdout()).ok();
        let columns = columns.or_else(|| size().map(|size| usize::from(size.ws_col)));
        Layout {
            width: columns.filter(|columns| *columns > 0),
            has_colour: allows_colour(),
        }
    }

    /// Whether a person sees the output.
    pub(super) fn is_terminal(&self) -> bool {
        self.out().get_ref().is_terminal()
    }

    /// Prints one line of text.
    pub fn line(&self, text: impl AsRef<str>) -> Result<(), CommandError> {
        writeln!(self.out(), "{}", text.as_ref())?;
        Ok(())
    }

    /// Prints one JSON document on a line.
    pub fn document(&self, value: &impl Serialize) -> Result<(), CommandError> {
        let mut out = self.out();
        serde_json::to_writer(&mut *out, value).map_err(io::Error::from)?;
        out.write_all(b"\n")?;
        Ok(())
    }

    /// Prints `document` with `--json`, otherwise the text.
    pub fn print(
        &self,
        document: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> Result<(), CommandError> {
        if self.json() {
            self.document(document)
        } else {
            self.line(text())
        }
    }

    /// Prints complete lines of text.
    pub(super) fn text(&self, lines: &str) -> Result<(), CommandError> {
        Ok(self.out().write_all(lines.as_bytes())?)
    }

    /// Prints the fields of a document, one per line; those without a value are skipped.
    pub fn print_fields<'a>(
        &self,
        fields: impl Iterator<Item = (&'a String, &'a Value)>,
    ) -> Result<(), CommandError> {
        for (name, value) in fields {
            let text = match value {
                Value::Null => continue,
                Value::Object(object) if object.is_empty() => continue,
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            self.line(format!("{:<22}{text}", name.replace('_', " ")))?;
        }
        Ok(())
    }

    /// Prints a note on the standard error.
    pub fn note(&self, text: impl AsRef<str>) {
        say(text.as_ref());
    }

    /// Whether a progress bar would be visible.
    pub fn shows_progress(&self) -> bool {
        !self.global.json && !self.global.quiet && io::stderr().is_terminal()
    }

    /// Whether lines say what is waited for.
    pub(super) fn says_waits(&self) -> bool {
        !self.global.json && !self.global.quiet
    }

    pub(super) fn flush(&self) -> Result<(), CommandError> {
        Ok(self.out().flush()?)
    }

    /// An error of the output, of the file if one replaces the standard output.
    pub(super) fn with_output(&self, error: CommandError) -> CommandError {
        let is_pipe = error.is_closed_pipe();
        match (error, &*self.redirected.borrow()) {
            (CommandError::Output(source), Some(path)) if !is_pipe => {
                CommandError::io(path.display(), source)
            }
            (error, _) => error,
        }
    }

    /// Prints an error on the standard error, except that the reader of a pipe went away.
    pub(super) fn report(&self, error: &CommandError) {
        if error.is_closed_pipe() {
            return;
        }
        if self.global.json {
            return self.note(error.to_json().to_string());
        }
        let style = if io::stderr().is_terminal() && allows_colour() {
            Style::new().bold().fg_color(Some(AnsiColor::Red.into()))
        } else {
            Style::new()
        };
        self.note(format!("{style}tracehold:{style:#} {error}"));
    }
}

/// Prints a line on the standard error.
pub(super) fn say(text: &str) {
    // A closed standard error leaves no way to report anything.
    let _ = writeln!(io::stderr(), "{text}");
}

/// A number of things, by their noun in the singular.
pub(super) fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
