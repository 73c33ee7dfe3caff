//! The agent of an OpenTelemetry resource.

use std::collections::BTreeMap;

use storage_core::AgentSpec;
use storage_format::AgentId;
use storage_format::checksum::crc32c;
use trace_kinds::otlp::Identity;

/// The name that OpenTelemetry uses for a service without one.
const UNKNOWN: &str = "unknown_service";
/// Maximum length of an agent id, and of the part before its checksum.
const ID_BYTES_MAX: usize = 128;
/// Maximum length of a text in an agent's description.
const TEXT_BYTES_MAX: usize = 256;

/// The agent of a resource: namespace and name of the service, joined by a dot. If the result is
/// not a valid id, or could also be that of another service, invalid characters are replaced and a
/// checksum makes it unique. All instances of a service are one agent: SDKs generate a new instance
/// id at every start of a process, and each span has it as a field (`ctx.service.instance.id`).
pub(super) fn agent_of(identity: &Identity) -> AgentSpec {
    let name = match &*identity.name {
        "" => UNKNOWN,
        name => name,
    };
    let namespace = &identity.namespace;
    let joined = match &**namespace {
        "" => name.to_owned(),
        namespace => format!("{namespace}.{name}"),
    };
    // Any of the dots could be the separator.
    let is_ambiguous = !namespace.is_empty() && (namespace.contains('.') || name.contains('.'));
    let id = match joined.parse::<AgentId>() {
        Ok(id) if !is_ambiguous => id,
        _ => disambiguated(&joined, identity),
    };
    let texts = [
        ("service.namespace", namespace),
        ("service.name", &identity.name),
    ];
    let attributes: BTreeMap<_, _> = texts
        .into_iter()
        .filter(|(_, text)| !text.is_empty())
        .map(|(key, text)| (key.to_owned(), shortened(text)))
        .collect();
    AgentSpec {
        id,
        name: shortened(name),
        // A service runs on any number of hosts; each span has its own.
        host: String::new(),
        attributes,
    }
}

fn disambiguated(joined: &str, identity: &Identity) -> AgentId {
    let complete = [&identity.namespace, "\0", &identity.name].concat();
    let ending = format!("-{:08x}", crc32c(complete.as_bytes()));
    let is_valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let replaced = joined.chars().map(|c| if is_valid(c) { c } else { '_' });
    let mut id: String = replaced.take(ID_BYTES_MAX - ending.len() - 1).collect();
    if !id.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_') {
        id.insert(0, '_');
    }
    id.push_str(&ending);
    id.parse().expect("only characters of ids remain")
}

/// The start of a text, cut at a character boundary, in one line.
fn shortened(text: &str) -> String {
    let end = (0..=text.len().min(TEXT_BYTES_MAX)).rev();
    let end = end.into_iter().find(|end| text.is_char_boundary(*end));
    let replaced = text[..end.unwrap_or(0)].chars();
    let replaced = replaced.map(|c| if c.is_control() { ' ' } else { c });
    replaced.collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn identity(namespace: &str, name: &str) -> Identity {
        Identity {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    #[test]
    fn resources_become_agents() {
        let check = |namespace: &str, name: &str, wanted: &str| {
            let agent = agent_of(&identity(namespace, name));
            assert_eq!(agent.id.as_str(), wanted);
        };
        check("", "shop", "shop");
        check("", "shop.eu", "shop.eu");
        check("eu", "shop", "eu.shop");
        check("", "", "unknown_service");
        let checksum = crc32c(b"\0unknown_service:python");
        let wanted = format!("unknown_service_python-{checksum:08x}");
        check("", "unknown_service:python", &wanted);
    }

    #[test]
    fn different_services_are_different_agents() {
        let long = "x".repeat(500);
        let mut seen = HashSet::new();
        for (namespace, name) in [
            ("a", "b.c"),
            ("a.b", "c"),
            ("", "a.b.c"),
            ("", "a b"),
            ("", "a_b"),
            ("", "-a"),
            ("", "ä"),
            ("", "ö"),
            ("", &long),
            (&long, &long),
        ] {
            let agent = agent_of(&identity(namespace, name));
            assert!(seen.insert(agent.id.clone()), "{:?}", agent.id);
            assert!(agent.name.len() <= 256);
        }
    }
}
