//! Label types, and the labels of a storage.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use http::{HeaderMap, StatusCode, Uri};
use query_language::time::rfc3339;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use storage_core::{LabelFilter, LabelTypeInfo, LabelValue, StorageError, StorageLabel};
use storage_format::StorageId;
use storage_format::label_file::{LabelType, VALUE_SEPARATOR, ValueType};
use utoipa::{IntoParams, ToSchema};

use super::json::read_json;
use super::page::{Page, malformed, query};
use super::refusals::{BadRequest, Conflict, NotFound};
use crate::app_state::AppState;
use crate::problem::Problem;
use crate::tier::change_everywhere;

/// A label type.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct LabelTypeDocument {
    name: String,
    /// `boolean`, `number`, `date`, `string` or `time_frame`.
    #[schema(value_type = String)]
    value_type: ValueType,
    /// Whether one storage may have several values of it.
    several: bool,
    /// Whether it is predefined.
    predefined: bool,
    /// Whether it was declared; otherwise its values are text.
    declared: bool,
    /// Number of storages with such a label.
    storages: u64,
    /// Suggested values: those in use, and those retained for the type.
    values: Vec<LabelValueDocument>,
}

/// A suggested value.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct LabelValueDocument {
    value: String,
    /// Number of storages with this value.
    storages: u64,
    /// Whether it is retained even if no storage has it.
    kept: bool,
}

impl From<LabelTypeInfo> for LabelTypeDocument {
    fn from(info: LabelTypeInfo) -> Self {
        let mut values: BTreeMap<String, (u64, bool)> = info
            .in_use
            .into_iter()
            .map(|(value, storages)| (value, (storages, false)))
            .collect();
        for value in info.label_type.values {
            values.entry(value).or_default().1 = true;
        }
        let values = values.into_iter();
        Self {
            name: info.label_type.name,
            value_type: info.label_type.value_type,
            several: info.label_type.several,
            predefined: info.is_predefined,
            declared: info.is_declared,
            storages: info.storages,
            values: values
                .map(|(value, (storages, kept))| LabelValueDocument {
                    value,
                    storages,
                    kept,
                })
                .collect(),
        }
    }
}

/// The declaration of a label type.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct LabelTypeDeclaration {
    /// `boolean`, `number`, `date`, `string` or `time_frame`; by default that of the existing type,
    /// or `string`.
    #[schema(value_type = Option<String>)]
    value_type: Option<ValueType>,
    /// Whether one storage may have several values of it.
    several: Option<bool>,
    /// Values to retain as suggestions; by default those of the existing type.
    #[schema(value_type = Option<Vec<Object>>)]
    values: Option<Vec<Value>>,
}

/// A label of a storage.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct LabelDocument {
    /// Name of its type.
    #[serde(rename = "type")]
    #[schema(rename = "type")]
    name: String,
    /// `boolean`, `number`, `date`, `string` or `time_frame`.
    #[schema(value_type = String)]
    value_type: ValueType,
    /// Whether it may have several values.
    several: bool,
    /// Whether the server sets it, so that it cannot be changed.
    read_only: bool,
    /// The same as `read_only`, for clients of earlier versions.
    told: bool,
    /// Booleans and numbers as such, dates and text as strings, time frames as `begin` and `end`.
    #[schema(value_type = Vec<Object>)]
    values: Vec<Value>,
}

impl From<StorageLabel> for LabelDocument {
    fn from(label: StorageLabel) -> Self {
        Self {
            name: label.name,
            value_type: label.value_type,
            several: label.several,
            read_only: label.is_read_only,
            told: label.is_read_only,
            values: label.values.into_iter().map(json).collect(),
        }
    }
}

fn json(value: LabelValue) -> Value {
    match value {
        LabelValue::Boolean(value) => value.into(),
        LabelValue::Number(value) => number(value),
        LabelValue::TimeFrame(begin, end) => {
            serde_json::json!({ "begin": rfc3339(begin), "end": rfc3339(end) })
        }
        other => other.text().into(),
    }
}

/// Integers are written without a fraction: 4, not 4.0.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the condition admits only integers that an i64 represents exactly"
)]
fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 1e15 {
        (value as i64).into()
    } else {
        value.into()
    }
}

/// A label to add to a storage.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LabelAddition {
    /// Name of its type.
    #[serde(rename = "type")]
    #[schema(rename = "type")]
    name: String,
    /// The value, or a list of values.
    #[schema(value_type = Object)]
    value: Value,
}

/// The new values of a label.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct LabelValues {
    /// The value, or a list of values.
    #[schema(value_type = Object)]
    value: Value,
}

/// What to remove.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct LabelRemoval {
    /// Only this value.
    value: Option<String>,
}

/// How to delete a label type or a value.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct LabelDeletion {
    /// `true`: remove it from all storages first. Otherwise it cannot be deleted while a storage
    /// has it.
    remove: Option<bool>,
}

/// Converts labels from JSON to the texts that the engine uses.
pub(super) fn to_texts(
    labels: BTreeMap<String, Value>,
) -> Result<BTreeMap<String, String>, Problem> {
    let labels = labels.into_iter().map(|(name, value)| {
        let texts = value_texts(value)?;
        Ok((name, texts.join(&VALUE_SEPARATOR.to_string())))
    });
    labels.collect()
}

/// Converts labels to JSON: a text, or a list if there are several values.
pub(super) fn to_json(labels: BTreeMap<String, String>) -> BTreeMap<String, Value> {
    let labels = labels.into_iter().map(|(name, text)| {
        let mut values = text.split(VALUE_SEPARATOR).map(Value::from);
        let value = if text.contains(VALUE_SEPARATOR) {
            Value::Array(values.collect())
        } else {
            values.next().unwrap_or_default()
        };
        (name, value)
    });
    labels.collect()
}

fn value_texts(value: Value) -> Result<Vec<String>, Problem> {
    let text = match value {
        Value::String(text) => text,
        Value::Number(number) => number.to_string(),
        Value::Bool(value) => value.to_string(),
        Value::Array(values) => {
            let nested: Result<Vec<_>, _> = values.into_iter().map(value_texts).collect();
            return Ok(nested?.into_iter().flatten().collect());
        }
        Value::Null | Value::Object(_) => {
            return Err(invalid_value(
                "must be a string, a number, a boolean, or a list of them",
            ));
        }
    };
    if text.contains(VALUE_SEPARATOR) {
        Err(invalid_value("must not have control characters"))
    } else {
        Ok(vec![text])
    }
}

fn invalid_value(problem: &str) -> Problem {
    Problem::from(StorageError::Invalid {
        what: "the value of a label",
        problem: problem.to_owned(),
    })
}

/// Lists the label types with suggested values.
#[utoipa::path(
    get, operation_id = "list_label_types", path = "/label-types", tag = "labels",
    responses((status = 200, body = Page<LabelTypeDocument>, description = "All label types")),
)]
pub(super) async fn types(State(app): State<Arc<AppState>>) -> Json<Page<LabelTypeDocument>> {
    let types = app.engine.labels().types().into_iter();
    Json(Page {
        items: types.map(LabelTypeDocument::from).collect(),
        next: None,
    })
}

/// Returns a label type.
#[utoipa::path(
    get, operation_id = "get_label_type",
    path = "/label-types/{name}", tag = "labels", params(("name" = String, Path)),
    responses(
        (status = 200, body = LabelTypeDocument, description = "The label type"),
        NotFound,
    ),
)]
pub(super) async fn show_type(
    State(app): State<Arc<AppState>>,
    Path(name): Path<String>,
) -> Result<Json<LabelTypeDocument>, Problem> {
    Ok(Json(app.engine.labels().get_type(&name)?.into()))
}

/// Declares or changes a label type.
#[utoipa::path(
    put, operation_id = "declare_label_type",
    path = "/label-types/{name}", tag = "labels", params(("name" = String, Path)),
    request_body = LabelTypeDeclaration,
    responses(
        (status = 200, body = LabelTypeDocument, description = "The label type"),
        BadRequest, Conflict,
    ),
)]
pub(super) async fn declare_type(
    State(app): State<Arc<AppState>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<LabelTypeDocument>, Problem> {
    let request: LabelTypeDeclaration = read_json(&app, &headers, body).await?;
    let known = app
        .engine
        .labels()
        .get_type(&name)
        .ok()
        .map(|known| known.label_type);
    let value_type = request
        .value_type
        .or(known.as_ref().map(|known| known.value_type));
    let value_type = value_type.unwrap_or(ValueType::String);
    let several = request
        .several
        .or(known.as_ref().map(|known| known.several));
    let values = match request.values {
        Some(values) => value_texts(Value::Array(values))?,
        None => {
            let existing = known.into_iter().flat_map(|known| known.values);
            existing
                .filter(|text| LabelValue::parse(value_type, text).is_some())
                .collect()
        }
    };
    let label_type = LabelType {
        value_type,
        several: several.unwrap_or(false),
        name,
        values,
    };
    Ok(Json(
        app.engine.labels().declare_type(label_type).await?.into(),
    ))
}

/// Deletes a label type.
#[utoipa::path(
    delete, operation_id = "delete_label_type", path = "/label-types/{name}", tag = "labels",
    params(("name" = String, Path), LabelDeletion),
    responses(
        (status = 204, description = "Deleted"),
        NotFound, Conflict,
    ),
)]
pub(super) async fn forget_type(
    State(app): State<Arc<AppState>>,
    Path(name): Path<String>,
    uri: Uri,
) -> Result<StatusCode, Problem> {
    let LabelDeletion { remove } = query(&uri)?;
    let removes = remove.unwrap_or(false);
    app.engine.labels().forget(&name, None, removes).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Deletes a value of a label type.
#[utoipa::path(
    delete, operation_id = "delete_label_value",
    path = "/label-types/{name}/values/{value}", tag = "labels",
    params(("name" = String, Path), ("value" = String, Path), LabelDeletion),
    responses(
        (status = 204, description = "Deleted"),
        NotFound, Conflict,
    ),
)]
pub(super) async fn forget_value(
    State(app): State<Arc<AppState>>,
    Path((name, value)): Path<(String, String)>,
    uri: Uri,
) -> Result<StatusCode, Problem> {
    let LabelDeletion { remove } = query(&uri)?;
    let removes = remove.unwrap_or(false);
    app.engine
        .labels()
        .forget(&name, Some(&value), removes)
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Lists the labels of a storage, including those that the server sets.
#[utoipa::path(
    get, operation_id = "list_labels",
    path = "/storages/{id}/labels", tag = "labels", params(("id" = String, Path)),
    responses(
        (status = 200, body = Page<LabelDocument>, description = "The labels of the storage"),
        NotFound,
    ),
)]
pub(super) async fn list(
    State(app): State<Arc<AppState>>,
    Path(id): Path<String>,
) -> Result<Json<Page<LabelDocument>>, Problem> {
    labels(&app, id.parse()?)
}

fn labels(app: &AppState, id: StorageId) -> Result<Json<Page<LabelDocument>>, Problem> {
    let labels = app.engine.labels().of_storage(id)?.into_iter();
    Ok(Json(Page {
        items: labels.map(LabelDocument::from).collect(),
        next: None,
    }))
}

/// Adds a label to a storage; if its type allows several values, in addition to the existing ones.
#[utoipa::path(
    post, operation_id = "add_label",
    path = "/storages/{id}/labels", tag = "labels", params(("id" = String, Path)),
    request_body = LabelAddition,
    responses(
        (status = 200, body = Page<LabelDocument>, description = "The labels of the storage"),
        BadRequest, NotFound,
    ),
)]
pub(super) async fn add(
    State(app): State<Arc<AppState>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Page<LabelDocument>>, Problem> {
    let id: StorageId = id.parse()?;
    app.engine.storages().get(id)?;
    let request: LabelAddition = read_json(&app, &headers, body).await?;
    let values = value_texts(request.value)?;
    let set = app.engine.labels().set(id, &request.name, &values, true);
    change_everywhere(&app, id, set).await?;
    labels(&app, id)
}

/// Sets all values of a label of a storage.
#[utoipa::path(
    put, operation_id = "set_label", path = "/storages/{id}/labels/{name}", tag = "labels",
    params(("id" = String, Path), ("name" = String, Path)),
    request_body = LabelValues,
    responses(
        (status = 200, body = Page<LabelDocument>, description = "The labels of the storage"),
        BadRequest, NotFound,
    ),
)]
pub(super) async fn set(
    State(app): State<Arc<AppState>>,
    Path((id, name)): Path<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Page<LabelDocument>>, Problem> {
    let id: StorageId = id.parse()?;
    app.engine.storages().get(id)?;
    let request: LabelValues = read_json(&app, &headers, body).await?;
    let values = value_texts(request.value)?;
    let set = app.engine.labels().set(id, &name, &values, false);
    change_everywhere(&app, id, set).await?;
    labels(&app, id)
}

/// Removes a label, or one value of it, from a storage.
#[utoipa::path(
    delete, operation_id = "remove_label", path = "/storages/{id}/labels/{name}", tag = "labels",
    params(("id" = String, Path), ("name" = String, Path), LabelRemoval),
    responses(
        (status = 204, description = "Removed"),
        NotFound,
    ),
)]
pub(super) async fn remove(
    State(app): State<Arc<AppState>>,
    Path((id, name)): Path<(String, String)>,
    uri: Uri,
) -> Result<StatusCode, Problem> {
    let id: StorageId = id.parse()?;
    let LabelRemoval { value } = query(&uri)?;
    let removed = app.engine.labels().remove(id, &name, value.as_deref());
    change_everywhere(&app, id, removed).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A filter by label. A type that does not exist, and a value that is not of the type, are refused,
/// because no storage would ever match.
pub(super) fn label_filter(app: &AppState, text: &str) -> Result<LabelFilter, Problem> {
    let filter = LabelFilter::parse(text);
    let known = app.engine.labels().get_type(&filter.name).map_err(|_| {
        malformed(format!(
            "label: {text:?}: there is no label type {:?}, and no storage has such a label",
            filter.name
        ))
        .remedy("GET /api/v1/label-types lists the types")
    })?;
    let value_type = match known.label_type.value_type {
        // A time frame is compared with an instant.
        ValueType::TimeFrame => ValueType::Date,
        other => other,
    };
    match &filter.value {
        Some((_, value)) if LabelValue::parse(value_type, value).is_none() => {
            Err(malformed(format!(
                "label: {text:?}: {value:?} is not {}",
                LabelValue::expected(value_type)
            )))
        }
        _ => Ok(filter),
    }
}

/// The parameters of a query string of which one may be repeated: its values, and the other
/// parameters.
pub(super) fn repeated(
    uri: &Uri,
    name: &str,
) -> Result<(Vec<String>, BTreeMap<String, String>), Problem> {
    let all: Vec<(String, String)> = query(uri)?;
    let (mut several, mut single) = (Vec::new(), BTreeMap::new());
    for (key, value) in all {
        if key == name {
            several.push(value);
        } else if single.insert(key, value).is_some() {
            return Err(malformed(format!("only {name} may be repeated")));
        }
    }
    Ok((several, single))
}
