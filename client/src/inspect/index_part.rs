//! Prints index parts, leaf by leaf.

use std::io::Write;

use serde_json::{Value, json};
use storage_format::StreamPosition;
use storage_format::index_part::{
    ArrayBlock, DataFileEntry, Extent, Footer, IndexPartHeader, LeafEntry, LogPosition,
    PacketEntry, TRAILER_BYTES, TimeBases, Trailer,
};

use super::{InspectError, Inspection, damaged, facts, hex, leaf_path};

impl<W: Write> Inspection<'_, W> {
    pub(super) fn index_part(&mut self, header: &IndexPartHeader) -> Result<bool, InspectError> {
        let damage = |error| damaged(self.path, &error);
        let start = self.length.saturating_sub(TRAILER_BYTES as u64);
        let bytes = self.read_at(start, TRAILER_BYTES)?;
        let trailer = Trailer::decode(&bytes, self.length, header.storage).map_err(damage)?;
        let bytes = self.read_at(trailer.footer_offset, trailer.footer_length as usize)?;
        let footer = Footer::decode(&bytes, &trailer).map_err(damage)?;
        let bases = footer.bases.clone();
        let length = usize::try_from(bases.end - bases.start).unwrap_or(usize::MAX);
        let bytes = self.read_at(bases.start, length)?;
        let bases = TimeBases::decode(&bytes, bases.start).map_err(damage)?;
        let head = json!({
            "storage": header.storage, "ordinal": header.ordinal,
            "first_ordinal": header.first_ordinal, "created": header.created,
        });
        write!(self.out, r#"{{"role":"index","header":{head}"#)?;
        if trailer.version > 1 {
            self.out.write_all(br#","files":["#)?;
            for (number, entry) in footer.files.iter().enumerate() {
                self.put_comma(number > 0)?;
                self.put(&data_file(entry))?;
            }
            let position = footer.position.as_ref().map(log_position);
            write!(self.out, r#"],"position":{}"#, json!(position))?;
        }
        self.out.write_all(br#","leaves":["#)?;
        let mut is_whole = true;
        for (number, entry) in footer.leaves.iter().enumerate() {
            self.put_comma(number > 0)?;
            is_whole &= self.leaf(entry, &bases)?;
        }
        self.out.write_all(b"]}\n")?;
        Ok(is_whole)
    }

    fn leaf(&mut self, entry: &LeafEntry, bases: &TimeBases) -> Result<bool, InspectError> {
        let range = entry.block_range();
        let length = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        let block = self.read_at(range.start, length)?;
        let checked = entry.check_block(&block).and_then(|()| {
            let packets = ArrayBlock::new(entry.entries_in(&block), bases)?;
            Ok((packets, entry.extents_in(&block)?))
        });
        self.put_open_object(&leaf(entry))?;
        self.out.write_all(br#","packets":["#)?;
        let mut damage = checked.as_ref().err().cloned();
        if let Ok((packets, _)) = &checked {
            for index in 0..packets.len() {
                self.put_comma(index > 0)?;
                match packets.get(index) {
                    Ok(entry) => self.put(&packet(&entry))?,
                    Err(error) => {
                        self.put(&Value::Null)?;
                        damage.get_or_insert(error);
                    }
                }
            }
        }
        self.out.write_all(b"]")?;
        if let (Ok((_, extents)), 1..) = (&checked, entry.block_extents) {
            self.out.write_all(br#","extents":["#)?;
            for (index, found) in extents.iter().enumerate() {
                self.put_comma(index > 0)?;
                self.put(&extent(found))?;
            }
            self.out.write_all(b"]")?;
        }
        self.close_object(damage.map(|error| error.to_string()))
    }
}

fn data_file(entry: &DataFileEntry) -> Value {
    json!({
        "file": entry.file.to_string(), "length": entry.length, "checksum": hex(entry.checksum),
    })
}

fn log_position(position: &LogPosition) -> Value {
    json!({
        "file": position.file.to_string(), "offset": position.offset, "batch": position.batch,
        "chain": hex(position.chain),
    })
}

fn extent(extent: &Extent) -> Value {
    json!({
        "leaf_offset": extent.leaf_offset, "file": extent.file.to_string(),
        "offset": extent.offset, "length": extent.length,
    })
}

fn leaf(entry: &LeafEntry) -> Value {
    json!({
        "leaf": entry.leaf.to_string(), "leaf_type": entry.leaf_type,
        "path": leaf_path(&entry.path),
        "covered": { "from": entry.covered.start, "to": entry.covered.end },
        "covered_checksum": hex(entry.covered_checksum), "totals": entry.totals,
        "numbers": {
            "first": entry.numbers.first, "last": entry.numbers.last,
            "first_sequence": pair(entry.numbers.first_position),
            "last_sequence": pair(entry.numbers.last_position),
        },
    })
}

fn pair(position: StreamPosition) -> [u64; 2] {
    [position.epoch, position.sequence]
}

fn packet(entry: &PacketEntry) -> Value {
    json!({
        "number": entry.number, "offset": entry.offset, "stored_size": entry.stored_size,
        "raw_size": entry.raw_size,
        "epoch": entry.position.epoch, "sequence": entry.position.sequence,
        "codec": entry.codec, "raw_checksum": hex(entry.raw_checksum),
        "facts": facts(&entry.facts),
    })
}
