//! How lists are printed: one option of every command that prints one.

use clap::{Args, ValueEnum};
use io_analysis::{Layout, TextTable};
use serde::Serialize;
use serde_json::json;

use super::{CommandError, Context};

// A comment of the documentation would be the help text of the commands that have this option.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(super) struct Listing {
    /// Output format [default: text, or json with --json]
    #[arg(long, value_enum)]
    format: Option<ListFormat>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ListFormat {
    /// Lines of text that fit the terminal
    Text,
    /// Lines of text with all columns, whatever fits
    Wide,
    /// One JSON document
    Json,
    /// One JSON object per item
    Ndjson,
}

impl Listing {
    fn format(self, context: &Context) -> ListFormat {
        self.format.unwrap_or(if context.json() {
            ListFormat::Json
        } else {
            ListFormat::Text
        })
    }

    /// Whether the output is JSON.
    pub(super) fn is_json(self, context: &Context) -> bool {
        matches!(self.format(context), ListFormat::Json | ListFormat::Ndjson)
    }

    /// Prints a complete list: a page of JSON, a line of JSON per item, or the table.
    pub(super) fn print(
        self,
        context: &Context,
        items: &[impl Serialize],
        table: impl FnOnce() -> TextTable,
    ) -> Result<(), CommandError> {
        self.print_fitting(context, items, |_| table())
    }

    /// Like [`Self::print`], with a table that can leave out columns for a layout.
    pub(super) fn print_fitting(
        self,
        context: &Context,
        items: &[impl Serialize],
        table: impl FnOnce(Layout) -> TextTable,
    ) -> Result<(), CommandError> {
        let layout = match self.format(context) {
            ListFormat::Json => {
                return context.document(&json!({ "items": items, "next": null }));
            }
            ListFormat::Ndjson => {
                return items.iter().try_for_each(|item| context.document(item));
            }
            ListFormat::Text => context.layout(),
            ListFormat::Wide => Layout {
                width: None,
                ..context.layout()
            },
        };
        context.text(&table(layout).fit(layout))
    }
}
