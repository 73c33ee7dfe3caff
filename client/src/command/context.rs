use std::cell::{RefCell, RefMut};
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};

use clap::Args;
use serde::Serialize;
use tokio::runtime::Runtime;

use super::error::CommandError;
use crate::http::{Client, Retry, ServerUrl};

/// What every verb takes.
#[derive(Debug, Clone, Args)]
pub struct Global {
    /// Server to talk to
    #[arg(
        long,
        global = true,
        env = "TRACEHOLD_SERVER",
        value_name = "URL",
        default_value = "http://127.0.0.1:7117"
    )]
    pub server: String,
    /// Token to show to the server
    #[arg(
        long,
        global = true,
        env = "TRACEHOLD_TOKEN",
        value_name = "TOKEN",
        hide_env_values = true
    )]
    pub token: Option<String>,
    /// Print JSON for programs
    #[arg(long, global = true)]
    pub json: bool,
}

/// What a verb works with: the global options, the output, the runtime.
#[derive(Debug)]
pub struct Context {
    global: Global,
    out: RefCell<BufWriter<Stdout>>,
}

impl Context {
    pub(super) fn new(global: Global) -> Self {
        Self {
            global,
            out: RefCell::new(BufWriter::with_capacity(1 << 16, io::stdout())),
        }
    }

    /// True when output is for programs.
    pub fn json(&self) -> bool {
        self.global.json
    }

    /// A client of the server that `--server` names, which fails at once when that is not there.
    pub fn client(&self) -> Result<Client, CommandError> {
        self.client_of(self.global.server.parse()?, Retry::default())
    }

    /// A client for long work, which waits for a server that restarts.
    pub fn persistent_client(&self) -> Result<Client, CommandError> {
        self.client_of(self.global.server.parse()?, Retry::persistent())
    }

    /// A client of another server, with the same token.
    pub fn client_of(&self, server: ServerUrl, retry: Retry) -> Result<Client, CommandError> {
        let token = self.global.token.clone();
        Ok(Client::new(server, token, retry)?)
    }

    /// Runs `work` to its end on a runtime of its own; the client is made of async calls.
    pub fn block_on<T>(
        &self,
        work: impl Future<Output = Result<T, CommandError>>,
    ) -> Result<T, CommandError> {
        let runtime = Runtime::new().map_err(|error| CommandError::io("async runtime", error))?;
        runtime.block_on(work)
    }

    /// The buffered standard output. Flushed when the verb returns.
    pub fn out(&self) -> RefMut<'_, BufWriter<Stdout>> {
        self.out.borrow_mut()
    }

    /// One line of text for a person.
    pub fn line(&self, text: impl AsRef<str>) -> Result<(), CommandError> {
        writeln!(self.out(), "{}", text.as_ref())?;
        Ok(())
    }

    /// One JSON document on a line for a program.
    pub fn document(&self, value: &impl Serialize) -> Result<(), CommandError> {
        let mut out = self.out();
        serde_json::to_writer(&mut *out, value).map_err(io::Error::from)?;
        out.write_all(b"\n")?;
        Ok(())
    }

    /// A remark beside the output, on the standard error.
    pub fn note(&self, text: impl AsRef<str>) {
        // Where remarks cannot be written there is nobody to be told.
        let _ = writeln!(io::stderr(), "{}", text.as_ref());
    }

    /// True when a progress bar would be seen.
    pub fn shows_progress(&self) -> bool {
        !self.global.json && io::stderr().is_terminal()
    }

    pub(super) fn flush(&self) -> Result<(), CommandError> {
        Ok(self.out().flush()?)
    }

    /// Says on the standard error what failed; silent when only the reader of a pipe went away.
    pub(super) fn report(&self, error: &CommandError) {
        if error.is_closed_pipe() {
            return;
        }
        if self.global.json {
            self.note(error.to_json().to_string());
        } else {
            self.note(format!("tracehold: {error}"));
        }
    }
}
