//! The bytes of a connection, of HTTP/1 or HTTP/2, in pieces: what is found in them does not depend
//! on how they arrive. The first byte is the number of cuts; the bytes after it are the lengths of
//! the pieces.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((&count, rest)) = input.split_first() else {
        return;
    };
    let (cuts, bytes) = rest.split_at(rest.len().min(usize::from(count)));
    server::fuzzing::inspect_connection(bytes, cuts);
});
