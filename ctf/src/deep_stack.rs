//! Stacks for recursive functions over deeply nested classes.

use std::panic::resume_unwind;
use std::thread;

use crate::class::PLAIN_DEPTH_MAX;
use crate::integer::usize_from;

/// Bytes of stack for a level of nesting, more than any recursive function of this crate needs,
/// also without optimization. Memory is used only as far as the recursion goes.
const LEVEL_BYTES: usize = 32 << 10;

/// Runs `work`, which recurses as deeply as classes of `depth` levels nest, on the stack of the
/// caller or on a larger one. Returns `None` when no thread can be started.
pub(crate) fn run_deep<T: Send>(depth: u32, work: impl FnOnce() -> T + Send) -> Option<T> {
    if depth <= PLAIN_DEPTH_MAX {
        return Some(work());
    }
    let bytes = usize_from(depth).saturating_mul(LEVEL_BYTES);
    thread::scope(|scope| {
        let builder = thread::Builder::new().stack_size(bytes);
        let worker = builder.spawn_scoped(scope, work).ok()?;
        Some(worker.join().unwrap_or_else(|panic| resume_unwind(panic)))
    })
}
