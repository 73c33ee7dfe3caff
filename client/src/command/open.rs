use std::path::PathBuf;
use std::process::{Command, Stdio};

use clap::Args;
use serde_json::json;

use super::{CommandError, Context, Exit};

/// Open the page of a storage in a browser, and print its URL
///
/// The browser is $BROWSER, or that of the desktop (xdg-open). Where there is neither, as over SSH,
/// the URL is printed for a browser elsewhere.
#[derive(Debug, Args)]
pub(super) struct Open {
    /// Storage, by ID or name
    #[arg(value_name = "ID|NAME")]
    storage: String,
    /// Print the URL only
    #[arg(long)]
    print: bool,
}

impl Open {
    pub(super) fn run(self, context: &Context) -> Result<Exit, CommandError> {
        let client = context.client()?;
        let url = context.block_on(async {
            let storage = client.find_storage(&self.storage).await?;
            Ok(format!("{}/#/storage/{}", client.server(), storage.id))
        })?;
        context.print(&json!({ "url": url }), || url.clone())?;
        if let Some(browser) = browser().filter(|_| !self.print) {
            let mut command = Command::new(&browser);
            command.arg(&url).stdin(Stdio::null()).stdout(Stdio::null());
            // It goes on when this program has ended.
            if let Err(error) = command.spawn() {
                let browser = browser.display();
                context.note(format!("{browser}: {error}; open the URL in a browser"));
            }
        }
        Ok(Exit::Done)
    }
}

/// The program that opens a URL, if there is a screen to open it on.
fn browser() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(browsers) = set("BROWSER") {
        return std::env::split_paths(&browsers).next();
    }
    set("DISPLAY").or_else(|| set("WAYLAND_DISPLAY"))?;
    let path = set("PATH")?;
    let mut programs = std::env::split_paths(&path).map(|folder| folder.join("xdg-open"));
    programs.find(|program| program.is_file())
}
