//! What an API server says, for people.

use std::borrow::Cow;

/// What the API server answered, in its own words. kube-rs shows the whole answer as Rust has it.
pub fn answer(error: &kube::Error) -> Cow<'_, str> {
    match error {
        kube::Error::Api(status) if status.message.is_empty() => {
            format!("the API server answers {} {}", status.code, status.reason).into()
        }
        kube::Error::Api(status) => Cow::Borrowed(&status.message),
        other => other.to_string().into(),
    }
}
