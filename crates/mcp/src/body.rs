//! The body of a request: bounded in size and in time, so that neither a large nor a slow client holds anything up.

use std::time::Duration;

use axum::{
    body::{Body, Bytes, to_bytes},
    http::StatusCode,
};

/// The largest message of a client, in bytes.
const MAX_BODY: usize = 4 << 20;
/// How long a client may take to send one.
const TIME: Duration = Duration::from_secs(30);

/// All of it, or the status and the words to refuse it with.
pub(crate) async fn read(body: Body) -> Result<Bytes, (StatusCode, String)> {
    match tokio::time::timeout(TIME, to_bytes(body, MAX_BODY)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) => {
            let too_large = std::error::Error::source(&error)
                .is_some_and(|source| source.is::<http_body_util::LengthLimitError>());
            Err(if too_large {
                let said = format!("a message may have {} MiB", MAX_BODY >> 20);
                (StatusCode::PAYLOAD_TOO_LARGE, said)
            } else {
                (
                    StatusCode::BAD_REQUEST,
                    "the message ended before its end".to_owned(),
                )
            })
        }
        Err(_) => {
            let said = format!("the message did not come within {} s", TIME.as_secs());
            Err((StatusCode::REQUEST_TIMEOUT, said))
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn size_time_and_a_broken_connection_are_told_apart() {
        let whole = read(Body::from("{}")).await.unwrap();
        assert_eq!(&whole[..], b"{}");
        let large = read(Body::from(vec![b' '; MAX_BODY + 1])).await.unwrap_err();
        assert_eq!(
            large,
            (
                StatusCode::PAYLOAD_TOO_LARGE,
                "a message may have 4 MiB".to_owned()
            )
        );
        let slow = Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>());
        let slow = read(slow).await.unwrap_err();
        assert_eq!(
            slow,
            (
                StatusCode::REQUEST_TIMEOUT,
                "the message did not come within 30 s".to_owned()
            )
        );
        let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        let broken = Body::from_stream(stream::iter([Ok(Bytes::from("{")), Err(reset)]));
        assert_eq!(read(broken).await.unwrap_err().0, StatusCode::BAD_REQUEST);
    }
}
