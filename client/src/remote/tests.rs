use std::io;
use std::ops::Range;
use std::sync::Arc;

use tokio::runtime::Handle;

use super::*;
use crate::testing::{Request, Response, TestServer, answer, broken};

const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

fn byte(at: u64) -> u8 {
    (at % 251) as u8
}

const LENGTH: u64 = 1 << 20;

/// Serves a file as a server of ours does.
fn serve(request: &Request, etag: &str) -> Response {
    if request
        .headers()
        .get("if-match")
        .is_some_and(|wanted| wanted != etag)
    {
        return answer(412, &[], "");
    }
    let ranges = request.headers()["range"].to_str().unwrap();
    let ranges = ranges
        .strip_prefix("bytes=")
        .unwrap()
        .split(',')
        .map(|spec| {
            let (first, last) = spec.split_once('-').unwrap();
            (
                first.parse().unwrap(),
                last.parse::<u64>().unwrap().min(LENGTH - 1),
            )
        });
    let ranges: Vec<(u64, u64)> = ranges.filter(|(first, _)| *first < LENGTH).collect();
    let bytes = |(first, last): (u64, u64)| (first..=last).map(byte);
    match ranges[..] {
        [] => answer(416, &[], ""),
        [(first, last)] => {
            let range = format!("bytes {first}-{last}/{LENGTH}");
            let headers = [("content-range", range.as_str()), ("etag", etag)];
            answer(206, &headers, Vec::from_iter(bytes((first, last))))
        }
        _ => {
            let mut body = Vec::new();
            for range in ranges {
                let (first, last) = range;
                let head =
                    format!("\r\n--B\r\nContent-Range: bytes {first}-{last}/{LENGTH}\r\n\r\n");
                body.extend(head.into_bytes());
                body.extend(bytes(range));
            }
            body.extend(b"\r\n--B--\r\n");
            let content_type = ("content-type", "multipart/byteranges; boundary=B");
            answer(206, &[content_type, ("etag", etag)], body)
        }
    }
}

fn remote(server: &TestServer) -> (RemoteFile, Arc<Transferred>) {
    let url = format!("{}/storage/{ID}", server.url()).parse().unwrap();
    let transferred = Arc::new(Transferred::default());
    let shared = Arc::clone(&transferred);
    let file = RemoteFile::new(
        server.client(),
        url,
        "x".to_owned(),
        Handle::current(),
        shared,
    );
    (file, transferred)
}

fn expected(ranges: &[Range<u64>]) -> Vec<Vec<u8>> {
    ranges
        .iter()
        .map(|range| range.clone().map(byte).collect())
        .collect()
}

#[tokio::test]
async fn ranges_are_returned_in_the_requested_order() {
    let server = TestServer::start(|request: &Request| Some(serve(request, "\"e\""))).await;
    let (file, transferred) = remote(&server);
    let few = [0..10, 10..20, 5000..5000, 6000..6001];
    assert_eq!(file.read(&few).await.unwrap(), expected(&few));
    assert_eq!((transferred.requests(), transferred.bytes()), (1, 21));
    let many: Vec<_> = (0..500).map(|n| n * 2000..n * 2000 + 3).collect();
    assert_eq!(file.read(&many).await.unwrap(), expected(&many));
    assert_eq!(
        (transferred.requests(), transferred.bytes()),
        (4, 21 + 1500)
    );
    assert_eq!(file.read(&[]).await.unwrap(), expected(&[]));
}

async fn check_error(ranges: &[Range<u64>], expected: io::ErrorKind) {
    let server = TestServer::start(|request: &Request| Some(serve(request, "\"e\""))).await;
    let (file, _) = remote(&server);
    assert_eq!(file.read(ranges).await.unwrap_err().kind(), expected);
}

#[tokio::test]
async fn ranges_beyond_the_end_are_an_early_end() {
    check_error(
        &[0..1, LENGTH - 1..LENGTH + 1],
        io::ErrorKind::UnexpectedEof,
    )
    .await;
    check_error(
        std::slice::from_ref(&(LENGTH + 5..LENGTH + 6)),
        io::ErrorKind::UnexpectedEof,
    )
    .await;
}

#[tokio::test]
async fn a_break_costs_only_a_repetition() {
    let mut turn = 0;
    let server = TestServer::start(move |request: &Request| {
        turn += 1;
        let whole = serve(request, "\"e\"");
        match turn {
            1 => None,
            2 => {
                let headers = [("content-range", "bytes 0-99/1048576")];
                Some(broken(206, &headers, 100, "cut"))
            }
            _ => Some(whole),
        }
    })
    .await;
    let (file, transferred) = remote(&server);
    let range = std::slice::from_ref(&(0..100));
    assert_eq!(file.read(range).await.unwrap(), expected(range));
    assert_eq!(
        transferred.requests(),
        2,
        "the first never had an answer, the client repeated it"
    );
    assert_eq!(server.seen().len(), 3);
}

/// What had no response was sent again by the client, and is not sent again and again.
#[tokio::test]
async fn a_request_without_an_answer_is_not_repeated_twice() {
    let range = std::slice::from_ref(&(0..100));
    let silent = TestServer::start(|_: &Request| None).await;
    let (file, transferred) = remote(&silent);
    file.read(range).await.unwrap_err();
    assert_eq!(transferred.requests(), 1);
    assert_eq!(silent.seen().len(), 5, "as long as the client waits");
    let (file, transferred) = {
        let gone = TestServer::start(|_: &Request| None).await;
        remote(&gone)
    };
    let error = file.read(range).await.unwrap_err().to_string();
    assert!(error.contains("no connection to the server"), "{error}");
    assert_eq!(transferred.requests(), 1);
    file.lost(range).await.unwrap_err();
    assert_eq!(transferred.requests(), 2);
}

#[tokio::test]
async fn another_file_under_the_same_name_is_not_mixed_in() {
    let mut turn = 0;
    let server = TestServer::start(move |request: &Request| {
        turn += 1;
        Some(serve(
            request,
            if turn == 1 { "\"one\"" } else { "\"two\"" },
        ))
    })
    .await;
    let (file, _) = remote(&server);
    let range = std::slice::from_ref(&(0..100));
    file.read(range).await.unwrap();
    let error = file.read(range).await.unwrap_err().to_string();
    assert!(error.contains("412"), "{error}");
}

const BLOCK: u64 = 4 << 20;

/// Serves zeros of five blocks, of which it knows some to be damaged.
fn serve_blocks(request: &Request, damaged: &[u64]) -> Response {
    let ranges = request.headers()["range"].to_str().unwrap();
    let ranges = ranges.strip_prefix("bytes=").unwrap().split(',');
    let ranges: Vec<(u64, u64)> = ranges
        .map(|spec| {
            let (first, last) = spec.split_once('-').unwrap();
            (first.parse().unwrap(), last.parse().unwrap())
        })
        .collect();
    let has = |block: &&u64| {
        let mut ranges = ranges.iter();
        ranges.any(|(first, last)| (first / BLOCK..=last / BLOCK).contains(*block))
    };
    if let Some(block) = damaged.iter().find(has) {
        let problem = format!(
            r#"{{"status":500,"code":"damaged","offset":{}}}"#,
            block * BLOCK
        );
        let kind = ("content-type", "application/problem+json");
        return answer(500, &[kind], problem);
    }
    let length = 5 * BLOCK;
    let mut body = Vec::new();
    for (first, last) in &ranges {
        let head = format!("\r\n--B\r\nContent-Range: bytes {first}-{last}/{length}\r\n\r\n");
        body.extend(head.into_bytes());
        body.extend((*first..=*last).map(|_| 0));
    }
    body.extend(b"\r\n--B--\r\n");
    let content_type = ("content-type", "multipart/byteranges; boundary=B");
    answer(206, &[content_type, ("etag", "\"e\"")], body)
}

#[tokio::test]
async fn damaged_blocks_are_lost_and_no_others() {
    let server = TestServer::start(|request: &Request| Some(serve_blocks(request, &[0, 2]))).await;
    let (file, transferred) = remote(&server);
    let wanted = [
        100..200,
        300..BLOCK + 10,
        2 * BLOCK - 5..2 * BLOCK,
        3 * BLOCK - 1..4 * BLOCK + 3,
    ];
    let error = file.read(&wanted).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{error}");
    let requests = transferred.requests();
    let lost = file.lost(&wanted).await.unwrap();
    assert_eq!(lost, [100..200, 300..BLOCK, 3 * BLOCK - 1..3 * BLOCK]);
    assert_eq!(transferred.requests() - requests, 5, "one for each block");
}

#[tokio::test]
async fn a_response_that_breaks_says_nothing_about_damage() {
    let server = TestServer::start(|_: &Request| {
        let headers = [("content-range", "bytes 0-99/1048576")];
        Some(broken(206, &headers, 100, "cut"))
    })
    .await;
    let (file, _) = remote(&server);
    let range = std::slice::from_ref(&(0..100));
    let error = file.read(range).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted, "{error}");
    file.lost(range).await.unwrap_err();
    let passing = TestServer::start(|_: &Request| {
        let problem = r#"{"status":500,"code":"file_unreadable"}"#;
        let kind = ("content-type", "application/problem+json");
        Some(answer(500, &[kind], problem))
    })
    .await;
    let (file, _) = remote(&passing);
    let error = file.read(range).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::Other, "{error}");
    file.lost(range).await.unwrap_err();
}
