//! Logs of pods, and requests passed on to pods and Services.
//!
//! Where a pod is and what it wrote, the backend knows; this module only carries bytes, as they come, in both
//! directions. The caller's token stays here.

mod forward;
mod headers;
mod logs;

pub(crate) use forward::{Destination, forward};
pub(crate) use logs::pod_log;

use crate::{backend::Refusal, error::ApiError};

fn no_backend() -> ApiError {
    ApiError::unavailable("this server runs no pods: nothing can be reached through it")
}

/// A refusal as a Kubernetes `Status`.
fn refused(refusal: Refusal) -> ApiError {
    let reason = match refusal {
        Refusal::NotFound(_) => "NotFound",
        Refusal::BadRequest(_) => "BadRequest",
        Refusal::Unavailable(_) => "ServiceUnavailable",
    };
    ApiError::new(refusal.status(), reason, refusal.to_string())
}

#[cfg(test)]
mod tests;
