//! A pseudo terminal in which the command runs.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::programs::tracehold;

/// The command in a terminal of its own, which is also its standard error.
#[derive(Debug)]
pub struct Terminal {
    screen: File,
    child: Child,
    shown: String,
}

impl Terminal {
    /// Starts the command in a terminal with this many columns.
    pub fn start(columns: u16, arguments: &[&str], env: &[(&str, &str)]) -> Self {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&controller).expect("a terminal");
        unlockpt(&controller).expect("a terminal");
        let name = ptsname(&controller, Vec::new()).expect("a terminal has a name");
        let name = name.to_str().expect("the name is text");
        let size = Winsize {
            ws_row: 24,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&controller, size).expect("the terminal has a size");
        let terminal = OpenOptions::new().read(true).write(true).open(name);
        let terminal = OwnedFd::from(terminal.expect("the terminal opens"));
        let same = || terminal.try_clone().expect("a descriptor");
        let mut command = Command::new(tracehold());
        for name in ["TRACEHOLD_SERVER", "TRACEHOLD_TOKEN", "COLUMNS", "NO_COLOR"] {
            command.env_remove(name);
        }
        command
            .args(arguments)
            .env("TERM", "xterm")
            .envs(env.iter().copied())
            .stdin(same())
            .stdout(same())
            .stderr(same());
        let child = command.spawn().expect("the program was built");
        Self {
            screen: File::from(controller),
            child,
            shown: String::new(),
        }
    }

    /// Waits until the terminal has shown a text.
    pub fn wait_for(&mut self, text: &str) {
        while !self.shown.contains(text) {
            assert!(self.read(), "{text:?} was not shown: {}", self.shown);
        }
    }

    /// What the terminal showed until the command ended, and how it ended.
    pub fn finish(mut self) -> (String, ExitStatus) {
        while self.read() {}
        let status = self.child.wait().expect("the command ends");
        (self.shown.replace('\r', ""), status)
    }

    /// Reads what is shown next. False once nobody writes any more.
    fn read(&mut self) -> bool {
        let mut bytes = [0; 4096];
        let length = self.screen.read(&mut bytes).unwrap_or(0);
        self.shown
            .push_str(&String::from_utf8_lossy(&bytes[..length]));
        length > 0
    }
}
