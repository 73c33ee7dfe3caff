//! Writes a small trace into a folder, which `babeltrace2 FOLDER` can read.
//!
//! `cargo run -p ctf --example write -- FOLDER [ctf-2]`

use std::error::Error;
use std::path::PathBuf;

use ctf::class::ClockClass;
use ctf::write::{FieldType, FieldValue, PacketWriter, Schema};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(
        arguments
            .next()
            .ok_or("the folder to write into is missing")?,
    );
    let is_ctf_2 = arguments.next().is_some_and(|version| version == "ctf-2");

    let mut schema = Schema::new(
        uuid::Uuid::from_u128(0x7261_6365_686f_6c64),
        ClockClass::new("utc"),
    );
    schema.environment("domain", "example")?;
    let labels = vec![("hit".to_string(), 0), ("miss".to_string(), 1)];
    let read = schema.event(
        "read",
        [
            ("path", FieldType::Text),
            ("bytes", FieldType::Unsigned { bits: 64 }),
            ("result", FieldType::Signed { bits: 32 }),
            ("cache", FieldType::Enumeration { bits: 8, labels }),
            ("direct", FieldType::Bool),
            ("seconds", FieldType::Float),
            ("head", FieldType::Bytes),
        ],
    )?;

    let mut stream = Vec::new();
    let mut writer = PacketWriter::new(&schema, 0);
    let begin = 1_795_240_026_000_000_000;
    for number in 0..100_u64 {
        let values = [
            FieldValue::Text("/var/lib/data"),
            FieldValue::Unsigned(number * 512),
            FieldValue::Signed(-5),
            FieldValue::Unsigned(number % 2),
            FieldValue::Bool(number % 3 == 0),
            FieldValue::Float(0.25),
            FieldValue::Bytes(&number.to_le_bytes()),
        ];
        writer.event(read, begin + number * 1_000, &values)?;
        if writer.len() > 4096 {
            stream.extend(writer.finish(0));
        }
    }
    stream.extend(writer.finish(0));

    std::fs::create_dir_all(&folder)?;
    let metadata = if is_ctf_2 {
        schema.metadata()
    } else {
        schema.tsdl().into_bytes()
    };
    std::fs::write(folder.join("metadata"), metadata)?;
    std::fs::write(folder.join("stream"), stream)?;
    Ok(())
}
