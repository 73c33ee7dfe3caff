//! `tracehold token`: who may do what on a server.

use clap::{Args, Subcommand, ValueEnum};
use io_analysis::TextTable;

use super::duration::seconds;
use super::listing::Listing;
use super::{CommandError, Context, Exit};
use crate::http::NewToken;

/// Create, list and revoke the tokens of a server; needs a token of an operator
///
/// On a server without tokens, the first one must be an operator's; from then on every request
/// needs one. `traceholdd token create` makes one while the server does not run.
#[derive(Debug, Args)]
pub(super) struct Token {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Create a token and print it; the server does not show it again
    Create(Create),
    /// List all tokens, without their secrets
    List(Listing),
    /// Revoke tokens: requests with them are refused from now on
    Revoke(Revoke),
}

#[derive(Debug, Args)]
struct Create {
    /// What the token is for; shown in lists
    #[arg(long, value_name = "TEXT")]
    name: String,
    /// What it may be used for
    #[arg(long, value_enum)]
    role: Role,
    /// Only for this agent (with the role agent); may be repeated
    #[arg(long = "agent", value_name = "ID")]
    agents: Vec<String>,
    /// Only for this storage; may be repeated
    #[arg(long = "storage", value_name = "ID|NAME")]
    storages: Vec<String>,
    /// It expires after this time, such as 30d or 12h; never by default
    #[arg(long, value_name = "DURATION", value_parser = seconds)]
    expires: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Role {
    /// Pushes packets
    Agent,
    /// Reads and queries
    Reader,
    /// Everything
    Operator,
}

#[derive(Debug, Args)]
struct Revoke {
    /// Tokens, by the ID that `list` shows
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,
}

impl Token {
    pub(super) fn run(self, context: &Context) -> Result<Exit, CommandError> {
        let client = context.client()?;
        match self.action {
            Action::Create(create) => {
                let created = context.block_on(async {
                    let mut storages = Vec::new();
                    for storage in &create.storages {
                        storages.push(client.find_storage(storage).await?.id.to_string());
                    }
                    let role = match create.role {
                        Role::Agent => "agent",
                        Role::Reader => "reader",
                        Role::Operator => "operator",
                    };
                    let new = NewToken {
                        name: create.name,
                        role: role.to_owned(),
                        agents: create.agents,
                        storages,
                        expires_seconds: create.expires,
                    };
                    Ok(client.create_token(&new).await?)
                })?;
                context.print(&created, || created.token.clone())?;
            }
            Action::List(listing) => {
                let tokens = context.block_on(async { Ok(client.tokens().await?) })?;
                listing.print(context, &tokens, || {
                    let columns = ["ID", "ROLE", "STATE", "CREATED", "EXPIRES", "SCOPE", "NAME"];
                    let mut table = TextTable::new(columns);
                    for token in &tokens {
                        let state = match (&token.revoked, token.is_good) {
                            (Some(_), _) => "revoked",
                            (None, true) => "good",
                            (None, false) => "expired",
                        };
                        let scope: Vec<&str> = (token.agents.iter().chain(&token.storages))
                            .map(String::as_str)
                            .collect();
                        table.row([
                            token.id.clone(),
                            token.role.clone(),
                            state.to_owned(),
                            token.created.clone(),
                            token.expires.clone().unwrap_or_else(|| "never".to_owned()),
                            if scope.is_empty() {
                                "all".to_owned()
                            } else {
                                scope.join(" ")
                            },
                            token.name.clone(),
                        ]);
                    }
                    table
                })?;
            }
            Action::Revoke(revoke) => context.block_on(async {
                for id in &revoke.ids {
                    client.revoke_token(id).await?;
                }
                Ok(())
            })?,
        }
        Ok(Exit::Done)
    }
}
