//! Azure OpenAI: OpenAI's bodies, with the deployment's name in the path and the version of the API in the query.
//! The addresses of <https://learn.microsoft.com/azure/ai-services/openai/reference>.

use super::{Call, Remote};
use crate::request::Request;

/// The version that is asked for where the configuration names none: the last one that is generally available.
const VERSION: &str = "2024-10-21";
/// Where Azure serves OpenAI's API as it is, without versions.
const UNVERSIONED: &str = "/openai/v1";

pub(super) fn call(remote: &Remote, request: &Request<'_>, deployment: &str) -> Call {
    let path = request.operation.path();
    if remote.base.path().trim_end_matches('/').ends_with(UNVERSIONED) {
        let body = request.body(Some(deployment), &remote.defaults);
        return remote.json(remote.at(path), body);
    }
    let mut url = remote.base.clone();
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty();
        segments.extend(["openai", "deployments", deployment]);
        segments.extend(path.split('/').skip(1));
    }
    let version = remote.api_version.as_deref().unwrap_or(VERSION);
    url.query_pairs_mut().append_pair("api-version", version);
    remote.json(url, request.body(None, &remote.defaults))
}
