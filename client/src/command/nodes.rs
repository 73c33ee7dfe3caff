//! `tracehold nodes`: the servers that share an object store.

use clap::Args;
use io_analysis::{Layout, TextTable};

use super::listing::Listing;
use super::{CommandError, Context, Exit};
use crate::http::Nodes as NodeList;

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
        self.listing
            .print_fitting(context, &nodes.nodes, |layout| table(&nodes, layout))?;
        Ok(Exit::Done)
    }
}

/// A line for each node. The ids of open storages fit no terminal.
fn table(nodes: &NodeList, layout: Layout) -> TextTable {
    let is_whole = layout.width.is_none();
    let headings = ["NODE", "STATE", "OPEN", "URL", "VERSION", "OPEN STORAGES"];
    let columns = headings.len() - usize::from(!is_whole);
    let mut table = TextTable::new(headings.into_iter().take(columns));
    for node in &nodes.nodes {
        let is_asked = nodes.node.as_ref() == Some(&node.node);
        let mark = if is_asked { " (this)" } else { "" };
        let mut row = vec![
            format!("{}{mark}", node.node),
            node.state.clone(),
            node.storages_open.to_string(),
            node.url.clone(),
            node.version.clone(),
            node.open.join(","),
        ];
        row.truncate(columns);
        table.row(row);
    }
    table
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn open_storages_are_counted_and_listed_where_all_columns_are() {
        let nodes: NodeList = from_value(json!({
            "node": "one",
            "nodes": [
                { "node": "one", "url": "http://a", "state": "live", "storages_open": 2,
                  "open": ["id-2", "id-1"] },
                { "node": "two", "url": "http://b", "state": "gone" },
            ],
        }))
        .unwrap();
        let lines = |width| -> Vec<Vec<String>> {
            let layout = Layout {
                width,
                has_colour: false,
            };
            let text = table(&nodes, layout).fit(layout);
            let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
            text.lines().map(words).collect()
        };
        let narrow = lines(Some(80));
        assert_eq!(narrow[0], ["NODE", "STATE", "OPEN", "URL", "VERSION"]);
        assert_eq!(narrow[1], ["one", "(this)", "live", "2", "http://a"]);
        assert_eq!(narrow[2], ["two", "gone", "0", "http://b"]);
        let whole = lines(None);
        assert_eq!(
            whole[1],
            ["one", "(this)", "live", "2", "http://a", "id-2,id-1"]
        );
    }
}
