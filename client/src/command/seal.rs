use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;

use super::{CommandError, Context, Exit};
use crate::seal::generate_key;

/// Make keys that sign the seals of finalized storages
#[derive(Debug, Args)]
pub(super) struct Seal {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Write a new private key to FILE and its public key to FILE.pub, and print the id of the key
    ///
    /// Give the private key to the server (`seal.key_file`), and the public key to everybody who
    /// verifies.
    Keygen {
        /// File for the private key; it must not exist
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

impl Seal {
    pub(super) fn run(self, context: &Context) -> Result<Exit, CommandError> {
        let Action::Keygen { file } = self.action;
        let mut public = file.clone().into_os_string();
        public.push(".pub");
        let public = PathBuf::from(public);
        let key = generate_key(&file, &public)?;
        let document = json!({
            "key": key.id().to_string(), "private": file.display().to_string(),
            "public": public.display().to_string(),
        });
        context.print(&document, || {
            format!("{} {} {}", key.id(), file.display(), public.display())
        })?;
        Ok(Exit::Done)
    }
}
