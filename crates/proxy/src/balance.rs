//! Who is asked: one of the deployments of a name, another after a failure, and then other models.

use std::time::Duration;

use axum::{
    http::{HeaderValue, StatusCode},
    response::Response,
};
use kaos_openai::ErrorResponse;
use kaos_seams::Seams;

use crate::{
    config::{Config, Deployment, Group, Upstream},
    error::Failure,
    forward::{Cause, Destination, Failed, Forwarder},
    health::Severity,
    mock,
    request::Request,
    watched::Watched,
};

/// The longest time that an upstream may ask to wait and is waited for; as OpenAI's clients have it.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// The first pause where it asks for none. Each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(8);
/// The longest time that is believed.
const DAY: Duration = Duration::from_secs(86_400);

/// Asks for what `request` wants, until somebody answers or nobody is left.
pub(crate) async fn answer(
    config: &Config,
    forwarder: &Forwarder,
    seams: &Seams,
    request: &Request<'_>,
    watched: &mut Watched,
) -> Result<Response, Failure> {
    let balance = Balance {
        config,
        forwarder,
        seams,
        request,
    };
    let group = config.group(&request.model).ok_or_else(|| {
        let names: Vec<String> = config.names().collect();
        let message = format!(
            "the model {:?} does not exist; the models are: {}",
            request.model,
            names.join(", ")
        );
        let failure = Failure::invalid(StatusCode::NOT_FOUND, message);
        failure.code("model_not_found")
    })?;
    let failed = match balance.ask(&request.model, group, watched).await {
        Ok(response) => return Ok(response),
        Err(failed) => failed,
    };
    if failed.cause == Cause::Request {
        return Err(failed.failure);
    }
    for other in config
        .fallbacks(&request.model)
        .iter()
        .filter(|other| **other != request.model)
    {
        let Some(group) = config.group(other) else {
            continue;
        };
        tracing::warn!(
            model = request.model,
            fallback = other,
            "the model failed; its fallback is asked"
        );
        if let Ok(response) = balance.ask(other, group, watched).await {
            return Ok(response);
        }
    }
    // What the model that was asked for said helps more than what the last fallback did.
    Err(failed.failure)
}

struct Balance<'a> {
    config: &'a Config,
    forwarder: &'a Forwarder,
    seams: &'a Seams,
    request: &'a Request<'a>,
}

impl Balance<'_> {
    /// Asks the deployments of `name`.
    async fn ask(&self, name: &str, group: &Group, watched: &mut Watched) -> Result<Response, Failed> {
        let mut tried = Vec::new();
        let mut retries = None;
        let mut last = None;
        for failures in 0.. {
            let Some((at, deployment)) = self.pick(group, &tried) else {
                return Err(last.unwrap_or_else(|| used_up(name, group)));
            };
            let retries = *retries.get_or_insert(deployment.retries.unwrap_or(self.config.retries.count));
            let failed = match self.attempt(name, deployment, watched).await {
                Ok(response) => return Ok(response),
                Err(failed) => failed,
            };
            watched.failed(&failed.failure);
            tried.push(at);
            let wait = failed
                .failure
                .retry_after()
                .and_then(|value| seconds(value, self.seams));
            let fresh =
                group.deployments.len() > 1 && self.note(group, deployment, failed.cause, wait, &tried);
            if failures >= retries || !repeats(failed.cause, fresh) {
                return Err(failed);
            }
            let pause = match wait {
                _ if fresh => Duration::ZERO,
                Some(wait) if wait > LONGEST_WAIT => return Err(failed),
                Some(wait) => wait,
                None => self.pause(failures),
            };
            let pause = pause.max(self.config.retries.wait);
            tracing::info!(
                model = name,
                deployment = deployment.id,
                status = failed.failure.status().as_u16(),
                milliseconds = pause.as_millis(),
                "asked again after this pause"
            );
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            last = Some(failed);
        }
        // The loop ends by what it returns; its counter would have to overflow first.
        Err(Failed {
            failure: Failure::upstream(StatusCode::BAD_GATEWAY, "no deployment is left"),
            cause: Cause::Upstream,
        })
    }

    async fn attempt(
        &self,
        name: &str,
        deployment: &Deployment,
        watched: &mut Watched,
    ) -> Result<Response, Failed> {
        match &deployment.upstream {
            Upstream::Mock => {
                watched.asks(deployment, "mock", "mock");
                mock::respond(self.request, self.seams, watched).map_err(|failure| Failed {
                    failure,
                    cause: Cause::Request,
                })
            }
            Upstream::Remote(remote) => {
                let model = self.config.upstream_model(name, deployment);
                watched.asks(deployment, remote.provider.name, &model);
                let to = Destination {
                    remote,
                    transport: &self.config.transport,
                    model: &model,
                    limits: deployment.limits,
                    counts_tokens: deployment.allowance.limits_tokens(),
                };
                self.forwarder.forward(self.request, &to, watched).await
            }
        }
    }

    /// Notes a failure. Whether another deployment is left that has not been asked and is not resting.
    fn note(
        &self,
        group: &Group,
        deployment: &Deployment,
        cause: Cause,
        wait: Option<Duration>,
        tried: &[usize],
    ) -> bool {
        let severity = match cause {
            Cause::Request => None,
            Cause::Upstream => Some(Severity::Passing),
            Cause::Status(status) => match status.as_u16() {
                429 => Some(Severity::Lasting(wait)),
                401 | 403 | 404 => Some(Severity::Lasting(None)),
                408 | 500.. => Some(Severity::Passing),
                _ => None,
            },
        };
        if severity.is_some_and(|severity| deployment.health.failed(severity, self.config.tolerance)) {
            tracing::warn!(
                deployment = deployment.id,
                "the deployment fails and is left alone for a while"
            );
        }
        let mut others = group.deployments.iter().enumerate();
        others.any(|(at, other)| {
            !tried.contains(&at) && !other.health.rests() && other.allowance.used_up().is_none()
        })
    }

    /// One of the deployments that may still be asked in this minute, which is counted as asked; `None` if there
    /// is none.
    fn pick<'g>(&self, group: &'g Group, tried: &[usize]) -> Option<(usize, &'g Deployment)> {
        loop {
            let all = group.deployments.iter().enumerate();
            let open: Vec<usize> = all
                .filter(|(_, deployment)| deployment.allowance.used_up().is_none())
                .map(|(at, _)| at)
                .collect();
            let (at, deployment) = self.pick_of(group, &open, tried)?;
            // Another request may have used the rest of it meanwhile.
            if deployment.allowance.take().is_ok() {
                return Some((at, deployment));
            }
        }
    }

    /// One of these deployments by their weights: of those that work and have not been asked, else of those that
    /// work, else of all. That all rest is no reason to give up: perhaps one works again.
    fn pick_of<'g>(
        &self,
        group: &'g Group,
        open: &[usize],
        tried: &[usize],
    ) -> Option<(usize, &'g Deployment)> {
        let all = &group.deployments;
        if let [only] = open {
            return Some((*only, &all[*only]));
        }
        let resting: Vec<bool> = all.iter().map(|deployment| deployment.health.rests()).collect();
        let fresh = |at: &usize| !resting[*at] && !tried.contains(at);
        let working = |at: &usize| !resting[*at];
        let mut among: Vec<usize> = open.iter().copied().filter(fresh).collect();
        if among.is_empty() {
            among = open.iter().copied().filter(working).collect();
        }
        if among.is_empty() {
            among = open.to_vec();
        }
        let total: f64 = among.iter().map(|at| all[*at].weight).sum();
        let mut point = share(self.seams) * total;
        for at in &among {
            point -= all[*at].weight;
            if point < 0.0 {
                return Some((*at, &all[*at]));
            }
        }
        among.last().map(|last| (*last, all[*last].as_ref()))
    }

    fn pause(&self, failures: u32) -> Duration {
        let pause = FIRST_PAUSE
            .saturating_mul(1 << failures.min(10))
            .min(LONGEST_PAUSE);
        self.seams.random.jitter(pause)
    }
}

/// What is said where all deployments of `name` are used up for this minute.
fn used_up(name: &str, group: &Group) -> Failed {
    let waits = group.deployments.iter();
    let wait = waits
        .filter_map(|deployment| deployment.allowance.used_up())
        .min();
    let wait = wait.unwrap_or_default();
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    tracing::warn!(
        model = name,
        seconds,
        "rpm and tpm of all its deployments are used up"
    );
    let message = format!(
        "the model {name:?} has been asked for as much as the rpm and tpm of the proxy's configuration allow in a \
         minute; come again in {seconds} s"
    );
    let body = ErrorResponse::new("rate_limit_error", message).code("rate_limit_exceeded");
    let status = StatusCode::TOO_MANY_REQUESTS;
    Failed {
        failure: Failure::passed_on(status, body, Some(seconds.into())),
        cause: Cause::Status(status),
    }
}

/// A random number from 0 to below 1.
fn share(seams: &Seams) -> f64 {
    // The 53 bits that fit.
    let bits = (seams.random.next_u64() >> 11) as f64;
    bits / (1_u64 << 53) as f64
}

/// Whether what failed so may succeed when it is asked again; `fresh`: of another deployment.
fn repeats(cause: Cause, fresh: bool) -> bool {
    match cause {
        Cause::Request => false,
        Cause::Upstream => true,
        Cause::Status(status) => match status.as_u16() {
            408 | 409 | 429 | 500.. => true,
            // Of this deployment's key or model.
            401 | 403 | 404 => fresh,
            _ => false,
        },
    }
}

/// What `Retry-After` asks for: seconds, or a time.
fn seconds(value: &HeaderValue, seams: &Seams) -> Option<Duration> {
    let text = value.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<f64>() {
        return (seconds >= 0.0).then(|| Duration::from_secs_f64(seconds.min(DAY.as_secs_f64())));
    }
    let until = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
    let wait = Duration::try_from(until.duration_since(seams.clock.now())).unwrap_or_default();
    Some(wait.min(DAY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_time_to_wait_is_read_in_both_forms() {
        // The simulated clock begins at 2026-01-01T00:00:00Z.
        let seams = Seams::simulated(1);
        for (text, wait) in [
            ("7", Some(Duration::from_secs(7))),
            ("0.5", Some(Duration::from_millis(500))),
            ("Thu, 01 Jan 2026 00:00:30 GMT", Some(Duration::from_secs(30))),
            ("Wed, 31 Dec 2025 00:00:00 GMT", Some(Duration::ZERO)),
            ("99999999999999999999", Some(DAY)),
            ("-1", None),
            ("soon", None),
            ("NaN", None),
        ] {
            assert_eq!(
                seconds(&HeaderValue::from_str(text).unwrap(), &seams),
                wait,
                "{text}"
            );
        }
    }

    #[test]
    fn only_what_may_succeed_is_asked_again() {
        let status = |code| Cause::Status(StatusCode::from_u16(code).unwrap());
        for (cause, same, other) in [
            (Cause::Request, false, false),
            (Cause::Upstream, true, true),
            (status(400), false, false),
            (status(401), false, true),
            (status(404), false, true),
            (status(408), true, true),
            (status(422), false, false),
            (status(429), true, true),
            (status(500), true, true),
            (status(503), true, true),
        ] {
            assert_eq!(
                (repeats(cause, false), repeats(cause, true)),
                (same, other),
                "{cause:?}"
            );
        }
    }
}
