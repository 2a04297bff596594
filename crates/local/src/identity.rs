//! The identity of an instance's API: its certificate and the token that it asks for. Made once for a data
//! folder and kept, so that a kubeconfig stays valid across restarts.

use kaos_apiserver::front::TlsIdentity;
use kaos_seams::Seams;
use serde::{Deserialize, Serialize};

use crate::data_dir::{DataDir, DataDirError};

const FILE: &str = "identity.json";

/// 32 bytes: as long as the keys of the certificate are strong.
const TOKEN_BYTES: usize = 32;

/// Certificate, key and token.
#[derive(Clone, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Identity {
    pub(crate) token: String,
    pub(crate) certificate_pem: String,
    pub(crate) key_pem: String,
}

impl Identity {
    /// The identity of a data folder, made at its first use.
    pub(crate) fn of(data: &DataDir, seams: &Seams) -> Result<Self, DataDirError> {
        let damaged = |reason: String| DataDirError::Damaged {
            path: data.path().join(FILE),
            reason,
        };
        if let Some(bytes) = data.read(FILE)? {
            return serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()));
        }
        let tls = TlsIdentity::generate(seams).map_err(|error| damaged(error.to_string()))?;
        let identity = Self {
            token: seams.random.hex(TOKEN_BYTES),
            certificate_pem: tls.certificate_pem,
            key_pem: tls.key_pem,
        };
        let text = serde_json::to_vec_pretty(&identity).map_err(|error| damaged(error.to_string()))?;
        data.write_private(FILE, &text)?;
        Ok(identity)
    }

    /// The part that the HTTPS front needs.
    pub(crate) fn tls(&self) -> TlsIdentity {
        TlsIdentity {
            certificate_pem: self.certificate_pem.clone(),
            key_pem: self.key_pem.clone(),
        }
    }
}
