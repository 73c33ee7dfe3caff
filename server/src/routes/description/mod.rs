//! The OpenAPI document: what the annotations of the handlers say, completed with what holds for
//! many operations at once.
//!
//! Annotations describe one operation each: its id, body, parameters and own refusals. The gate,
//! the readers of bodies and the ids in paths refuse requests of every operation in the same way,
//! and a type of another crate has no annotation. Both are added here, once.

mod responses;

use serde_json::{Map, Value, json};

/// Schemas that annotations cannot express, as a merge patch (RFC 7396) of the document.
const PATCH: &str = include_str!("patch.json");
/// Schemas of parameters: by name for a path, by name for a header field or a query string.
const PARAMETERS: &str = include_str!("parameters.json");

/// The document with everything that annotations leave out.
pub(super) fn complete(mut document: Value) -> Value {
    merge(&mut document, parsed(PATCH));
    let optional = bodies_without_required_members(&document);
    let parameters = parsed(PARAMETERS);
    let paths = document.get_mut("paths").and_then(Value::as_object_mut);
    for (path, item) in paths.into_iter().flatten() {
        for (method, operation) in item.as_object_mut().into_iter().flatten() {
            describe_parameters(operation, &parameters);
            relax_body(operation, &optional);
            responses::complete(path, method, operation);
        }
    }
    name_items_of_pages(&mut document);
    describe_types(&mut document);
    document
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).expect("a file of the repository is JSON")
}

/// Applies a merge patch: members replace members, and null removes one.
fn merge(target: &mut Value, patch: Value) {
    let Value::Object(members) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(object) = target.as_object_mut() else {
        return;
    };
    for (name, value) in members {
        if value.is_null() {
            object.remove(&name);
        } else {
            merge(object.entry(name).or_insert(Value::Null), value);
        }
    }
}

/// Schemas of bodies that may be absent: an absent body is an empty object.
fn bodies_without_required_members(document: &Value) -> Vec<String> {
    let schemas = document["components"]["schemas"].as_object();
    schemas
        .into_iter()
        .flatten()
        .filter(|(_, schema)| schema.get("required").is_none())
        .map(|(name, _)| format!("#/components/schemas/{name}"))
        .collect()
}

fn relax_body(operation: &mut Value, optional: &[String]) {
    let Some(body) = operation.get_mut("requestBody") else {
        return;
    };
    let schema = body.pointer("/content/application~1json/schema/$ref");
    let schema = schema.and_then(Value::as_str);
    if schema.is_some_and(|schema| optional.iter().any(|each| each == schema)) {
        body["required"] = json!(false);
    }
}

/// Adds the schemas of parameters. Header fields and query strings have no null.
fn describe_parameters(operation: &mut Value, known: &Value) {
    let parameters = operation
        .get_mut("parameters")
        .and_then(Value::as_array_mut);
    for parameter in parameters.into_iter().flatten() {
        let place = parameter["in"].as_str().unwrap_or_default();
        let name = parameter["name"].as_str().unwrap_or_default();
        if let Some(patch) = known.get(place).and_then(|known| known.get(name)) {
            let patch = patch.clone();
            merge(parameter, patch);
        }
        let types = parameter["schema"]["type"].as_array();
        let single = types.and_then(|types| types.iter().find(|kind| **kind != "null"));
        if let Some(single) = single.cloned() {
            parameter["schema"]["type"] = single;
        }
    }
}

/// Refers to the items of pages by name; annotations repeat their schemas.
fn name_items_of_pages(document: &mut Value) {
    let schemas = document.pointer_mut("/components/schemas");
    for (name, page) in schemas.and_then(Value::as_object_mut).into_iter().flatten() {
        if let Some(item) = name.strip_prefix("Page_") {
            let reference = format!("#/components/schemas/{item}");
            page["properties"]["items"]["items"] = json!({ "$ref": reference });
        }
    }
}

/// Describes bodies of bytes as such, not as lists of numbers, and numbers without a sign by their
/// range: the formats that annotations give them have a sign.
fn describe_types(node: &mut Value) {
    match node {
        Value::Array(items) => items.iter_mut().for_each(describe_types),
        Value::Object(members) => {
            let is_unsigned = members.get("minimum").and_then(Value::as_u64).is_some();
            let max = match members.get("format").and_then(Value::as_str) {
                Some("int64") => Some(u64::MAX),
                Some("int32") => Some(u64::from(u32::MAX)),
                _ => None,
            };
            if let (true, Some(max)) = (is_unsigned, max) {
                members.remove("format");
                members.insert("maximum".to_owned(), json!(max));
            }
            if let Some(content) = members.get_mut("content").and_then(Value::as_object_mut) {
                describe_binary(content);
            }
            members.values_mut().for_each(describe_types);
        }
        _ => {}
    }
}

fn describe_binary(content: &mut Map<String, Value>) {
    for (media_type, body) in content {
        let is_list = body
            .pointer("/schema/type")
            .is_some_and(|kind| kind == "array");
        if is_list && !media_type.ends_with("json") {
            body["schema"] = json!({ "type": "string", "format": "binary" });
        }
    }
}
