//! A trial of a real object store: uploads a file as a storage, reads it, verifies it, changes its
//! labels and removes it, with the time of each.
//!
//! ```text
//! TRIAL_ENDPOINT=http://127.0.0.1:18090 TRIAL_URL=s3://bucket/prefix \
//! TRIAL_FILE=FILE AWS_ACCESS_KEY_ID=… AWS_SECRET_ACCESS_KEY=… \
//!     cargo run --release -p object-tier --example trial
//! ```

#![expect(clippy::print_stdout, reason = "what it found is its result")]

use std::{
    collections::BTreeMap,
    error::Error,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use bytes::Bytes;
use object_tier::{
    Bucket, Heads, LabelRecord, LocalFile, Reader, Seal, StoreSettings, Upload, Uploaded,
};
use storage_format::StorageId;

type Outcome = Result<(), Box<dyn Error>>;

const NODE: &str = "trial";

#[tokio::main]
async fn main() -> Outcome {
    let variable = |name: &str| std::env::var(name).map_err(|_| format!("set {name}"));
    let settings = StoreSettings {
        url: variable("TRIAL_URL")?,
        endpoint: variable("TRIAL_ENDPOINT").ok(),
        requests_max: 64,
        timeout: Duration::from_secs(30),
        ..StoreSettings::default()
    };
    let bucket = settings.open()?;
    let path = PathBuf::from(variable("TRIAL_FILE")?);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    let random = now.as_nanos().to_le_bytes();
    let mut tail = [0; 10];
    tail.copy_from_slice(&random[..10]);
    let storage = StorageId::new(u64::try_from(now.as_millis())?, tail);
    let seal = send(&bucket, storage, &path, i64::try_from(now.as_nanos())?).await?;
    read(&bucket, &seal, &path).await?;
    change(&bucket, storage).await?;
    let begun = Instant::now();
    object_tier::remove_storage(&bucket, storage, NODE).await?;
    report("remove", begun, 0);
    let left = bucket.list_all(&format!("s/{storage}")).await?;
    println!("left: {left:?}; {:?}", bucket.requests());
    Ok(())
}

fn report(what: &str, begun: Instant, bytes: u64) {
    let took = begun.elapsed();
    let mib = u32::try_from(bytes >> 20).unwrap_or(u32::MAX);
    let rate = f64::from(mib) / took.as_secs_f64();
    println!("{what}: {took:?}, {rate:.0} MiB/s");
}

async fn send(
    bucket: &Bucket,
    storage: StorageId,
    path: &Path,
    now: i64,
) -> Result<Seal, Box<dyn Error>> {
    let folder = std::env::temp_dir();
    let length = std::fs::metadata(path)?.len();
    let upload = Upload {
        storage,
        node: NODE.into(),
        now,
        storage_file: Bytes::from_static(b"the storage file"),
        small: Vec::new(),
        large: vec![LocalFile {
            name: "0000000000000000.itdata".into(),
            path: path.to_owned(),
            length,
            checksum: None,
        }],
        journal: folder.join(format!("{storage}.journal")),
    };
    for what in ["upload", "repeated upload"] {
        let begun = Instant::now();
        let uploaded = object_tier::upload(bucket, upload.clone(), |_| ()).await?;
        report(what, begun, length);
        assert!(matches!(uploaded, Uploaded::Sealed { .. }), "{uploaded:?}");
    }
    std::fs::remove_file(&upload.journal)?;
    let again = object_tier::upload(bucket, upload.clone(), |_| ()).await?;
    assert!(matches!(again, Uploaded::SealedByOther(_)), "{again:?}");
    std::fs::remove_file(&upload.journal)?;
    let seal = Seal::get(bucket, storage).await?;
    refuse_damaged(bucket, upload).await?;
    Ok(seal.ok_or("no seal")?)
}

/// Nothing remains of the upload of a damaged file, under another id.
async fn refuse_damaged(bucket: &Bucket, mut upload: Upload) -> Outcome {
    let storage = StorageId::new(upload.storage.unix_millis(), [7; 10]);
    upload.storage = storage;
    upload.large[0].checksum = Some(1);
    let journal = upload.journal.clone();
    let error = object_tier::upload(bucket, upload, |_| ()).await;
    println!("a damaged file: {:?}", error.err());
    let left = bucket.list_all(&format!("s/{storage}")).await?;
    assert!(left.is_empty(), "{left:?}");
    std::fs::remove_file(journal)?;
    Ok(())
}

async fn read(bucket: &Bucket, seal: &Seal, path: &Path) -> Outcome {
    let begun = Instant::now();
    let heads = Heads::get(bucket, seal).await?;
    report("heads", begun, 0);
    let begun = Instant::now();
    let problems = object_tier::verify_storage(bucket, seal, &heads, |_| ()).await?;
    let file = &seal.files[0];
    report("verify", begun, file.length);
    assert!(problems.is_empty(), "{problems:?}");
    let reader = Reader::new(bucket.clone());
    let begun = Instant::now();
    let whole = reader.fetch(&file.key, 0..file.length).await?;
    report("whole file", begun, file.length);
    assert!(whole == std::fs::read(path)?, "the file is another one");
    let begun = Instant::now();
    for n in 0..100 {
        let at = file.length / 100 * n;
        reader.fetch(&file.key, at..at + 4096).await?;
    }
    println!("4 KiB: {:?} each", begun.elapsed() / 100);
    let begun = Instant::now();
    let reads = (0..16).map(|n| {
        let at = file.length / 16 * n;
        reader.fetch(&file.key, at..at + 4096)
    });
    futures_util::future::try_join_all(reads).await?;
    println!("16 × 4 KiB at once: {:?}", begun.elapsed());
    let error = reader
        .fetch(&file.key, file.length - 1..file.length + 9)
        .await;
    println!("a range behind the end: {error:?}");
    let error = reader.fetch(&file.key, file.length..file.length + 9).await;
    println!("another one: {error:?}");
    let error = reader.fetch(&format!("{}x", file.key), 0..9).await;
    println!("no such object: {error:?}");
    Ok(())
}

async fn change(bucket: &Bucket, storage: StorageId) -> Outcome {
    let record = LabelRecord {
        number: 0,
        name: "a name".into(),
        description: String::new(),
        labels: BTreeMap::from([("run".into(), "1".into())]),
    };
    let changes =
        (0..8).map(|_| object_tier::change_labels(bucket, storage, 0, record.clone(), NODE));
    let begun = Instant::now();
    let stored = futures_util::future::try_join_all(changes).await?;
    let numbers: Vec<_> = stored.iter().map(|record| record.number).collect();
    println!(
        "8 changes of labels at once: {:?}, {numbers:?}",
        begun.elapsed()
    );
    let latest = object_tier::latest_labels(bucket, storage, 0).await?;
    println!("latest: {latest:?}");
    let sealed = object_tier::sealed_since(bucket, None).await?;
    println!("sealed: {sealed:?}");
    let from = sealed.first().map(|(hour, _)| hour.clone());
    println!(
        "from that hour: {:?}",
        object_tier::sealed_since(bucket, from).await?
    );
    println!(
        "hints that were repaired: {}",
        object_tier::repair_hints(bucket).await?
    );
    let seal = Seal::get(bucket, storage).await?.ok_or("no seal")?;
    let now = i64::MAX / 2;
    let grace = Duration::from_secs(3600);
    bucket
        .put(&format!("s/{storage}/f/x"), Bytes::new())
        .await?;
    let young = object_tier::collect_unnamed(bucket, storage, &seal, grace, now).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let grace = Duration::from_secs(2);
    let old = object_tier::collect_unnamed(bucket, storage, &seal, grace, now).await?;
    println!("collected: {young:?}, then {old:?}");
    Ok(())
}
