//! Clock classes.

use super::Attributes;
use uuid::Uuid;

/// The origin of a clock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ClockOrigin {
    /// Unknown; only clocks with the same UUID (or identity) can be compared.
    Unknown,
    /// 1970-01-01T00:00:00Z.
    UnixEpoch,
    /// A named origin.
    Custom {
        /// Namespace.
        namespace: Option<Box<str>>,
        /// Name.
        name: Box<str>,
        /// Unique id of the instance.
        uid: Box<str>,
    },
}

/// A clock: the meaning of the cycles of timestamps.
#[derive(Clone, Debug, PartialEq)]
pub struct ClockClass {
    /// The name that metadata refers to (`name` in TSDL, `id` in CTF 2).
    pub id: Box<str>,
    /// Namespace.
    pub namespace: Option<Box<str>>,
    /// Name.
    pub name: Option<Box<str>>,
    /// Unique id of the instance.
    pub uid: Option<Box<str>>,
    /// UUID (TSDL).
    pub uuid: Option<Uuid>,
    /// Description.
    pub description: Option<Box<str>>,
    /// Cycles per second, at least 1.
    pub frequency: u64,
    /// The origin.
    pub origin: ClockOrigin,
    /// Whole seconds from the origin to cycle 0.
    pub offset_seconds: i64,
    /// Cycles to add to [`Self::offset_seconds`]; less than a second after normalization.
    pub offset_cycles: u64,
    /// Possible error between reads of the clock, in cycles.
    pub precision: Option<u64>,
    /// Possible error against the origin, in cycles.
    pub accuracy: Option<u64>,
    /// Attributes.
    pub attributes: Attributes,
}

impl ClockClass {
    /// A clock of 1 GHz named `id` that counts from the Unix epoch.
    pub fn new(id: impl Into<Box<str>>) -> Self {
        let id = id.into();
        Self {
            name: Some(id.clone()),
            id,
            namespace: None,
            uid: None,
            uuid: None,
            description: None,
            frequency: 1_000_000_000,
            origin: ClockOrigin::UnixEpoch,
            offset_seconds: 0,
            offset_cycles: 0,
            precision: None,
            accuracy: None,
            attributes: Attributes::default(),
        }
    }

    /// Nanoseconds from the origin at `cycles`; `None` when they exceed 64 bits.
    ///
    /// The fraction of a nanosecond is truncated, separately for the offset and for the cycles
    /// below one second, as in Babeltrace.
    pub fn nanoseconds(&self, cycles: u64) -> Option<i64> {
        let seconds = i128::from(self.offset_seconds) * 1_000_000_000;
        let offset = self.cycles_to_ns(self.offset_cycles);
        let total = seconds + offset + self.cycles_to_ns(cycles);
        i64::try_from(total).ok()
    }

    /// Moves whole seconds of the offset in cycles to the offset in seconds.
    ///
    /// Returns false without a change when the offset in seconds would exceed 64 bits.
    #[must_use]
    pub fn normalize_offset(&mut self) -> bool {
        let frequency = self.frequency.max(1);
        let whole = i64::try_from(self.offset_cycles / frequency).ok();
        match whole.and_then(|whole| self.offset_seconds.checked_add(whole)) {
            Some(seconds) => {
                self.offset_seconds = seconds;
                self.offset_cycles %= frequency;
                true
            }
            None => false,
        }
    }

    fn cycles_to_ns(&self, cycles: u64) -> i128 {
        let frequency = self.frequency.max(1);
        let whole = i128::from(cycles / frequency) * 1_000_000_000;
        whole + i128::from(cycles % frequency) * 1_000_000_000 / i128::from(frequency)
    }
}
