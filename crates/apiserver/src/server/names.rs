//! The rules for names, labels and other identifiers in metadata, with Kubernetes' messages
//! (`k8s.io/apimachinery/pkg/util/validation`).

/// How the names of a kind are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameRule {
    /// Lower-case letters, digits, `-` and `.`: most kinds.
    Subdomain,
    /// The same without dots: namespaces and Services.
    Label,
    /// Anything that fits in a path: roles and their bindings.
    PathSegment,
}

/// The rule for a resource.
pub(crate) fn rule(group: &str, plural: &str) -> NameRule {
    match (group, plural) {
        ("", "namespaces" | "services") => NameRule::Label,
        ("rbac.authorization.k8s.io", _) => NameRule::PathSegment,
        _ => NameRule::Subdomain,
    }
}

impl NameRule {
    /// What is wrong with a name; `prefix` for a `generateName`, which may end in a dash.
    pub(crate) fn problems(self, name: &str, prefix: bool) -> Vec<String> {
        // A generated suffix follows, so that the dash is not the last character.
        let completed = if prefix && name.ends_with('-') {
            format!("{}a", &name[..name.len() - 1])
        } else {
            name.to_owned()
        };
        match self {
            Self::Subdomain => subdomain(&completed),
            Self::Label => label(&completed),
            Self::PathSegment => path_segment(&completed),
        }
    }
}

fn is_alphanumeric(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

fn is_label(text: &str) -> bool {
    let bytes = text.as_bytes();
    let inner = bytes.iter().all(|byte| is_alphanumeric(*byte) || *byte == b'-');
    inner
        && bytes.first().copied().is_some_and(is_alphanumeric)
        && bytes.last().copied().is_some_and(is_alphanumeric)
}

fn too_long(limit: usize) -> String {
    format!("must be no more than {limit} characters")
}

/// A DNS subdomain (RFC 1123).
pub(crate) fn subdomain(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > 253 {
        problems.push(too_long(253));
    }
    if !text.split('.').all(is_label) {
        problems.push(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
             and must start and end with an alphanumeric character (e.g. 'example.com', regex used for \
             validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
                .to_owned(),
        );
    }
    problems
}

fn label(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > 63 {
        problems.push(too_long(63));
    }
    if !is_label(text) {
        problems.push(
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
             start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for \
             validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
                .to_owned(),
        );
    }
    problems
}

fn path_segment(text: &str) -> Vec<String> {
    if text == "." || text == ".." {
        return vec![format!("may not be '{text}'")];
    }
    ["/", "%"]
        .iter()
        .filter(|bad| text.contains(**bad))
        .map(|bad| format!("may not contain '{bad}'"))
        .collect()
}

fn is_qualified_part(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes
        .iter()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
}

const QUALIFIED_NAME: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and \
     end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for \
     validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

/// A label or annotation key: an optional DNS prefix, a slash and a name.
pub(crate) fn qualified_name(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let parts: Vec<&str> = text.split('/').collect();
    let name = match parts.as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".to_owned());
            } else {
                problems.extend(
                    subdomain(prefix)
                        .into_iter()
                        .map(|problem| format!("prefix part {problem}")),
                );
            }
            *name
        }
        _ => {
            return vec![format!(
                "a qualified name {QUALIFIED_NAME} with an optional DNS subdomain prefix and '/' (e.g. \
                 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        problems.push(format!("name part {}", too_long(63)));
    }
    if !is_qualified_part(name) {
        problems.push(format!("name part {QUALIFIED_NAME}"));
    }
    problems
}

/// The value of a label.
pub(crate) fn label_value(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > 63 {
        problems.push(too_long(63));
    }
    if !text.is_empty() && !is_qualified_part(text) {
        problems.push(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
             must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', \
             regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
                .to_owned(),
        );
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_as_kubernetes_does() {
        for (rule, name, good) in [
            (NameRule::Subdomain, "a.b-c.1", true),
            (NameRule::Subdomain, "A_b", false),
            (NameRule::Subdomain, "a..b", false),
            (NameRule::Subdomain, "-a", false),
            (NameRule::Label, "a.b", false),
            (NameRule::Label, "1a", true),
            (NameRule::PathSegment, "system:Node", true),
            (NameRule::PathSegment, "a/b", false),
        ] {
            assert_eq!(rule.problems(name, false).is_empty(), good, "{rule:?} {name}");
        }
        assert!(NameRule::Subdomain.problems("web-", true).is_empty());
        assert!(!NameRule::Subdomain.problems("web-", false).is_empty());
        assert!(!NameRule::Label.problems(&"a".repeat(64), false).is_empty());
    }

    #[test]
    fn keys_and_values_of_labels() {
        for (key, good) in [
            ("app", true),
            ("example.com/App_1", true),
            ("/app", false),
            ("a/b/c", false),
            ("", false),
            ("-a", false),
        ] {
            assert_eq!(qualified_name(key).is_empty(), good, "{key}");
        }
        assert!(label_value("").is_empty());
        assert!(!label_value("a b").is_empty());
    }
}
