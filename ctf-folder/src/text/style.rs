//! The choices of what the text of an event contains.

/// How times are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClockText {
    /// `hh:mm:ss.nnnnnnnnn`
    #[default]
    TimeOfDay,
    /// `YYYY-MM-DD hh:mm:ss.nnnnnnnnn`
    Date,
    /// `s.nnnnnnnnn` since the origin of the clock.
    Seconds,
    /// Cycles of the clock, without its offset.
    Cycles,
}

/// Which names are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameChoice {
    /// Of the fields of payloads.
    pub payload: bool,
    /// Of the fields of contexts.
    pub context: bool,
    /// Of scopes, such as `event.fields`.
    pub scope: bool,
    /// Of the parts before the fields, such as `timestamp`.
    pub header: bool,
}

impl Default for NameChoice {
    fn default() -> Self {
        Self {
            payload: true,
            context: true,
            scope: false,
            header: false,
        }
    }
}

/// Which properties of the trace and of the event class are printed before the name of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a choice of its own on the command line"
)]
pub struct FieldChoice {
    /// The name of the trace.
    pub trace: bool,
    /// The host.
    pub hostname: bool,
    /// The domain of the tracer.
    pub domain: bool,
    /// The name of the process.
    pub procname: bool,
    /// The id of the process.
    pub vpid: bool,
    /// The log level.
    pub loglevel: bool,
    /// The URI of a model.
    pub emf: bool,
}

impl Default for FieldChoice {
    fn default() -> Self {
        Self {
            trace: false,
            hostname: true,
            domain: false,
            procname: true,
            vpid: true,
            loglevel: false,
            emf: false,
        }
    }
}

/// What the text of an event contains; by default what `babeltrace2 --clock-gmt` prints.
#[derive(Clone, Copy, Debug, Default)]
pub struct TextStyle {
    /// The form of times.
    pub clock: ClockText,
    /// The offset of the local time from UTC, in seconds, at an instant in seconds; `None` for UTC.
    pub local_offset: Option<fn(i64) -> i64>,
    /// Nanoseconds that are added to all times.
    pub clock_offset: i64,
    /// Leaves out the time since the previous event.
    pub no_delta: bool,
    /// The names.
    pub names: NameChoice,
    /// The properties before the name of an event.
    pub fields: FieldChoice,
}

impl TextStyle {
    /// True when the text before the fields is that of the default style, except for the
    /// properties.
    pub(super) fn has_plain_times(&self) -> bool {
        self.clock == ClockText::TimeOfDay
            && self.local_offset.is_none()
            && !self.no_delta
            && !self.names.header
    }

    /// True when times since the previous event are in cycles.
    pub(crate) fn is_in_cycles(&self) -> bool {
        self.clock == ClockText::Cycles
    }
}
