//! Columns of a table.

use serde::{Deserialize, Serialize};

/// The column by which tables are partitioned; its values are in no file.
pub(super) const STORAGE: &str = "storage";

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeltaType {
    /// 64 bits, with a sign.
    Long,
    /// A float of 64 bits.
    Double,
    /// True or false.
    Boolean,
    /// Text in UTF-8.
    String,
    /// A time in UTC. Readers take it in microseconds.
    Timestamp,
}

/// A column, which may be null in any row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeltaColumn {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: DeltaType,
}

/// The columns of the files of a table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeltaSchema(pub Vec<DeltaColumn>);

/// The schema as the log has it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Struct {
    #[serde(rename = "type")]
    kind: StructType,
    fields: Vec<Field>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StructType {
    Struct,
}

#[derive(Debug, Serialize, Deserialize)]
struct Field {
    name: String,
    /// A word, or the object of a type that is not written here.
    #[serde(rename = "type")]
    kind: serde_json::Value,
    nullable: bool,
    #[serde(default)]
    metadata: serde_json::Map<String, serde_json::Value>,
}

impl DeltaSchema {
    /// The schema as text, with the column of the partition.
    pub(super) fn text(&self) -> String {
        let storage = DeltaColumn {
            name: STORAGE.to_owned(),
            kind: DeltaType::String,
        };
        let fields = self.0.iter().chain([&storage]).map(|column| Field {
            name: column.name.clone(),
            kind: serde_json::json!(column.kind),
            nullable: true,
            metadata: serde_json::Map::new(),
        });
        let schema = Struct {
            kind: StructType::Struct,
            fields: fields.collect(),
        };
        serde_json::json!(schema).to_string()
    }

    /// What a table lacks to take files with these columns, or has of another type.
    pub(super) fn missing_in(&self, text: &str) -> Result<(), String> {
        let found: Struct = serde_json::from_str(text)
            .map_err(|error| format!("its schema cannot be read: {error}"))?;
        for column in &self.0 {
            let kind = serde_json::json!(column.kind);
            match found.fields.iter().find(|field| field.name == column.name) {
                Some(field) if field.kind == kind => {}
                Some(field) => {
                    let (name, found) = (&column.name, &field.kind);
                    return Err(format!(
                        "its column `{name}` has the type {found} instead of {kind}; choose another \
                         prefix"
                    ));
                }
                None => {
                    let name = &column.name;
                    return Err(format!("it has no column `{name}`; choose another prefix"));
                }
            }
        }
        Ok(())
    }
}
