//! Refusals of recordings.

use http::StatusCode;
use recording::RecordingError;

use crate::problem::Problem;

impl From<RecordingError> for Problem {
    fn from(error: RecordingError) -> Self {
        use StatusCode as S;
        let detail = error.to_string();
        let (status, code, title, cause, remedy) = match error {
            RecordingError::Storage(error) => return error.into(),
            RecordingError::Config(_) => (
                S::BAD_REQUEST,
                "recording_invalid",
                "the instruction cannot be followed",
                "a processor, a time or a query of it could not work",
                "correct what detail names; docs/recording.md describes every processor",
            ),
            RecordingError::NotFound(_) => (
                S::NOT_FOUND,
                "recording_not_found",
                "no such recording",
                "the id was never given, or the recording ended long ago",
                "GET /api/v1/recordings lists all",
            ),
            RecordingError::StorageTaken(_) => (
                S::CONFLICT,
                "storage_taken",
                "another recording fills the storage",
                "one recording at a time writes into a storage",
                "use another storage, or DELETE the recording that detail names",
            ),
            RecordingError::TooMany { .. } => (
                S::CONFLICT,
                "limit_reached",
                "a limit of the server is reached",
                "each of them costs memory for as long as it exists",
                "stop some that are not needed any more, or raise recording.recordings_max",
            ),
        };
        Self::new(status, code, title)
            .detail(detail)
            .cause(cause)
            .remedy(remedy)
    }
}
