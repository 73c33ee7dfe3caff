//! The cases of `range_cases.json`, run on the pure function.

use std::path::Path;

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use proptest::prelude::*;
use serde_json::Value;

use super::{ByteRange, Plan, Validators, plan};

const ETAG: &str = "\"fixture\"";
const MODIFIED: u64 = 1_700_000_000;
const NOW: u64 = MODIFIED + 3600;

fn date(seconds: u64) -> String {
    let value = crate::range::conditions::date_value(seconds).unwrap();
    value.to_str().unwrap().to_owned()
}

fn filled(template: &str) -> String {
    template
        .replace("{etag}", ETAG)
        .replace("{etag_unquoted}", ETAG.trim_matches('"'))
        .replace("{lm}", &date(MODIFIED))
        .replace("{lm-1h}", &date(MODIFIED - 3600))
        .replace("{lm+1h}", &date(MODIFIED + 3600))
}

fn headers_of(case: &Value) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for field in case["request"]["headers"].as_array().unwrap() {
        let name = HeaderName::try_from(field[0].as_str().unwrap()).unwrap();
        // hyper trims the white space around a value.
        let value = filled(field[1].as_str().unwrap());
        headers.append(name, HeaderValue::from_str(value.trim()).unwrap());
    }
    headers
}

fn pairs(value: &Value) -> Vec<ByteRange> {
    let number = |value: &Value| value.as_u64().unwrap();
    let pair = |pair: &Value| ByteRange {
        first: number(&pair[0]),
        last: number(&pair[1]),
    };
    value.as_array().unwrap().iter().map(pair).collect()
}

fn covers(got: &[ByteRange], wanted: &[ByteRange]) -> bool {
    wanted.iter().all(|want| {
        got.iter()
            .any(|have| have.first <= want.first && want.last <= have.last)
    })
}

/// Whether `plan` is the response that `expected` describes.
fn matches_expected(plan: &Plan, expected: &Value) -> bool {
    let status = match plan {
        Plan::Full => 200,
        Plan::Part(_) | Plan::Parts(_) => 206,
        Plan::NotModified => 304,
        Plan::PreconditionFailed => 412,
        Plan::NotSatisfiable => 416,
    };
    if expected["status"].as_u64() != Some(status) {
        return false;
    }
    let got = match plan {
        Plan::Part(range) => vec![*range],
        Plan::Parts(ranges) => ranges.clone(),
        _ => return true,
    };
    let wanted = pairs(&expected["ranges"]);
    match expected["form"].as_str().unwrap() {
        "cover" => covers(&got, &wanted),
        _ => got == wanted,
    }
}

/// Cases where the response is one of the permitted alternatives, on purpose. `num-nginx-7529`: two
/// suffixes that both mean everything request more bytes than there are.
const PERMITTED: [&str; 1] = ["num-nginx-7529"];

#[test]
#[expect(clippy::disallowed_methods, reason = "a test reads its cases")]
fn every_published_case_gets_the_best_response() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpora");
    if !folder.exists() {
        println!("skipped: ../shared/corpora is not here");
        return;
    }
    let text = std::fs::read_to_string(folder.join("http/range_cases.json")).unwrap();
    let corpus: Value = serde_json::from_str(&text).unwrap();
    let mut checked = 0;
    for case in corpus["cases"].as_array().unwrap() {
        let id = case["id"].as_str().unwrap();
        let method = case["request"]["method"].as_str().unwrap();
        let resource = &corpus["resources"][case["request"]["resource"].as_str().unwrap()];
        let (Some(length), "GET" | "HEAD") = (resource["size"].as_u64(), method) else {
            // The router answers these without a resource.
            continue;
        };
        let method = Method::try_from(method).unwrap();
        let validators = Validators {
            etag: ETAG.as_bytes(),
            modified: Some(MODIFIED),
        };
        let got = plan(&method, &headers_of(case), length, &validators, NOW);
        let best = matches_expected(&got, &case["best"]);
        let allowed = case["also_allowed"].as_array().unwrap();
        assert!(
            best || (PERMITTED.contains(&id)
                && allowed.iter().any(|each| matches_expected(&got, each))),
            "{id}: {got:?}, wanted {}",
            case["best"]
        );
        checked += 1;
    }
    assert!(checked > 130, "only {checked} cases were found");
}

#[test]
fn beyond_the_published_cases() {
    let check = |fields: &[(&str, &str)], length: u64, modified: u64, wanted: Plan| {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            let name = HeaderName::try_from(*name).unwrap();
            headers.append(name, HeaderValue::from_str(&filled(value)).unwrap());
        }
        let validators = Validators {
            etag: ETAG.as_bytes(),
            modified: Some(modified),
        };
        let got = plan(&Method::GET, &headers, length, &validators, NOW);
        assert_eq!(got, wanted, "{fields:?} of {length}");
    };
    let part = |first, last| Plan::Part(ByteRange { first, last });
    // A repeated field is not a range set.
    check(
        &[("range", "bytes=0-1"), ("range", "bytes=3-4")],
        9,
        MODIFIED,
        Plan::Full,
    );
    // An excessive request for a large resource receives nothing instead of everything.
    check(
        &[("range", "bytes=0-,0-")],
        (1 << 20) + 1,
        MODIFIED,
        Plan::NotSatisfiable,
    );
    check(&[("range", "bytes=0-,0-")], 1 << 20, MODIFIED, Plan::Full);
    let many: Vec<String> = (0..1025).map(|at| format!("{0}-{0}", at * 2)).collect();
    let many = format!("bytes={}", many.join(","));
    check(&[("range", &many)], 1 << 30, MODIFIED, Plan::NotSatisfiable);
    check(
        &[("range", &format!("{many},x"))],
        1 << 30,
        MODIFIED,
        Plan::Full,
    );
    let long = format!("bytes=0-0{}", ",".repeat(16 << 10));
    check(&[("range", &long)], 1 << 30, MODIFIED, Plan::NotSatisfiable);
    // A date within the current second may hide another change.
    check(
        &[("range", "bytes=0-1"), ("if-range", &date(NOW))],
        9,
        NOW,
        Plan::Full,
    );
    check(
        &[("range", "bytes=0-1"), ("if-range", &date(NOW - 1))],
        9,
        NOW - 1,
        part(0, 1),
    );
    // Commas inside a tag; weak tags match only weakly.
    check(
        &[("if-none-match", "\"a,b\", W/{etag}")],
        9,
        MODIFIED,
        Plan::NotModified,
    );
    check(
        &[("if-match", "W/{etag}")],
        9,
        MODIFIED,
        Plan::PreconditionFailed,
    );
    check(&[("if-match", "\"a,b\",{etag}")], 9, MODIFIED, Plan::Full);
    check(&[("if-none-match", "*")], 9, MODIFIED, Plan::NotModified);
    // Adjacent ranges are merged; a tab is white space.
    check(&[("range", "bytes=0-1,\t2-3")], 9, MODIFIED, part(0, 3));
}

proptest! {
    /// For any input, planned ranges are within the resource, disjoint, and no more than the
    /// resource.
    #[test]
    fn plans_are_valid(
        value in prop_oneof!["bytes=[0-9, -]{0,60}", "[ -~]{0,60}"],
        length in prop_oneof![0_u64..60, Just(u64::MAX)],
    ) {
        let mut headers = HeaderMap::new();
        headers.insert("range", HeaderValue::from_str(&value).unwrap());
        let validators = Validators { etag: ETAG.as_bytes(), modified: None };
        let ranges = match plan(&Method::GET, &headers, length, &validators, NOW) {
            Plan::Part(range) => vec![range],
            Plan::Parts(ranges) => {
                prop_assert!(ranges.len() > 1);
                ranges
            }
            _ => Vec::new(),
        };
        for range in &ranges {
            prop_assert!(range.first <= range.last && range.last < length);
        }
        for (at, range) in ranges.iter().enumerate() {
            for other in &ranges[at + 1..] {
                prop_assert!(range.last < other.first || other.last < range.first);
            }
        }
    }
}
