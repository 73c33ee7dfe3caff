//! A checkpoint of a Delta Lake table: its actions as a Parquet file with a column for each kind of
//! action, as the protocol of the format describes it (github.com/delta-io/delta).

use std::io;
use std::sync::Arc;

use arrow_array::builder::{
    ListBuilder, MapBuilder, MapFieldNames, NullBufferBuilder, StringBuilder,
};
use arrow_array::{
    ArrayRef, BooleanArray, Int32Array, Int64Array, RecordBatch, StringArray, StructArray,
};
use arrow_schema::{DataType, Field, Fields, Schema};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use serde_json::Value;

/// What a column contains.
enum Shape {
    Text,
    Long,
    Int,
    Flag,
    /// Texts by text.
    Map,
    /// Texts.
    List,
    Struct(&'static [(&'static str, Shape)]),
}

use Shape::{Flag, Int, List, Long, Map, Struct, Text};

/// The actions that a checkpoint has, and their members.
const ACTIONS: &[(&str, Shape)] = &[
    (
        "txn",
        Struct(&[("appId", Text), ("version", Long), ("lastUpdated", Long)]),
    ),
    (
        "add",
        Struct(&[
            ("path", Text),
            ("partitionValues", Map),
            ("size", Long),
            ("modificationTime", Long),
            ("dataChange", Flag),
            ("tags", Map),
            ("stats", Text),
        ]),
    ),
    (
        "remove",
        Struct(&[
            ("path", Text),
            ("deletionTimestamp", Long),
            ("dataChange", Flag),
            ("extendedFileMetadata", Flag),
            ("partitionValues", Map),
            ("size", Long),
        ]),
    ),
    (
        "metaData",
        Struct(&[
            ("id", Text),
            ("name", Text),
            ("description", Text),
            ("format", Struct(&[("provider", Text), ("options", Map)])),
            ("schemaString", Text),
            ("partitionColumns", List),
            ("configuration", Map),
            ("createdTime", Long),
        ]),
    ),
    (
        "protocol",
        Struct(&[("minReaderVersion", Int), ("minWriterVersion", Int)]),
    ),
];

/// Writes actions, each an object with one member as in a commit, as the Parquet file of a
/// checkpoint.
///
/// # Errors
/// When an action is none that a checkpoint has.
pub fn write_delta_checkpoint(actions: &[Value]) -> io::Result<Vec<u8>> {
    let is_known = |action: &&Value| ACTIONS.iter().any(|(name, _)| action.get(name).is_some());
    if let Some(unknown) = actions.iter().find(|action| !is_known(action)) {
        let what = format!("an action that no checkpoint has: {unknown:.80}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    let rows: Vec<_> = actions.iter().map(Some).collect();
    let (fields, columns) = members(ACTIONS, &rows)?;
    let schema = Arc::new(Schema::new(fields));
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns).map_err(io::Error::other)?;
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY);
    let mut writer = ArrowWriter::try_new(Vec::new(), schema, Some(properties.build()))?;
    writer.write(&batch)?;
    Ok(writer.into_inner()?)
}

/// The columns with the members of `rows`.
fn members(of: &[(&str, Shape)], rows: &[Option<&Value>]) -> io::Result<(Fields, Vec<ArrayRef>)> {
    let mut columns = Vec::with_capacity(of.len());
    let mut fields = Vec::with_capacity(of.len());
    for (name, shape) in of {
        let found = rows.iter().map(|row| row.and_then(|row| row.get(name)));
        let found = found.map(|value| value.filter(|value| !value.is_null()));
        let column = column(shape, &found.collect::<Vec<_>>())?;
        fields.push(Field::new(*name, column.data_type().clone(), true));
        columns.push(column);
    }
    Ok((Fields::from(fields), columns))
}

fn column(shape: &Shape, rows: &[Option<&Value>]) -> io::Result<ArrayRef> {
    let rows_of = || rows.iter().copied();
    Ok(match shape {
        Text => {
            let texts = rows_of().map(|row| row.and_then(Value::as_str));
            Arc::new(StringArray::from_iter(texts))
        }
        Long => {
            let numbers = rows_of().map(|row| row.and_then(Value::as_i64));
            Arc::new(Int64Array::from_iter(numbers))
        }
        Int => {
            let number = |row: Option<&Value>| i32::try_from(row?.as_i64()?).ok();
            Arc::new(Int32Array::from_iter(rows_of().map(number)))
        }
        Flag => {
            let flags = rows_of().map(|row| row.and_then(Value::as_bool));
            Arc::new(BooleanArray::from_iter(flags))
        }
        Map => texts_by_text(rows)?,
        List => {
            let element = Field::new("element", DataType::Utf8, true);
            let mut lists = ListBuilder::new(StringBuilder::new()).with_field(element);
            for row in rows {
                let texts = row.and_then(Value::as_array);
                for text in texts.into_iter().flatten() {
                    lists.values().append_option(text.as_str());
                }
                lists.append(texts.is_some());
            }
            Arc::new(lists.finish())
        }
        Struct(of) => {
            let (fields, columns) = members(of, rows)?;
            let mut present = NullBufferBuilder::new(rows.len());
            rows.iter().for_each(|row| present.append(row.is_some()));
            let made = StructArray::try_new(fields, columns, present.finish());
            Arc::new(made.map_err(io::Error::other)?)
        }
    })
}

fn texts_by_text(rows: &[Option<&Value>]) -> io::Result<ArrayRef> {
    let names = MapFieldNames {
        entry: "key_value".to_owned(),
        key: "key".to_owned(),
        value: "value".to_owned(),
    };
    let (keys, values) = (StringBuilder::new(), StringBuilder::new());
    let mut maps = MapBuilder::new(Some(names), keys, values);
    for row in rows {
        let members = row.and_then(Value::as_object);
        for (key, value) in members.into_iter().flatten() {
            maps.keys().append_value(key);
            maps.values().append_option(value.as_str());
        }
        maps.append(members.is_some()).map_err(io::Error::other)?;
    }
    Ok(Arc::new(maps.finish()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_actions_of_checkpoints_are_written() {
        let protocol = json!({ "protocol": { "minReaderVersion": 1, "minWriterVersion": 2 } });
        let written = write_delta_checkpoint(std::slice::from_ref(&protocol)).unwrap();
        assert!(written.starts_with(b"PAR1") && written.ends_with(b"PAR1"));
        let info = json!({ "commitInfo": { "operation": "WRITE" } });
        let refused = write_delta_checkpoint(&[protocol, info]).unwrap_err();
        assert!(refused.to_string().contains("commitInfo"), "{refused}");
    }
}
