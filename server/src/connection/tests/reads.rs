//! How much connections read at once.

use std::time::Duration;

use axum::body::Body;
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::Server;
use crate::config::HttpConfig;

const BODY_BYTES: usize = 3 << 20;

/// The largest piece in which the body arrives, while it is taken more slowly than it is sent.
pub(super) async fn largest_piece(mut body: Body) -> String {
    let mut largest = 0;
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame.unwrap().into_data() {
            largest = largest.max(data.len());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    largest.to_string()
}

async fn push(server: &Server) -> usize {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let head = format!(
        "POST /pieces HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {BODY_BYTES}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&vec![7; BODY_BYTES]).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (_, largest) = answer.rsplit_once("\r\n\r\n").unwrap();
    largest.parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_reads_less_at_once_while_many_others_read() {
    let server = Server::start(HttpConfig::default()).await;
    let alone = push(&server).await;
    assert!((64 << 10..=256 << 10).contains(&alone), "{alone}");
    let mut others = Vec::new();
    for _ in 0..100 {
        let begun = "POST /length HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n1";
        others.push(server.connect(begun).await);
    }
    let reading = "connections_by_state{port=\"main\",state=\"reading\"} 100\n";
    server.reaches(reading).await;
    let among_many = push(&server).await;
    assert!(among_many < 64 << 10, "{among_many}");
    drop(others);
    let idle = "connections_by_state{port=\"main\",state=\"reading\"} 0\n";
    server.reaches(idle).await;
    let alone = push(&server).await;
    assert!(alone > 64 << 10, "{alone}");
}
