//! Packages that are tool servers, as users write them: what may be handed to an installer.
//!
//! The installers judge versions themselves. Here it is only made sure that what is handed over is a package,
//! not an option or a path of theirs.

use url::Url;

/// A requirement of pip: a name, with extras and versions if need be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PythonPackage<'a> {
    /// All of it, as it was written.
    pub(crate) requirement: &'a str,
    /// The name of the distribution.
    pub(crate) name: &'a str,
}

impl<'a> PythonPackage<'a> {
    /// Reads `NAME[EXTRAS]VERSIONS` or `NAME[EXTRAS] @ URL` (PEP 508, without markers).
    ///
    /// # Errors
    /// What is wrong with it, and what to write.
    pub(crate) fn parse(text: &'a str) -> Result<Self, String> {
        let requirement = text.trim();
        let refused = |problem: &str| {
            Err(format!(
                "{text:?}, which {problem}; write a package of PyPI, such as my-server or my-server==1.2"
            ))
        };
        if requirement.starts_with('-') {
            return refused("is an option of pip and no package");
        }
        if requirement.contains(|character: char| character.is_control() || character == ';') {
            return refused("has a marker or more than one line");
        }
        let is_of_name = |character: char| character.is_ascii_alphanumeric() || "-_.".contains(character);
        let end = requirement
            .find(|character| !is_of_name(character))
            .unwrap_or(requirement.len());
        let (name, rest) = requirement.split_at(end);
        let begins_and_ends = |is: fn(&char) -> bool| {
            name.chars().next().as_ref().is_some_and(is) && name.chars().next_back().as_ref().is_some_and(is)
        };
        if !begins_and_ends(char::is_ascii_alphanumeric) {
            return refused("does not begin with the name of a package");
        }
        let mut rest = rest.trim_start();
        if let Some(inner) = rest.strip_prefix('[') {
            let Some((extras, after)) = inner.split_once(']') else {
                return refused("has extras without an end");
            };
            let is_extra = |extra: &str| {
                let extra = extra.trim();
                extra.chars().all(is_of_name)
                    && extra.starts_with(|first: char| first.is_ascii_alphanumeric())
            };
            if !extras.split(',').all(is_extra) {
                return refused("has extras that are no names");
            }
            rest = after.trim_start();
        }
        if let Some(address) = rest.strip_prefix('@') {
            return match Url::parse(address.trim()) {
                Ok(url) if is_plain(&url, address.trim()) => Ok(Self { requirement, name }),
                _ => refused("names no plain https address"),
            };
        }
        if !rest.is_empty() && !rest.split(',').all(is_version) {
            return refused("has versions that pip does not know");
        }
        Ok(Self { requirement, name })
    }
}

/// An address that says no more than where the package is.
fn is_plain(url: &Url, text: &str) -> bool {
    url.scheme() == "https"
        && url.has_host()
        && url.username().is_empty()
        && url.password().is_none()
        // Kubernetes would replace `$(NAME)`.
        && !text.contains(|character: char| character.is_whitespace() || character == '$')
}

/// One of the comparisons of PEP 440.
fn is_version(specifier: &str) -> bool {
    let specifier = specifier.trim();
    let operators = ["===", "==", "~=", "!=", "<=", ">=", "<", ">"];
    let Some(version) = operators
        .iter()
        .find_map(|operator| specifier.strip_prefix(operator))
    else {
        return false;
    };
    let version = version.trim();
    version.starts_with(|first: char| first.is_ascii_alphanumeric())
        && version
            .chars()
            .all(|character| character.is_ascii_alphanumeric() || ".*+!-_".contains(character))
}

/// Whether npx takes `text` for a package of npm: `NAME`, `@SCOPE/NAME`, with `@VERSION` if need be.
///
/// # Errors
/// What is wrong with it, and what to write.
pub(crate) fn node_package(text: &str) -> Result<&str, String> {
    let package = text.trim();
    // npm begins its names with neither a dot nor an underscore, and runs what it finds through a shell.
    let is_name = |name: &str| {
        name.starts_with(|first: char| first.is_ascii_alphanumeric())
            && name
                .chars()
                .all(|character| character.is_ascii_alphanumeric() || "-_.".contains(character))
    };
    let unscoped = match package.strip_prefix('@') {
        Some(scoped) => scoped.split_once('/').filter(|(scope, _)| is_name(scope)),
        None => Some(("", package)),
    };
    let is_package = unscoped.is_some_and(|(_, package)| match package.split_once('@') {
        Some((name, version)) => {
            is_name(name)
                && version.starts_with(|first: char| first.is_ascii_alphanumeric() || "^~*".contains(first))
                && version
                    .chars()
                    .all(|character| character.is_ascii_alphanumeric() || "-_.+^~*".contains(character))
        }
        None => is_name(package),
    });
    if is_package {
        Ok(package)
    } else {
        Err(format!(
            "{text:?}, which is no package of npm; write its name, such as my-server, @scope/my-server or my-server@1.2"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_extras_and_versions_are_packages() {
        for (text, name) in [
            ("my-server", "my-server"),
            ("test-mcp-echo-server", "test-mcp-echo-server"),
            (" my.server ", "my.server"),
            ("server[http,cli]==1.2", "server"),
            ("server [http] >= 1.2, != 1.3.*", "server"),
            ("server~=1.0", "server"),
            ("server===1.0+local", "server"),
            (
                "server @ https://example.com/server-1.0.tar.gz#sha256=ab",
                "server",
            ),
        ] {
            let package = PythonPackage::parse(text).unwrap();
            assert_eq!(package.name, name);
            assert_eq!(package.requirement, text.trim());
        }
    }

    #[test]
    fn what_is_no_package_is_told_with_the_fix() {
        for (text, problem) in [
            ("--index-url=http://evil", "is an option of pip and no package"),
            ("-r/etc/passwd", "is an option of pip and no package"),
            ("./folder", "does not begin with the name of a package"),
            ("/etc", "does not begin with the name of a package"),
            ("", "does not begin with the name of a package"),
            ("server-", "does not begin with the name of a package"),
            (
                "https://example.com/x.tar.gz",
                "has versions that pip does not know",
            ),
            ("git+https://example.com/x", "has versions that pip does not know"),
            ("a b", "has versions that pip does not know"),
            ("server && id", "has versions that pip does not know"),
            ("server$(id)", "has versions that pip does not know"),
            ("server==$(id)", "has versions that pip does not know"),
            ("server==", "has versions that pip does not know"),
            ("server==1.0 --pre", "has versions that pip does not know"),
            ("server[http", "has extras without an end"),
            ("server[]", "has extras that are no names"),
            ("server @ file:///etc/passwd", "names no plain https address"),
            (
                "server @ https://user:word@example.com/x",
                "names no plain https address",
            ),
            (
                "server @ https://example.com/x --pre",
                "names no plain https address",
            ),
            ("server; id", "has a marker or more than one line"),
            ("server\nother", "has a marker or more than one line"),
        ] {
            let said = PythonPackage::parse(text).unwrap_err();
            assert_eq!(
                said,
                format!(
                    "{text:?}, which {problem}; write a package of PyPI, such as my-server or my-server==1.2"
                )
            );
        }
    }

    #[test]
    fn packages_of_npm_have_names_scopes_and_versions() {
        for text in [
            "server",
            "@scope/server",
            "server@1.2.3",
            "@scope/server@^1",
            "server@latest",
            "a.b_c",
        ] {
            assert_eq!(node_package(text), Ok(text));
        }
        for text in [
            "",
            "-y",
            "--call=id",
            "@scope",
            "@/x",
            "a/b",
            "./x",
            "a b",
            "a;id",
            "a@",
            "a@$(id)",
            "a@>1|id",
            "git+ssh://x",
            "@scope/server@1@2",
            "https://example.com/x",
        ] {
            let said = node_package(text).unwrap_err();
            assert!(
                said.starts_with(&format!("{text:?}, which is no package of npm; write its name")),
                "{said}"
            );
        }
    }

    proptest::proptest! {
        #[test]
        fn what_is_taken_is_one_word_for_its_installer(text in "[ -]{0,2}[@a-zA-Z./_-]{0,6}[\\[\\]a-z=<>~!@:;,/\\$\n -]{0,12}|\\PC*") {
            if let Ok(package) = PythonPackage::parse(&text) {
                proptest::prop_assert!(!package.requirement.starts_with(['-', '.', '/']));
                proptest::prop_assert!(!package.requirement.contains(['\n', '\r', '\0', ';']));
                proptest::prop_assert!(package.requirement.starts_with(package.name));
            }
            if let Ok(package) = node_package(&text) {
                proptest::prop_assert!(!package.starts_with(['-', '.', '/']));
                proptest::prop_assert!(package.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"@/-_.+^~*".contains(&byte)));
            }
        }
    }
}
