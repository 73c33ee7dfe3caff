use std::ops::Range;

/// Ranges with a smaller gap are merged: a part of a response costs about as many bytes.
pub(super) const GAP_BYTES_MAX: u64 = 128;
/// Maximum ranges per request: servers refuse more than a few hundred, and long header fields.
const RANGE_COUNT_MAX: usize = 200;
/// Maximum bytes per request, unless a single range is longer.
const REQUEST_BYTES_MAX: u64 = 64 << 20;

/// One request for some of the wanted ranges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RangeRequest {
    /// Indices into the wanted ranges.
    pub(super) wanted: Range<usize>,
    /// The requested ranges: ascending and not adjacent.
    pub(super) requested: Vec<Range<u64>>,
}

/// Plans requests for sorted ranges that do not overlap. Empty ranges are not requested.
pub(super) fn plan(wanted: &[Range<u64>]) -> Vec<RangeRequest> {
    let mut requests: Vec<RangeRequest> = Vec::new();
    let mut bytes = 0;
    for (index, range) in wanted.iter().enumerate() {
        let length = range.end.saturating_sub(range.start);
        let fits = |request: &&mut RangeRequest| {
            let merges = request
                .requested
                .last()
                .is_some_and(|last| touches(last, range));
            (merges || request.requested.len() < RANGE_COUNT_MAX)
                && bytes + length <= REQUEST_BYTES_MAX
        };
        let Some(request) = requests.last_mut().filter(fits) else {
            bytes = length;
            requests.push(RangeRequest {
                wanted: index..index + 1,
                requested: Vec::from_iter((length > 0).then(|| range.clone())),
            });
            continue;
        };
        bytes += length;
        request.wanted.end = index + 1;
        match request.requested.last_mut() {
            _ if length == 0 => {}
            Some(last) if touches(last, range) => last.end = range.end,
            _ => request.requested.push(range.clone()),
        }
    }
    requests
}

fn touches(last: &Range<u64>, next: &Range<u64>) -> bool {
    next.start.saturating_sub(last.end) < GAP_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(wanted: &[Range<u64>], expected: &[(Range<usize>, &[Range<u64>])]) {
        let found = plan(wanted);
        let found: Vec<_> = found
            .iter()
            .map(|r| (r.wanted.clone(), &r.requested[..]))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn close_ranges_are_merged() {
        check(&[], &[]);
        check(
            &[5..9, 9..12, 100..101],
            &[(0..3, std::slice::from_ref(&(5..101)))],
        );
        check(&[5..9, 137..140], &[(0..2, &[5..9, 137..140])]);
        check(
            &[5..9, 136..140],
            &[(0..2, std::slice::from_ref(&(5..140)))],
        );
        check(
            &[7..7, 5000..5001, 9000..9000],
            &[(0..3, std::slice::from_ref(&(5000..5001)))],
        );
    }

    #[test]
    fn requests_are_bounded() {
        let wanted: Vec<_> = (0..450).map(|n| n * 1000..n * 1000 + 1).collect();
        let requests = plan(&wanted);
        let counts: Vec<_> = requests
            .iter()
            .map(|request| request.requested.len())
            .collect();
        assert_eq!(counts, [200, 200, 50]);
        assert_eq!(requests[1].wanted, 200..400);
        let large = 40 << 20;
        check(
            &[0..large, large..2 * large, 2 * large..2 * large + 5],
            &[
                (0..1, std::slice::from_ref(&(0..large))),
                (1..3, std::slice::from_ref(&(large..2 * large + 5))),
            ],
        );
        let huge = 1 << 40;
        check(
            std::slice::from_ref(&(0..huge)),
            &[(0..1, std::slice::from_ref(&(0..huge)))],
        );
    }
}
