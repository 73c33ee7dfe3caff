use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressStyle};
use query_engine::Progress as Reading;

use super::Context;
use super::context::say;

const BYTES: &str = "{bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta} {msg}";

/// A progress bar in bytes. It draws nothing with `--json`, or when the standard error is not a
/// terminal; what is waited for is then a line.
#[derive(Debug, Clone)]
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    /// What is waited for, where lines say it.
    wait: Option<Arc<Mutex<Wait>>>,
}

/// What is waited for, since when, and whether it was said.
#[derive(Debug)]
struct Wait {
    what: &'static str,
    since: Instant,
    is_said: bool,
}

impl Wait {
    fn begin(what: &'static str, now: Instant) -> Wait {
        Wait {
            what,
            since: now,
            is_said: false,
        }
    }

    /// Whether the wait for `what` is to be said now.
    fn is_due(&mut self, what: &'static str, now: Instant) -> bool {
        if self.what != what {
            *self = Wait::begin(what, now);
        }
        let is_due = !self.is_said && now.duration_since(self.since) >= SAID_FROM;
        self.is_said |= is_due;
        is_due
    }
}

/// Shorter waits are not worth a line.
pub(super) const SAID_FROM: Duration = Duration::from_secs(3);

impl Progress {
    pub(super) fn new(context: &Context, total: u64) -> Self {
        let bar = context.shows_progress().then(|| {
            let style = ProgressStyle::with_template(BYTES).expect("the template is valid");
            ProgressBar::new(total).with_style(style)
        });
        let wait = || Arc::new(Mutex::new(Wait::begin("", Instant::now())));
        let wait = (bar.is_none() && context.says_waits()).then(wait);
        Self { bar, wait }
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

    /// Says what is waited for; called again and again while it is.
    pub(super) fn say(&self, what: &'static str) {
        if let Some(bar) = &self.bar {
            bar.set_message(what);
        }
        let Some(wait) = &self.wait else { return };
        let mut wait = wait.lock().unwrap_or_else(PoisonError::into_inner);
        if wait.is_due(what, Instant::now()) {
            say(what);
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

const READING: &str = "{bar:30} {percent}% {elapsed} {msg}";
const WAITING: &str = "{spinner} {elapsed} {msg}";
/// What is done sooner shows no bar.
const PATIENCE: Duration = Duration::from_millis(500);
const REDRAW: Duration = Duration::from_millis(100);

/// Runs `work` and shows meanwhile how far its reading has come, if it takes long.
pub(super) fn watched<T>(context: &Context, reading: &Reading, work: impl FnOnce() -> T) -> T {
    if !context.shows_progress() {
        return work();
    }
    thread::scope(|scope| {
        let (working, done) = mpsc::sync_channel::<()>(1);
        scope.spawn(move || {
            let waits = |time| done.recv_timeout(time) == Err(RecvTimeoutError::Timeout);
            if !waits(PATIENCE) {
                return;
            }
            let bar = ProgressBar::new(0);
            loop {
                show(&bar, reading);
                if !waits(REDRAW) {
                    return bar.finish_and_clear();
                }
            }
        });
        let result = work();
        drop(working);
        result
    })
}

fn show(bar: &ProgressBar, reading: &Reading) {
    let (done, total) = (reading.done_bytes(), reading.total_bytes());
    let template = if done > 0 && total > 0 {
        READING
    } else {
        WAITING
    };
    bar.set_style(ProgressStyle::with_template(template).expect("the template is valid"));
    bar.set_length(total);
    bar.set_position(done.min(total));
    let events = reading.events();
    bar.set_message(match events {
        0 => format!("{} read", HumanBytes(done)),
        events => format!("{} events read", HumanCount(events)),
    });
    bar.tick();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_wait_is_said_once() {
        let begin = Instant::now();
        let mut wait = Wait::begin("", begin);
        let cases = [
            ("one", 0, false),
            ("one", 2, false),
            ("one", 3, true),
            ("one", 9, false),
            ("two", 10, false),
            ("two", 13, true),
            ("one", 14, false),
        ];
        for (what, seconds, is_said) in cases {
            let now = begin + Duration::from_secs(seconds);
            assert_eq!(wait.is_due(what, now), is_said, "{what} {seconds}");
        }
    }
}
