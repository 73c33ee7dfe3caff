//! Responses to multi-range requests (`multipart/byteranges`, RFC 9110 section 14.6).

use crate::http::Response;

/// One part of a multi-range response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its position in the file, half-open.
    pub range: std::ops::Range<u64>,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// The parts of a 206 response, which may also be one plain range.
///
/// # Panics
/// If the response is not a 206, or violates its format.
pub fn parts(response: &Response) -> Vec<Part> {
    assert_eq!(response.status, 206, "{}", response.brief());
    if let Some(range) = response.header("content-range") {
        return vec![Part {
            range: content_range(range),
            bytes: response.body.clone(),
        }];
    }
    let kind = response
        .header("content-type")
        .expect("a 206 has a content type");
    let boundary = kind
        .split_once("boundary=")
        .expect("a multipart names its boundary")
        .1;
    let mark = format!("--{}", boundary.trim_matches('"'));
    let mut rest = after(&response.body, mark.as_bytes());
    let mut parts = Vec::new();
    while rest.starts_with(b"\r\n") {
        let head_end = position(rest, b"\r\n\r\n").expect("a part has a head") + 4;
        let head = std::str::from_utf8(&rest[..head_end]).expect("the head of a part is text");
        let range = head
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(name, _)| name.eq_ignore_ascii_case("content-range"))
            .map(|(_, value)| content_range(value.trim()))
            .expect("a part has a range");
        // The length is known, so bytes that look like the boundary cannot end a part early.
        let length = usize::try_from(range.end - range.start).expect("a part fits into memory");
        let bytes = rest[head_end..][..length].to_vec();
        parts.push(Part { range, bytes });
        rest = rest[head_end + length..]
            .strip_prefix(format!("\r\n{mark}").as_bytes())
            .expect("a boundary follows a part");
    }
    assert!(rest.starts_with(b"--"), "the last boundary is closed");
    parts
}

fn after<'a>(bytes: &'a [u8], mark: &[u8]) -> &'a [u8] {
    let at = position(bytes, mark).expect("a multipart begins with its boundary");
    &bytes[at + mark.len()..]
}

fn position(bytes: &[u8], mark: &[u8]) -> Option<usize> {
    bytes.windows(mark.len()).position(|seen| seen == mark)
}

fn content_range(value: &str) -> std::ops::Range<u64> {
    let numbers = value
        .strip_prefix("bytes ")
        .and_then(|rest| rest.split_once('/'))
        .and_then(|(range, _)| range.split_once('-'))
        .and_then(|(first, last)| Some((first.parse().ok()?, last.parse::<u64>().ok()?)));
    let (first, last) = numbers.unwrap_or_else(|| panic!("malformed content-range {value:?}"));
    first..last + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_split_by_their_length() {
        let body = b"--b\r\nContent-Range: bytes 1-4/9\r\n\r\n\r\n--\r\n\
                     --b\r\ncontent-type: a\r\ncontent-range: bytes 7-7/9\r\n\r\nx\r\n--b--\r\n";
        let kind = "multipart/byteranges; boundary=b".to_owned();
        let headers = vec![("content-type".to_owned(), kind)];
        let response = Response {
            status: 206,
            headers,
            body: body.to_vec(),
            trailers: Vec::new(),
        };
        let expected = [
            Part {
                range: 1..5,
                bytes: b"\r\n--".to_vec(),
            },
            Part {
                range: 7..8,
                bytes: b"x".to_vec(),
            },
        ];
        assert_eq!(parts(&response), expected);
    }
}
