//! The standard health check of gRPC servers: `grpc.health.v1.Health/Check`.

use std::net::SocketAddr;

use http::uri::PathAndQuery;
use tonic::{Code, Request, transport::Endpoint};
use tonic_prost::ProstCodec;

/// What is asked (health.proto).
#[derive(Clone, PartialEq, prost::Message)]
struct HealthCheckRequest {
    /// The service, empty for the server as a whole.
    #[prost(string, tag = "1")]
    service: String,
}

/// What is answered (health.proto).
#[derive(Clone, PartialEq, prost::Message)]
struct HealthCheckResponse {
    #[prost(enumeration = "ServingStatus", tag = "1")]
    status: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
enum ServingStatus {
    Unknown = 0,
    Serving = 1,
    NotServing = 2,
    ServiceUnknown = 3,
}

/// Asks whether `service` is served at `address`.
pub(super) async fn check(address: SocketAddr, service: &str) -> Result<(), String> {
    let failed = |error: &dyn std::error::Error| {
        // tonic says no more than "transport error"; the cause is below.
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(below) = cause {
            text = format!("{text}: {below}");
            cause = below.source();
        }
        format!("failed to connect service {address}: {text}")
    };
    let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(|error| failed(&error))?;
    let channel = endpoint
        .user_agent("kube-probe/local")
        .map_err(|error| failed(&error))?
        .connect()
        .await
        .map_err(|error| failed(&error))?;
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.map_err(|error| failed(&error))?;
    let request = HealthCheckRequest {
        service: service.to_owned(),
    };
    let path = PathAndQuery::from_static("/grpc.health.v1.Health/Check");
    let codec: ProstCodec<HealthCheckRequest, HealthCheckResponse> = ProstCodec::default();
    let answer = client
        .unary(Request::new(request), path, codec)
        .await
        .map_err(|status| match status.code() {
            Code::Unimplemented => format!(
                "this server does not implement the grpc health protocol (grpc.health.v1.Health): {}",
                status.message()
            ),
            Code::NotFound => format!("the server does not know the service {service:?}"),
            _ => format!("health rpc failed: {status}"),
        })?
        .into_inner();
    match answer.status() {
        ServingStatus::Serving => Ok(()),
        other => Err(format!("service unhealthy (responded with {:?})", name(other))),
    }
}

/// The status in the words of health.proto.
fn name(status: ServingStatus) -> &'static str {
    match status {
        ServingStatus::Unknown => "UNKNOWN",
        ServingStatus::Serving => "SERVING",
        ServingStatus::NotServing => "NOT_SERVING",
        ServingStatus::ServiceUnknown => "SERVICE_UNKNOWN",
    }
}
