//! One suite for every implementation of [`BlockIo`].

use std::{future::Future, os::unix::fs::MetadataExt, path::Path, sync::Arc, task::Poll};

use super::{
    BLOCK_BYTES, BUFFER_BYTES, BlockIo, BlockingIo, OpenHow, TracedIo,
    faulty::{FaultPlan, FaultyIo},
    uring::{self, UringIo},
};

const BUFFER_COUNT: usize = 4;

fn pattern(seed: u8, length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| (at as u8).wrapping_mul(31) ^ seed)
        .collect()
}

/// Writes `bytes` in pieces of a buffer and checks every length.
async fn write<B: BlockIo>(io: &B, file: &B::File, bytes: &[u8], offset: u64) {
    for (at, piece) in bytes.chunks(BUFFER_BYTES).enumerate() {
        let mut buffer = io.buffer().await;
        assert_eq!(buffer.len(), BUFFER_BYTES);
        assert_eq!(
            buffer.as_ptr().align_offset(BLOCK_BYTES),
            0,
            "buffers are aligned"
        );
        buffer[..piece.len()].copy_from_slice(piece);
        let to = offset + (at * BUFFER_BYTES) as u64;
        let (written, _) = io.write_at(file, buffer, 0..piece.len(), to).await;
        assert_eq!(written.unwrap(), piece.len());
    }
}

async fn data_is_written_where_it_belongs<B: BlockIo>(io: &B, folder: &Path) {
    let path = folder.join("data");
    let file = io.open(&path, OpenHow::CreateData).await.unwrap();
    let exists = io.open(&path, OpenHow::CreateData).await.err().unwrap();
    assert_eq!(exists.kind(), std::io::ErrorKind::AlreadyExists);
    let bytes = pattern(1, 3 * BUFFER_BYTES);
    write(io, &file, &bytes, 0).await;
    write(io, &file, &pattern(2, BLOCK_BYTES), BLOCK_BYTES as u64).await;
    io.sync_data(&file).await.unwrap();
    io.close(file).await.unwrap();
    let mut expected = bytes;
    expected[BLOCK_BYTES..2 * BLOCK_BYTES].copy_from_slice(&pattern(2, BLOCK_BYTES));
    assert_eq!(std::fs::read(&path).unwrap(), expected);
}

async fn part_of_a_buffer_can_be_written<B: BlockIo>(io: &B, folder: &Path) {
    let path = folder.join("part");
    let file = io.open(&path, OpenHow::CreateData).await.unwrap();
    let mut buffer = io.buffer().await;
    buffer.copy_from_slice(&pattern(3, BUFFER_BYTES));
    let range = BLOCK_BYTES..3 * BLOCK_BYTES;
    let (written, buffer) = io.write_at(&file, buffer, range.clone(), 0).await;
    assert_eq!(written.unwrap(), 2 * BLOCK_BYTES);
    assert_eq!(
        buffer[..],
        pattern(3, BUFFER_BYTES),
        "the buffer comes back as it was"
    );
    io.sync_data(&file).await.unwrap();
    assert_eq!(
        std::fs::read(&path).unwrap(),
        pattern(3, BUFFER_BYTES)[range]
    );
    io.close(file).await.unwrap();
}

async fn space_is_reserved_as_zeros_and_cut<B: BlockIo>(io: &B, folder: &Path) {
    let path = folder.join("space");
    let file = io.open(&path, OpenHow::CreateData).await.unwrap();
    io.allocate(&file, 0, 8 * BLOCK_BYTES as u64).await.unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), vec![0; 8 * BLOCK_BYTES]);
    write(io, &file, &pattern(4, BLOCK_BYTES), 0).await;
    io.set_length(&file, 1000).await.unwrap();
    io.sync_data(&file).await.unwrap();
    io.close(file).await.unwrap();
    assert_eq!(
        std::fs::read(&path).unwrap(),
        pattern(4, BLOCK_BYTES)[..1000]
    );
    let again = io.open(&path, OpenHow::OpenData).await.unwrap();
    write(io, &again, &pattern(5, BLOCK_BYTES), BLOCK_BYTES as u64).await;
    io.close(again).await.unwrap();
    assert_eq!(
        std::fs::metadata(&path).unwrap().len(),
        2 * BLOCK_BYTES as u64
    );
}

async fn small_files_replace_each_other_by_rename<B: BlockIo>(io: &B, folder: &Path) {
    let (new, place) = (folder.join("small.tmp"), folder.join("small"));
    for (seed, length) in [(6, 10), (7, BUFFER_BYTES + 333), (8, 5)] {
        let file = io.open(&new, OpenHow::CreateSmall).await.unwrap();
        write(io, &file, &pattern(seed, length), 0).await;
        io.sync_data(&file).await.unwrap();
        io.close(file).await.unwrap();
        io.rename(&new, &place).await.unwrap();
        io.sync_folder(folder).await.unwrap();
        assert_eq!(std::fs::read(&place).unwrap(), pattern(seed, length));
        assert!(!new.exists());
    }
    let inode = std::fs::metadata(&place).unwrap().ino();
    assert!(io.rename(&folder.join("none"), &place).await.is_err());
    assert_eq!(
        std::fs::metadata(&place).unwrap().ino(),
        inode,
        "a refusal changes nothing"
    );
}

async fn buffers_are_waited_for<B: BlockIo>(io: &B) {
    let mut taken = Vec::new();
    for _ in 0..BUFFER_COUNT {
        taken.push(io.buffer().await);
    }
    let next = io.buffer();
    tokio::pin!(next);
    let now = std::future::poll_fn(|context| Poll::Ready(next.as_mut().poll(context).is_pending()));
    assert!(now.await, "there are no more than configured");
    taken.pop();
    next.await;
}

async fn failures_are_reported<B: BlockIo>(io: &B, folder: &Path) {
    assert!(
        io.open(&folder.join("none"), OpenHow::OpenData)
            .await
            .is_err()
    );
    assert!(
        io.open(&folder.join("none/file"), OpenHow::CreateData)
            .await
            .is_err()
    );
    assert!(io.sync_folder(&folder.join("none")).await.is_err());
}

async fn files_without_a_name_are_noticed<B: BlockIo>(io: &B, folder: &Path) {
    let path = folder.join("removed");
    let file = io.open(&path, OpenHow::CreateData).await.unwrap();
    assert_eq!(io.link_count(&file).unwrap(), 1);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(io.link_count(&file).unwrap(), 0);
}

async fn conform<B: BlockIo>(io: B) {
    let folder = tempfile::tempdir().unwrap();
    data_is_written_where_it_belongs(&io, folder.path()).await;
    part_of_a_buffer_can_be_written(&io, folder.path()).await;
    space_is_reserved_as_zeros_and_cut(&io, folder.path()).await;
    small_files_replace_each_other_by_rename(&io, folder.path()).await;
    files_without_a_name_are_noticed(&io, folder.path()).await;
    failures_are_reported(&io, folder.path()).await;
    buffers_are_waited_for(&io).await;
}

#[tokio::test]
async fn blocking_io_conforms() {
    conform(BlockingIo::new(BUFFER_COUNT)).await;
}

#[tokio::test]
async fn faulty_io_without_a_fault_conforms() {
    conform(FaultyIo::new(
        BlockingIo::new(BUFFER_COUNT),
        Arc::<FaultPlan>::default(),
    ))
    .await;
}

#[tokio::test]
async fn traced_io_conforms_on_and_off() {
    for is_on in [false, true] {
        let tracer = Arc::<io_trace::Tracer>::default();
        if is_on {
            tracer.start(io_trace::Settings::default()).unwrap();
        }
        let io = BlockingIo::new(BUFFER_COUNT);
        conform(TracedIo::new(io, Arc::clone(&tracer))).await;
        let mut records = io_trace::Records::default();
        tracer.drain(&mut records);
        assert_eq!(records.is_empty(), !is_on);
    }
}

#[test]
fn io_uring_conforms() {
    if let Err(error) = uring::probe() {
        println!("skipped: the kernel refuses io_uring here ({error})");
        return;
    }
    uring::run(async { conform(UringIo::new(BUFFER_COUNT).unwrap()).await });
}
