//! `tracehold agent`: the agents of a server, and what they may store.

use clap::{Args, Subcommand};
use io_analysis::{TextTable, bytes_text, parse_size};
use serde_json::Value;

use super::listing::Listing;
use super::{CommandError, Context, Exit};

/// List and delete the agents of a server, and set what they may store
#[derive(Debug, Args)]
pub(super) struct Agent {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List all agents, with what they have stored and may store
    List(Listing),
    /// Set how many bytes an agent may store; its packets are refused beyond
    Quota(Quota),
    /// Delete agents that no open storage has packets of; finalized storages keep what they know
    Delete(Delete),
}

#[derive(Debug, Args)]
struct Quota {
    /// The agent
    #[arg(value_name = "AGENT")]
    agent: String,
    /// Bytes as stored, such as 500M or 2T (powers of 1024); `none` for no limit, `default` for the
    /// quota of the settings
    #[arg(value_name = "BYTES", value_parser = limit)]
    bytes: Limit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Limit {
    Default,
    None,
    Bytes(u64),
}

fn limit(text: &str) -> Result<Limit, String> {
    match text {
        "default" => Ok(Limit::Default),
        "none" => Ok(Limit::None),
        _ => parse_size(text).map(Limit::Bytes).map_err(|_| {
            "expected a number such as 500M (powers of 1024), none or default".to_owned()
        }),
    }
}

#[derive(Debug, Args)]
struct Delete {
    /// Agents, by id
    #[arg(value_name = "AGENT", required = true)]
    agents: Vec<String>,
}

impl Agent {
    pub(super) fn run(self, context: &Context) -> Result<Exit, CommandError> {
        let client = context.client()?;
        match self.action {
            Action::List(listing) => {
                let agents = context.block_on(async { Ok(client.agents().await?) })?;
                listing.print(context, &agents, || {
                    let columns = ["ID", "HOST", "STREAMS", "STORED", "QUOTA", "NAME"];
                    let mut table = TextTable::new(columns);
                    for agent in &agents {
                        let text = |field| {
                            let value = agent.more.get(field).and_then(Value::as_str);
                            value.unwrap_or_default().to_owned()
                        };
                        let quota = agent.quota_bytes_max.map_or("none".to_owned(), bytes_text);
                        table.row([
                            agent.id.clone(),
                            text("host"),
                            agent.streams.len().to_string(),
                            agent.stored_bytes.map_or("?".to_owned(), bytes_text),
                            if agent.has_own_quota {
                                format!("{quota} (own)")
                            } else {
                                quota
                            },
                            text("name"),
                        ]);
                    }
                    table
                })?;
            }
            Action::Quota(Quota { agent, bytes }) => context.block_on(async {
                match bytes {
                    Limit::Default => client.remove_agent_quota(&agent).await?,
                    Limit::None => client.set_agent_quota(&agent, None).await?,
                    Limit::Bytes(bytes) => client.set_agent_quota(&agent, Some(bytes)).await?,
                }
                Ok(())
            })?,
            Action::Delete(delete) => context.block_on(async {
                for agent in &delete.agents {
                    client.delete_agent(agent).await?;
                }
                Ok(())
            })?,
        }
        Ok(Exit::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_read() {
        for (text, wanted) in [
            ("500M", Some(Limit::Bytes(500 << 20))),
            ("0", Some(Limit::Bytes(0))),
            ("none", Some(Limit::None)),
            ("default", Some(Limit::Default)),
            ("much", None),
            ("-1", None),
        ] {
            assert_eq!(limit(text).ok(), wanted, "{text}");
        }
    }
}
