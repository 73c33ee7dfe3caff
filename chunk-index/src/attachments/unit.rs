//! The unit of times as attachments store it.

/// The unit of the times of a DFTracer trace, stored as one byte.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StoredUnit {
    /// 0
    Nanosecond,
    /// 1
    #[default]
    Microsecond,
    /// 2
    Millisecond,
    /// 3
    Second,
}

impl StoredUnit {
    /// All units, in the order of their codes.
    pub const ALL: [StoredUnit; 4] = [
        StoredUnit::Nanosecond,
        StoredUnit::Microsecond,
        StoredUnit::Millisecond,
        StoredUnit::Second,
    ];

    pub(super) fn code(self) -> u8 {
        match self {
            StoredUnit::Nanosecond => 0,
            StoredUnit::Microsecond => 1,
            StoredUnit::Millisecond => 2,
            StoredUnit::Second => 3,
        }
    }

    pub(super) fn from_code(code: u8) -> Option<StoredUnit> {
        StoredUnit::ALL.get(usize::from(code)).copied()
    }
}
