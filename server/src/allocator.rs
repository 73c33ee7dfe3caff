//! The allocator of the server.

use libmimalloc_sys::{mi_option_set_default, mi_option_t};
use mimalloc::MiMalloc;

/// Every request allocates and frees buffers of packet size. The allocator of the C library returns
/// such memory to the kernel each time and faults it in again.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// `mi_option_purge_delay`, which the bindings do not name.
const PURGE_DELAY: mi_option_t = 15;
/// How long freed pages are kept for the next allocation, ms. The default of a second keeps what
/// many threads free in turns: half of the resident set under load.
const PURGE_DELAY_MS: i64 = 10;

/// Returns freed memory to the kernel soon, unless `MIMALLOC_PURGE_DELAY` in the environment says
/// how soon.
#[expect(
    unsafe_code,
    reason = "the option of a C library; it only stores the number"
)]
pub(crate) fn return_memory_soon() {
    // SAFETY: the option exists, and any number is a delay. Called before other threads start.
    unsafe { mi_option_set_default(PURGE_DELAY, PURGE_DELAY_MS) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(unsafe_code, reason = "reads the option of a C library")]
    fn the_option_is_the_purge_delay() {
        // SAFETY: only reads a number.
        let get = || unsafe { libmimalloc_sys::mi_option_get(PURGE_DELAY) };
        assert_eq!(
            get(),
            1000,
            "the default: the number is that of another option"
        );
        return_memory_soon();
        assert_eq!(get(), PURGE_DELAY_MS);
    }
}
