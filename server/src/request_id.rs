//! Request ids, which connect responses with log lines.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderMap, HeaderValue};

/// Maximum length of an id from a client.
const CLIENT_ID_BYTES_MAX: usize = 64;

/// The id of a request, for those who handle it.
#[derive(Debug, Clone)]
pub(crate) struct RequestId(pub(crate) HeaderValue);

/// Generates ids from a random part, which differs in each run, and a counter.
pub(crate) struct RequestIds {
    run: u64,
    next: AtomicU64,
}

impl Default for RequestIds {
    fn default() -> Self {
        Self {
            run: RandomState::new().hash_one("request ids"),
            next: AtomicU64::new(0),
        }
    }
}

impl RequestIds {
    /// The id that the client sent if it is valid (so that a request can be followed through
    /// several servers), otherwise a new one.
    pub(crate) fn id_of(&self, headers: &HeaderMap) -> HeaderValue {
        if let Some(client_id) = headers.get("x-request-id")
            && (1..=CLIENT_ID_BYTES_MAX).contains(&client_id.len())
            && client_id
                .as_bytes()
                .iter()
                .all(|&b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
        {
            return client_id.clone();
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut text = [b'-'; 21];
        hex(self.run, &mut text[..8]);
        hex(number, &mut text[9..]);
        HeaderValue::from_bytes(&text).unwrap_or(HeaderValue::from_static("-"))
    }
}

/// Writes the lowest hexadecimal digits of `value`.
fn hex(mut value: u64, digits: &mut [u8]) {
    for digit in digits.iter_mut().rev() {
        *digit = b"0123456789abcdef"[usize::from(value.to_le_bytes()[0] & 15)];
        value >>= 4;
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};

    use super::RequestIds;

    #[test]
    fn ids_differ_and_valid_client_ids_are_used() {
        let ids = RequestIds::default();
        let mut headers = HeaderMap::new();
        let (first, second) = (ids.id_of(&headers), ids.id_of(&headers));
        assert_ne!(first, second);
        assert!(
            second.to_str().unwrap().ends_with("-000000000001"),
            "{second:?}"
        );
        for (client_id, is_used) in [
            ("ab-1.C_d", true),
            ("", false),
            ("a b", false),
            ("a\"b", false),
        ] {
            headers.insert("x-request-id", HeaderValue::from_str(client_id).unwrap());
            assert_eq!(ids.id_of(&headers) == client_id, is_used, "{client_id:?}");
        }
        headers.insert(
            "x-request-id",
            HeaderValue::from_str(&"a".repeat(65)).unwrap(),
        );
        assert_ne!(ids.id_of(&headers), "a".repeat(65));
    }
}
