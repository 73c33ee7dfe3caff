use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use storage_format::batch::{RECORD_HEADER_BYTES, RecordHeader};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use uuid::Uuid;

use super::*;
use crate::ClientError;
use crate::testing::{Request, Response, TestServer, answer, json as json_answer};

const STORAGE: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

fn id() -> Uuid {
    STORAGE.parse().unwrap()
}

fn storage() -> Response {
    json_answer(200, json!({ "id": STORAGE, "state": "OPEN", "extra": 1 }))
}

fn problem(status: u16, code: &str) -> Response {
    json_answer(
        status,
        json!({ "code": code, "detail": "d", "status": status }),
    )
}

/// The server gives `answers` one after another (`None` breaks the connection), then 500.
async fn scripted(answers: Vec<Option<Response>>) -> TestServer {
    let mut answers = answers.into_iter();
    TestServer::start(move |request: &Request| {
        assert_eq!(request.headers()["authorization"], "Bearer secret");
        answers
            .next()
            .unwrap_or_else(|| Some(problem(500, "script_ended")))
    })
    .await
}

/// How many requests a GET takes, and how it ends.
async fn check_get(answers: Vec<Option<Response>>, requests: usize, code: Option<&str>) {
    let server = scripted(answers).await;
    let result = server.client().storage(id()).await;
    match code {
        None => assert_eq!(result.unwrap().more["extra"], 1),
        Some(code) => assert!(result.unwrap_err().is_refused_as(code)),
    }
    assert_eq!(server.seen().len(), requests);
}

#[tokio::test]
async fn temporary_refusals_are_retried() {
    let later = || Some(answer(429, &[("retry-after", "0")], ""));
    check_get(
        vec![later(), Some(problem(507, "disk_low")), Some(storage())],
        3,
        None,
    )
    .await;
    check_get(
        vec![Some(problem(503, "not_ready")), None, Some(storage())],
        3,
        None,
    )
    .await;
    check_get(
        vec![Some(problem(409, "wrong_state")), Some(storage())],
        1,
        Some("wrong_state"),
    )
    .await;
    let always: Vec<_> = (0..50).map(|_| Some(problem(429, "busy"))).collect();
    // 1 + 2 + 2 + 2 ms of waits fit into the 8 ms of wait_max.
    check_get(always, 5, Some("busy")).await;
}

#[tokio::test]
async fn only_repeatable_requests_are_retried() {
    let server = scripted(vec![None, Some(storage())]).await;
    let error = server.client().finalize_storage(id()).await.unwrap_err();
    assert!(matches!(error, ClientError::Transport { .. }), "{error}");
    assert_eq!(
        server.seen().len(),
        2,
        "one request to finalize, one for the state"
    );

    let finalized = json!({ "id": STORAGE, "state": "FINALIZED" });
    let server = scripted(vec![None, Some(json_answer(200, finalized))]).await;
    server.client().finalize_storage(id()).await.unwrap();

    let server = scripted(vec![None, Some(storage())]).await;
    let new = NewStorage::default();
    server.client().create_storage(&new, id()).await.unwrap();
    assert_eq!(
        server.seen().len(),
        2,
        "an idempotency key makes creation repeatable"
    );
}

#[tokio::test]
async fn an_unreachable_server_is_reported() {
    let url = TestServer::start(|_: &Request| None).await.url();
    let client = Client::new(url, None, Retry::default()).unwrap();
    let error = client.storage(id()).await.unwrap_err().to_string();
    assert!(error.contains("no connection to the server"), "{error}");
}

/// As a server with TLS does to a request in the clear. The client does not wait and try again.
#[tokio::test]
async fn an_answer_that_is_not_http_is_reported_at_once() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let alert = [0x15, 3, 3, 0, 2, 2, 70];
            let read = stream.read(&mut [0; 1024]).await;
            assert!(read.is_ok_and(|read| read > 0));
            stream.write_all(&alert).await.unwrap();
        }
    });
    let client = Client::new(url.parse().unwrap(), None, Retry::default()).unwrap();
    let asked = tokio::time::timeout(Duration::from_secs(10), client.storage(id()));
    let error = asked.await.unwrap().unwrap_err().to_string();
    assert!(error.contains("begins with https://"), "{error}");
}

#[tokio::test]
async fn unexpected_responses_are_errors() {
    let server = scripted(vec![Some(json_answer(200, "[1]"))]).await;
    let error = server.client().storage(id()).await.unwrap_err().to_string();
    assert!(error.contains("unexpected JSON"), "{error}");
}

#[tokio::test]
async fn lists_are_read_to_their_end() {
    let item = |name: &str| json!({ "id": STORAGE, "state": "OPEN", "name": name });
    let server = scripted(vec![
        Some(json_answer(
            200,
            json!({ "items": [item("a b")], "next": "c/1" }),
        )),
        Some(json_answer(
            200,
            json!({ "items": [item("b")], "next": null }),
        )),
    ])
    .await;
    let found = server.client().find_storage("a b").await.unwrap();
    assert_eq!(found.name, "a b");
    assert_eq!(
        server.seen(),
        [
            "GET /api/v1/storages?name=a%20b",
            "GET /api/v1/storages?name=a%20b&cursor=c%2F1",
        ]
    );
}

fn target() -> PushTarget {
    PushTarget {
        storage: Some(id()),
        agent: "a".to_owned(),
        stream: "s".to_owned(),
    }
}

/// The sequences in a batch body, each payload checked.
fn sequences(body: &Bytes) -> Vec<u64> {
    let mut rest = &body[..];
    let mut sequences = Vec::new();
    while !rest.is_empty() {
        let (header, tail) = rest.split_first_chunk::<RECORD_HEADER_BYTES>().unwrap();
        let header = RecordHeader::decode(header).unwrap();
        let (payload, tail) = tail.split_at(header.length as usize);
        header.check(payload).unwrap();
        assert_eq!(header.position.epoch, 7);
        sequences.push(header.position.sequence);
        rest = tail;
    }
    sequences
}

fn receipts(sequences: Range<u64>) -> Vec<serde_json::Value> {
    sequences
        .map(|n| json!({ "epoch": 7, "sequence": n, "number": n, "durable": true }))
        .collect()
}

#[tokio::test]
async fn a_batch_continues_after_the_accepted_packets() {
    let mut turn = 0;
    let server = TestServer::start(move |request: &Request| {
        turn += 1;
        assert_eq!(
            request.headers()["content-type"],
            "application/vnd.tracehold.packets"
        );
        assert!(request.headers().contains_key("content-length"));
        let sent = sequences(request.body());
        match turn {
            1 => {
                assert_eq!(sent, [5, 6, 7, 8]);
                let refusal = json!({ "code": "busy", "receipts": receipts(5..7) });
                Some(json_answer(429, refusal))
            }
            2 => None,
            _ => {
                assert_eq!(sent, [7, 8]);
                Some(json_answer(200, json!({ "receipts": receipts(7..9) })))
            }
        }
    })
    .await;
    let packets = ["a", "bb", "ccc", "dddd"].map(Bytes::from);
    let receipts = server
        .client()
        .push(&target(), 7, 5, &packets)
        .await
        .unwrap();
    let numbers: Vec<_> = receipts
        .receipts
        .iter()
        .map(|receipt| receipt.sequence)
        .collect();
    assert_eq!(numbers, [5, 6, 7, 8]);
    assert_eq!(server.seen().len(), 3);
}

#[tokio::test]
async fn missing_receipts_are_errors() {
    let answer = json!({ "receipts": receipts(0..1) });
    let server = scripted(vec![Some(json_answer(200, answer))]).await;
    let packets = ["a", "b"].map(Bytes::from);
    let error = server
        .client()
        .push(&target(), 7, 0, &packets)
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("1 receipts"), "{error}");
}

#[tokio::test]
async fn the_next_sequence_is_in_the_head() {
    let headers = [("tracehold-epoch", "7"), ("tracehold-next-sequence", "12")];
    let server = scripted(vec![
        Some(answer(200, &headers, "")),
        Some(answer(200, &[], "")),
    ])
    .await;
    let next = server.client().next_sequence(&target()).await.unwrap();
    assert_eq!((next.epoch, next.sequence), (7, 12));
    assert!(server.client().next_sequence(&target()).await.is_err());
}

const FILE: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyz";

/// Fetches `ranges` when the server answers like this; the bytes that arrived, by offset.
async fn fetch(
    ranges: &[Range<u64>],
    response: Response,
) -> Result<Vec<(u64, Vec<u8>)>, ClientError> {
    let server = scripted(vec![Some(response)]).await;
    let url: StorageUrl = format!("{}/storage/{STORAGE}", server.url())
        .parse()
        .unwrap();
    let client = server.client();
    let mut answer = client.file(&url, "x.itdata", ranges, None).await?;
    let mut pieces: Vec<(u64, Vec<u8>)> = Vec::new();
    while let Some((offset, bytes)) = answer.next().await? {
        match pieces.last_mut() {
            Some((at, piece)) if *at + piece.len() as u64 == offset => piece.extend(&bytes),
            _ => pieces.push((offset, bytes.to_vec())),
        }
    }
    Ok(pieces)
}

fn multipart(ranges: &[Range<u64>]) -> Vec<u8> {
    let mut body = Vec::new();
    for range in ranges {
        let (first, last) = (range.start, range.end - 1);
        let head = format!("\r\n--BB\r\nContent-Range: bytes {first}-{last}/36\r\n\r\n");
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(&FILE[first as usize..=last as usize]);
    }
    body.extend_from_slice(b"\r\n--BB--\r\n");
    body
}

fn parts(ranges: &[Range<u64>]) -> Response {
    let headers = [("content-type", "multipart/byteranges; boundary=BB")];
    answer(206, &headers, multipart(ranges))
}

#[tokio::test]
async fn every_form_of_a_range_response_is_accepted() {
    let wanted = [2..5, 30..31];
    let piece = |range: Range<usize>| (range.start as u64, FILE[range].to_vec());
    let several = fetch(&wanted, parts(&wanted)).await.unwrap();
    assert_eq!(several, [piece(2..5), piece(30..31)]);
    let single = answer(206, &[("content-range", "bytes 2-30/36")], &FILE[2..31]);
    assert_eq!(fetch(&wanted, single).await.unwrap(), [piece(2..31)]);
    let whole = answer(200, &[], FILE);
    assert_eq!(fetch(&wanted, whole).await.unwrap(), [piece(0..36)]);
}

#[tokio::test]
async fn truncated_or_invalid_range_responses_are_errors() {
    let headers = [("content-type", "multipart/byteranges; boundary=BB")];
    let mut body = multipart(&[2..5, 30..31]);
    body.truncate(body.len() - 10);
    let cut = fetch(&[2..5, 30..31], answer(206, &headers, body))
        .await
        .unwrap_err();
    assert!(matches!(cut, ClientError::Cut { .. }), "{cut}");
    let short = answer(206, &[("content-range", "bytes 2-30/36")], &FILE[2..20]);
    let short = fetch(std::slice::from_ref(&(2..31)), short)
        .await
        .unwrap_err();
    assert!(
        short.to_string().contains("ended early, at offset 20"),
        "{short}"
    );
    let without = fetch(std::slice::from_ref(&(2..31)), answer(206, &[], "x"))
        .await
        .unwrap_err();
    assert!(without.to_string().contains("Content-Range"), "{without}");
    let refused = fetch(
        std::slice::from_ref(&(2..31)),
        problem(416, "range_not_satisfiable"),
    )
    .await
    .unwrap_err();
    assert!(refused.is_refused_as("range_not_satisfiable"));
}
