use indicatif::{ProgressBar, ProgressStyle};

use super::Context;

const BYTES: &str = "{bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta} {msg}";

/// A progress bar in bytes. It draws nothing with `--json`, or when the standard error is not a
/// terminal.
#[derive(Debug, Clone)]
pub(super) struct Progress {
    bar: Option<ProgressBar>,
}

impl Progress {
    pub(super) fn new(context: &Context, total: u64) -> Self {
        let bar = context.shows_progress().then(|| {
            let style = ProgressStyle::with_template(BYTES).expect("the template is valid");
            ProgressBar::new(total).with_style(style)
        });
        Self { bar }
    }

    /// The bar, if one is shown.
    pub(super) fn bar(&self) -> Option<&ProgressBar> {
        self.bar.as_ref()
    }

    pub(super) fn set_total(&self, total: u64) {
        if let Some(bar) = &self.bar {
            bar.set_length(total);
        }
    }

    pub(super) fn say(&self, what: &'static str) {
        if let Some(bar) = &self.bar {
            bar.set_message(what);
        }
    }

    pub(super) fn set_done(&self, done: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(done);
        }
    }

    pub(super) fn add(&self, bytes: u64) {
        if let Some(bar) = &self.bar {
            bar.inc(bytes);
        }
    }

    pub(super) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
