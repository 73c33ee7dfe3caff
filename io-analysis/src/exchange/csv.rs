//! An I/O trace as CSV with a header line (RFC 4180).

use std::fmt::Write as _;

use crate::io::IoAccess;
use crate::result_file::quoted;

/// The header line.
pub const IO_CSV_HEADING: &str =
    "start_ns,latency_ns,operation,direction,class,cause,file,offset,len,failed,request\n";

/// Appends the row of one operation to `out`.
pub fn put_io_csv(out: &mut String, access: &IoAccess<'_>) {
    let text = |bytes: &[u8]| quoted(&String::from_utf8_lossy(bytes));
    let number = |value: Option<u64>| value.map(|value| value.to_string()).unwrap_or_default();
    writeln!(
        out,
        "{},{},{},{},{},{},{},{},{},{},{}",
        access.start_ns,
        access.latency_ns,
        text(access.operation),
        access.direction.name(),
        quoted(access.class),
        text(access.cause),
        text(access.file),
        number(access.offset),
        number(access.len),
        u8::from(access.failed),
        text(access.request.unwrap_or_default()),
    )
    .expect("writing to a string cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::Direction;

    #[test]
    fn a_row_with_everything() {
        let access = IoAccess {
            start_ns: -5,
            latency_ns: 7,
            operation: b"Read",
            direction: Direction::Read,
            file: b"a,\"b\".sst",
            class: "sst",
            cause: b"query",
            offset: Some(1),
            len: None,
            failed: true,
            request: Some(b"r\n1"),
        };
        let mut out = String::new();
        put_io_csv(&mut out, &access);
        assert_eq!(
            out,
            "-5,7,Read,read,sst,query,\"a,\"\"b\"\".sst\",1,,1,\"r\n1\"\n"
        );
        assert_eq!(IO_CSV_HEADING.split(',').count(), 11);
    }
}
