//! The `tracehold` command.

use std::process::ExitCode;

/// In static programs: the allocator of their C library has one lock for all threads.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    client::command::main(std::env::args_os())
}
