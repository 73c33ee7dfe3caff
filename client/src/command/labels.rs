//! `tracehold labels`: which labels storages may have.

use clap::{Args, Subcommand, ValueEnum};
use io_analysis::TextTable;
use serde_json::Value;

use super::listing::Listing;
use super::{CommandError, Context, Exit};
use crate::http::LabelType;

/// List, declare and delete the types of labels; `storage label` sets labels
#[derive(Debug, Args)]
pub(super) struct Labels {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List all label types, with the number of storages that have them and their values
    Types(Listing),
    /// Declare a label type, or change whether a storage may have several values of it
    Declare(Declare),
    /// Delete a label type
    Delete {
        /// Name of the type
        #[arg(value_name = "TYPE")]
        name: String,
        /// Remove it from all storages first
        #[arg(long)]
        remove: bool,
    },
}

#[derive(Debug, Args)]
struct Declare {
    /// Name of the type
    #[arg(value_name = "TYPE")]
    name: String,
    /// Type of its values [default: that of the existing type, or string]
    #[arg(long = "type", value_enum)]
    value_type: Option<ValueType>,
    /// A storage may have several values
    #[arg(long)]
    several: bool,
    #[command(flatten)]
    listing: Listing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
enum ValueType {
    Boolean,
    Number,
    Date,
    String,
    TimeFrame,
}

impl ValueType {
    fn name(self) -> &'static str {
        match self {
            Self::Boolean => "boolean",
            Self::Number => "number",
            Self::Date => "date",
            Self::String => "string",
            Self::TimeFrame => "time_frame",
        }
    }
}

impl Labels {
    pub(super) fn run(self, context: &Context) -> Result<Exit, CommandError> {
        let client = context.client()?;
        context.block_on(async {
            match self.action {
                Action::Types(listing) => {
                    print_types(context, listing, &client.label_types().await?)?
                }
                Action::Declare(declare) => {
                    let value_type = declare.value_type.map(ValueType::name);
                    let several = declare.several.then_some(true);
                    let (name, declared) = (&declare.name, (value_type, several));
                    let declared = client.declare_label_type(name, declared).await?;
                    print_types(context, declare.listing, &[declared])?;
                }
                Action::Delete { name, remove } => {
                    client.delete_label_type(&name, remove).await?;
                    let document = serde_json::json!({ "deleted": name });
                    context.print(&document, || format!("{name} deleted"))?;
                }
            }
            Ok(Exit::Done)
        })
    }
}

/// Values that are shown of a type; `--json` has all.
const VALUES_SHOWN: usize = 5;

fn print_types(
    context: &Context,
    listing: Listing,
    types: &[LabelType],
) -> Result<(), CommandError> {
    listing.print(context, types, || {
        let mut table = TextTable::new(["TYPE", "VALUES ARE", "SEVERAL", "STORAGES", "VALUES"]);
        for label in types {
            let values = label.values.iter().map(|value| match &value.value {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            });
            let mut shown: Vec<String> = values.take(VALUES_SHOWN).collect();
            if label.values.len() > VALUES_SHOWN {
                shown.push(format!("and {} more", label.values.len() - VALUES_SHOWN));
            }
            table.row([
                label.name.clone(),
                label.value_type.clone(),
                if label.several { "yes" } else { "no" }.to_owned(),
                label.storages.to_string(),
                shown.join(", "),
            ]);
        }
        table
    })
}
