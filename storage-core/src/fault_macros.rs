//! Fault points in code: nothing at all without the feature `fault-points`.

/// A named point at which `cargo xtask fault` stops or delays the process: `fault_point!("name")`
/// in code that may block, `fault_point!(async "name")` in other code.
#[cfg(feature = "fault-points")]
#[doc(hidden)]
#[macro_export]
macro_rules! fault_point {
    (async $name:literal) => {
        $crate::fault_points::pass($name).await
    };
    ($name:literal) => {
        $crate::fault_points::reach($name)
    };
}

/// A named point of the tests; nothing in this build.
#[cfg(not(feature = "fault-points"))]
#[doc(hidden)]
#[macro_export]
macro_rules! fault_point {
    ($($name:tt)*) => {};
}

/// Whether a defect is switched on that `cargo xtask fault --sabotage` must find.
#[cfg(feature = "fault-points")]
#[doc(hidden)]
#[macro_export]
macro_rules! sabotaged {
    ($name:literal) => {
        $crate::fault_points::is_sabotaged($name)
    };
}

/// Whether a defect is switched on: never in this build.
#[cfg(not(feature = "fault-points"))]
#[doc(hidden)]
#[macro_export]
macro_rules! sabotaged {
    ($name:literal) => {
        false
    };
}
