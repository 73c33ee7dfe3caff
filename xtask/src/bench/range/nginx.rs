//! The other side of the comparison.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use harness::Connection;

use super::io_failure;
use crate::failure::{Failure, Outcome};
use crate::process::command;

/// How nginx differs from the one that is measured first.
#[derive(Clone, Debug, Default)]
pub(super) struct NginxConfig {
    /// With it nginx delays multi-range responses by 40 ms, so it is off.
    pub(super) is_sendfile: bool,
    /// Certificate and key.
    pub(super) tls: Option<(PathBuf, PathBuf)>,
}

/// nginx on the folder of storages; dropping it stops it.
pub(super) struct Nginx {
    child: Child,
    address: SocketAddr,
    is_encrypted: bool,
}

impl Nginx {
    pub(super) fn start(
        folder: &Path,
        storages: &Path,
        workers: u32,
        with: &NginxConfig,
    ) -> Outcome<Self> {
        let address = free_address().map_err(io_failure)?;
        let folder = folder.join(format!("nginx-{}", address.port()));
        let failed = |source| Failure::File {
            path: folder.clone(),
            source,
        };
        std::fs::create_dir_all(&folder).map_err(failed)?;
        let folder_text = folder.display();
        let sendfile = if with.is_sendfile { "on" } else { "off" };
        let mut config = format!(
            "daemon off; user root; worker_processes {workers}; pid {folder_text}/nginx.pid;\n\
             error_log {folder_text}/nginx-error.log warn;\n\
             events {{ worker_connections 1024; }}\n\
             http {{ access_log off; sendfile {sendfile}; tcp_nopush off; tcp_nodelay on;\n\
             output_buffers 4 128k; keepalive_requests 100000000; keepalive_timeout 60s;\n\
             default_type application/octet-stream; open_file_cache max=16 inactive=60s;\n"
        );
        for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
            writeln!(config, "{kind}_temp_path {folder_text}/nginx-{kind};")
                .expect("writing to a string does not fail");
        }
        let (listen, pair) = match &with.tls {
            None => (String::new(), String::new()),
            Some((certificate, key)) => {
                let (certificate, key) = (certificate.display(), key.display());
                let pair = format!("ssl_certificate {certificate}; ssl_certificate_key {key};");
                (" ssl".to_owned(), pair)
            }
        };
        writeln!(
            config,
            "client_max_body_size 1m; server {{ listen {address}{listen}; {pair} root {};\n\
             location /discard {{ return 204; }} }} }}",
            storages.display()
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
        let nginx = Self {
            child,
            address,
            is_encrypted: with.tls.is_some(),
        };
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

    pub(super) fn url(&self) -> String {
        let scheme = if self.is_encrypted { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The worker process: the first child of nginx's master.
    pub(super) fn worker(&self) -> Outcome<u32> {
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
fn free_address() -> std::io::Result<SocketAddr> {
    std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()
}
