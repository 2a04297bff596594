//! What clients learn the server's resources from.

use http::{Response, request::Parts};

use crate::{registry::Registry, server::Body};

/// The answer, where the path is one of discovery's.
pub(crate) fn respond(_registry: &Registry, _parts: &Parts) -> Option<Response<Body>> {
    None
}
