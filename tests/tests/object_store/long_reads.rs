//! Long reads of evicted files: sent from memory, checked, and not kept.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use super::*;

const LONG_BYTES: usize = 24 << 20;

/// A finalized and evicted storage with a file of random bytes; the path of the file.
fn evicted(server: &Server) -> (String, String) {
    let folder = tempfile::tempdir().unwrap();
    let storage = server.api().create_storage("long");
    let path = folder.path().join("noise.bin");
    let mut state = 1_u64;
    let words = (0..LONG_BYTES / 8).flat_map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    fs::write(&path, words.collect::<Vec<u8>>()).unwrap();
    let url = server.url();
    let to = ["push", "--server", &url, "--storage", &storage];
    let what = ["--agent", "host", "--kind", "raw", path.to_str().unwrap()];
    let (code, _, errors) = run(&[&to[..], &what].concat());
    assert_eq!(code, 0, "{errors}");
    server.api().finalize(&storage);
    wait_for_indexes(server, &storage);
    wait_uploaded(server, &storage);
    let files = server.api().files(&storage);
    let (name, ..) = files.iter().max_by_key(|(_, _, length)| *length).unwrap();
    let path = format!("/storage/{storage}/{name}");
    (storage, path)
}

fn whole(server: &Server, path: &str) -> Vec<u8> {
    let read = server.api().send(&Request::new("GET", path)).unwrap();
    assert_eq!(read.status, 200, "{}", read.brief());
    read.body
}

#[test]
fn a_whole_file_is_sent_from_memory_and_not_kept() {
    let Some(store) = ObjectStore::moto() else {
        return;
    };
    let proxy = StoreProxy::start(store.address());
    let (_folder, one) = start(ObjectStore::settings_at(proxy.address(), "one", ""));
    let (storage, path) = evicted(&one);
    let before = whole(&one, &path);
    assert!(before.len() > LONG_BYTES, "{}", before.len());
    act(&one, &storage, "evict");
    let here = tier(&one, &storage)["bytes_here"].as_u64();
    let (_, moved) = proxy.counts();
    assert!(whole(&one, &path) == before);
    let moved = proxy.counts().1 - moved;
    let length = before.len() as u64;
    assert!(
        moved >= length && moved < length + (2 << 20),
        "{moved} bytes"
    );
    assert_eq!(tier(&one, &storage)["bytes_here"].as_u64(), here);

    // What fails and may succeed later is asked for again, wherever it fails.
    for fault in [
        StoreFault::CutAnswer,
        StoreFault::Refuse(503),
        StoreFault::DropAnswer,
    ] {
        for _ in 0..2 {
            proxy.fail("/f/", fault);
        }
        assert!(whole(&one, &path) == before, "{fault:?}");
        assert_eq!(proxy.faults_left(), 0, "{fault:?}");
    }

    // A part of it, and a reader that hangs up in the middle.
    let range = Request::new("GET", &path).header("Range", "bytes=100001-20000000");
    let part = one.api().send(&range).unwrap();
    assert_eq!(part.status, 206);
    assert!(part.body == before[100_001..=20_000_000]);
    let mut reader = TcpStream::connect(one.url().trim_start_matches("http://")).unwrap();
    write!(reader, "GET {path} HTTP/1.1\r\nHost: one\r\n\r\n").unwrap();
    reader.read_exact(&mut [0; 100_000]).unwrap();
    drop(reader);
    assert!(whole(&one, &path) == before);
    assert_eq!(tier(&one, &storage)["bytes_here"].as_u64(), here);
}

#[test]
fn a_whole_file_ends_where_its_object_is_damaged() {
    let Some(store) = ObjectStore::moto() else {
        return;
    };
    let (_folder, one) = start(store.settings("one", ""));
    let (storage, path) = evicted(&one);
    let before = whole(&one, &path);
    act(&one, &storage, "evict");
    let damage = |at: usize| {
        let script = format!(
            "pages = s3.list_objects_v2(Bucket=bucket, Prefix='cluster/s/{storage}/f/')['Contents']\n\
             key = max(pages, key=lambda each: each['Size'])['Key']\n\
             body = bytearray(s3.get_object(Bucket=bucket, Key=key)['Body'].read())\n\
             body[{at}] ^= 1\ns3.put_object(Bucket=bucket, Key=key, Body=bytes(body))"
        );
        store.python(&script);
    };
    damage(20 << 20);
    let mut reader = TcpStream::connect(one.url().trim_start_matches("http://")).unwrap();
    write!(
        reader,
        "GET {path} HTTP/1.1\r\nHost: one\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = Vec::new();
    // The connection may be reset.
    let _ = reader.read_to_end(&mut answer);
    let head = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let body = &answer[head.expect("it begins") + 4..];
    assert!(body.len() <= 20 << 20, "{} bytes came", body.len());
    assert!(*body == before[..body.len()]);

    // In its first bytes, the answer says why.
    damage(1000);
    let read = one.api().send(&Request::new("GET", &path)).unwrap();
    assert_eq!(read.status, 500, "{}", read.brief());
    assert_eq!(read.json()["code"], "object_lost");
}
