use std::cell::Cell;

use super::*;
use crate::{
    faulty::{Fault, Faulty},
    sample::sealed,
};

#[tokio::test]
async fn every_damage_is_found() {
    let store = Faulty::new();
    let bucket = store.bucket(4);
    let seal = sealed(&bucket, &[9 << 20, 70_000, 0]).await;
    let heads = Heads::get(&bucket, &seal).await.unwrap();
    let read = Cell::new(0);
    let verify = || verify_storage(&bucket, &seal, &heads, |bytes| read.set(read.get() + bytes));
    assert_eq!(verify().await.unwrap(), Vec::<String>::new());
    assert_eq!(read.get(), seal.heads.length + (9 << 20) + 70_000);
    let key = &seal.files[0].key;
    let good = bucket.get(key).await.unwrap().unwrap();
    for at in [0, 8 << 20, (9 << 20) - 1] {
        let mut body = good.to_vec();
        body[at] ^= 1;
        bucket.put(key, body.into()).await.unwrap();
        let problems = verify().await.unwrap();
        let granule = at / 65_536 * 65_536;
        let expected = format!("1 pieces of 64 KiB, the first at {granule}");
        assert!(
            problems.len() == 1 && problems[0].ends_with(&expected),
            "{problems:?}"
        );
    }
    let mut longer = good.to_vec();
    longer.push(0);
    bucket.put(key, longer.into()).await.unwrap();
    bucket.delete(&seal.files[1].key).await.unwrap();
    bucket.put(&seal.heads.key, good.slice(..10)).await.unwrap();
    let problems = verify().await.unwrap();
    assert_eq!(problems.len(), 3, "{problems:?}");
    // The granules are right and the sum of the whole is not.
    bucket.put(key, good).await.unwrap();
    let mut wrong = seal.clone();
    wrong.files[0].checksum ^= 1;
    let problems = verify_storage(&bucket, &wrong, &heads, |_| ())
        .await
        .unwrap();
    assert!(
        problems
            .iter()
            .any(|problem| problem.contains("the seal says")),
        "{problems:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_answer_is_no_damage() {
    let store = Faulty::new();
    let bucket = store.bucket(4);
    let seal = sealed(&bucket, &[70_000]).await;
    let heads = Heads::get(&bucket, &seal).await.unwrap();
    store.plan(|_, _, _| Fault::Fail("reset"));
    let error = verify_storage(&bucket, &seal, &heads, |_| ())
        .await
        .unwrap_err();
    assert!(error.is_passing(), "{error}");
}
