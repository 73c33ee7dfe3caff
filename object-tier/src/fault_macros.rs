//! Fault points in code: nothing at all without the feature `fault-points`.

/// A named point at which `cargo xtask fault` kills the process.
#[cfg(feature = "fault-points")]
macro_rules! fault_point {
    ($name:literal) => {
        $crate::fault_points::reach($name)
    };
}

/// Whether a defect is switched on that `cargo xtask fault --sabotage` must find.
#[cfg(feature = "fault-points")]
macro_rules! sabotaged {
    ($name:literal) => {
        $crate::fault_points::is_sabotaged($name)
    };
}

/// Whether a defect is switched on: never in this build.
#[cfg(not(feature = "fault-points"))]
macro_rules! sabotaged {
    ($name:literal) => {
        false
    };
}

/// A named point of the tests; nothing in this build.
#[cfg(not(feature = "fault-points"))]
macro_rules! fault_point {
    ($name:literal) => {};
}
