//! The limit of open files.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit of open files to the hard limit, because every data file, connection and reader
/// needs one; logs it.
pub(crate) fn raise_limit() {
    let before = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: before.maximum,
        maximum: before.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "the limit of open files cannot be raised");
    }
    match getrlimit(Resource::Nofile).current {
        Some(limit) => tracing::info!(limit, was = before.current, "limit of open files"),
        None => tracing::info!("the number of open files is not limited"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_to_the_hard_limit() {
        let before = getrlimit(Resource::Nofile);
        let lowered = Rlimit {
            current: Some(128),
            maximum: before.maximum,
        };
        setrlimit(Resource::Nofile, lowered).unwrap();
        raise_limit();
        assert_eq!(getrlimit(Resource::Nofile).current, before.maximum);
    }
}
