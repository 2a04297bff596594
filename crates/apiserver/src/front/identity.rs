//! The certificate that the server shows, signed by itself.

use std::sync::Arc;

use jiff::{Timestamp, ToSpan, civil::Date, tz::TimeZone};
use kaos_seams::Seams;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose, SerialNumber};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

/// The names that the certificate is for: all of loopback that clients use.
const NAMES: [&str; 3] = ["127.0.0.1", "localhost", "::1"];

/// How long a certificate is valid. It is only ever trusted by the one kubeconfig that was written with it.
const VALID_YEARS: i16 = 10;

/// A self-signed certificate and its key. Whoever trusts the certificate, trusts exactly this server.
#[derive(Clone)]
pub struct TlsIdentity {
    /// The certificate, PEM. Also what clients take as the authority.
    pub certificate_pem: String,
    /// The private key (PKCS #8, ECDSA on P-256), PEM. Secret.
    pub key_pem: String,
}

// By hand: a derived one would print the key.
impl std::fmt::Debug for TlsIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsIdentity").finish_non_exhaustive()
    }
}

/// Why there is no usable certificate.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The certificate could not be made.
    #[error("cannot make a certificate")]
    Generate(#[from] rcgen::Error),
    /// The time is beyond what certificates can say.
    #[error("the clock shows {0}: no certificate can be made for that time")]
    Clock(Timestamp),
    /// The PEM text is not a certificate or a key.
    #[error("the server's certificate or key is not valid PEM: remove it to have a new one made")]
    Pem(#[source] rustls::pki_types::pem::Error),
    /// Certificate and key cannot be used together.
    #[error("the server's certificate and key do not go together: remove both to have new ones made")]
    Mismatch(#[from] rustls::Error),
}

impl TlsIdentity {
    /// Makes a new one, valid from a day before the clock's now (other clocks may be late) for ten years. The
    /// serial number comes from the seams; the key always from the operating system's randomness, for a
    /// reproducible key is none.
    ///
    /// # Errors
    /// Where the clock is beyond all calendars, or the system gives no randomness.
    pub fn generate(seams: &Seams) -> Result<Self, IdentityError> {
        let now = seams.clock.now();
        let today = now.to_zoned(TimeZone::UTC).date();
        let (Ok(from), Ok(until)) = (today.checked_sub(1.day()), today.checked_add(VALID_YEARS.years()))
        else {
            return Err(IdentityError::Clock(now));
        };
        let mut params = CertificateParams::new(NAMES.map(str::to_owned))?;
        params.not_before = date_time(from).ok_or(IdentityError::Clock(now))?;
        params.not_after = date_time(until).ok_or(IdentityError::Clock(now))?;
        params
            .distinguished_name
            .push(DnType::CommonName, "kaos local API server");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let mut serial = [0; 16];
        seams.random.fill(&mut serial);
        // Serial numbers are positive.
        serial[0] &= 0x7f;
        params.serial_number = Some(SerialNumber::from_slice(&serial));
        let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?;
        let certificate = params.self_signed(&key)?;
        Ok(Self {
            certificate_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
        })
    }

    pub(super) fn server_config(&self) -> Result<Arc<ServerConfig>, IdentityError> {
        let certificates = CertificateDer::pem_slice_iter(self.certificate_pem.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .map_err(IdentityError::Pem)?;
        let key = PrivateKeyDer::from_pem_slice(self.key_pem.as_bytes()).map_err(IdentityError::Pem)?;
        // The provider is named: libraries must not depend on what the process installed.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(certificates, key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

/// Midnight of a day, as rcgen takes it. `rcgen::date_time_ymd` panics on what is no date, which a date is not.
fn date_time(date: Date) -> Option<time::OffsetDateTime> {
    let month = time::Month::try_from(u8::try_from(date.month()).ok()?).ok()?;
    let day = u8::try_from(date.day()).ok()?;
    let date = time::Date::from_calendar_date(date.year().into(), month, day).ok()?;
    Some(date.midnight().assume_utc())
}
