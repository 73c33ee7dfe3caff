//! `tracehold nodes`: the servers that share an object store.

use clap::Args;
use io_analysis::TextTable;

use super::listing::Listing;
use super::{CommandError, Context, Exit};

/// List the servers that share an object store
#[derive(Debug, Args)]
pub(super) struct Nodes {
    #[command(flatten)]
    listing: Listing,
}

impl Nodes {
    pub(super) fn run(self, context: &Context) -> Result<Exit, CommandError> {
        let client = context.client()?;
        let nodes = context.block_on(async { Ok(client.nodes().await?) })?;
        self.listing.print(context, &nodes.nodes, || {
            let mut table = TextTable::new(["NODE", "STATE", "URL", "VERSION"]);
            for node in &nodes.nodes {
                let is_asked = nodes.node.as_ref() == Some(&node.node);
                let mark = if is_asked { " (this)" } else { "" };
                table.row([
                    format!("{}{mark}", node.node),
                    node.state.clone(),
                    node.url.clone(),
                    node.version.clone(),
                ]);
            }
            table
        })?;
        Ok(Exit::Done)
    }
}
