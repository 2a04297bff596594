//! A GET, over TLS where it must be. As with a kubelet, no certificate is looked at: the question is whether
//! the program answers, not who it is.

use std::{net::SocketAddr, sync::Arc};

use http::{Request, header::HOST};
use http_body_util::Empty;
use hyper_util::rt::TokioIo;
use rustls::{
    ClientConfig, DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

use super::connect;

/// A request and where it goes.
#[derive(Clone, Debug)]
pub(crate) struct Get {
    pub(super) address: SocketAddr,
    pub(super) secure: bool,
    pub(super) path: String,
    pub(super) headers: Vec<(String, String)>,
}

impl Get {
    pub(super) async fn run(&self) -> Result<(), String> {
        match self.status().await? {
            200..=399 => Ok(()),
            status => Err(format!("HTTP probe failed with statuscode: {status}")),
        }
    }

    async fn status(&self) -> Result<u16, String> {
        let stream = connect(self.address).await?;
        if !self.secure {
            return self.ask(stream).await;
        }
        let config = tls().map_err(|error| self.failed(&error))?;
        let name = ServerName::IpAddress(self.address.ip().into());
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
        self.ask(stream.map_err(|error| self.failed(&error))?).await
    }

    fn failed(&self, error: &dyn std::fmt::Display) -> String {
        let scheme = if self.secure { "https" } else { "http" };
        format!("Get \"{scheme}://{}{}\": {error}", self.address, self.path)
    }

    async fn ask(&self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Result<u16, String> {
        let failed = |error: &dyn std::fmt::Display| self.failed(error);
        let mut request = Request::get(&self.path)
            .header("user-agent", "kube-probe/local")
            .header("accept", "*/*");
        if !self
            .headers
            .iter()
            .any(|(name, _)| name.eq_ignore_ascii_case("host"))
        {
            request = request.header(HOST, self.address.to_string());
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let request = request
            .body(Empty::<bytes::Bytes>::new())
            .map_err(|error| failed(&error))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| failed(&error))?;
        // Not in a task of its own: no connection outlives its probe.
        let response = sender.send_request(request);
        tokio::pin!(response, connection);
        let answer = tokio::select! {
            biased;
            answer = &mut response => answer,
            // Its last words may have been the answer.
            _ = &mut connection => response.await,
        };
        answer
            .map(|response| response.status().as_u16())
            .map_err(|error| failed(&error))
    }
}

fn tls() -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(ring::default_provider());
    let config =
        ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
    Ok(config
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        .with_no_client_auth())
}

/// Takes whatever certificate it is shown.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
