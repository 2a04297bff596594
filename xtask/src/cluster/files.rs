//! The keys, certificates and kubeconfig of a test cluster, made anew for each.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// Where the files lie.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    /// The certificate clients trust.
    pub(crate) authority: PathBuf,
    /// The API server's certificate.
    pub(crate) server_certificate: PathBuf,
    /// The API server's key.
    pub(crate) server_key: PathBuf,
    /// The key service account tokens are signed with.
    pub(crate) account_key: PathBuf,
    /// The key service account tokens are checked with.
    pub(crate) account_public_key: PathBuf,
    /// The administrator's token, in the API server's format.
    pub(crate) tokens: PathBuf,
}

impl Files {
    /// The names of the files in a cluster's folder.
    pub(crate) fn of(dir: &Path) -> Self {
        let pki = dir.join("pki");
        Self {
            authority: pki.join("ca.crt"),
            server_certificate: pki.join("server.crt"),
            server_key: pki.join("server.key"),
            account_key: pki.join("service-accounts.key"),
            account_public_key: pki.join("service-accounts.pub"),
            tokens: pki.join("tokens.csv"),
        }
    }

    /// Makes the folder and all files, for an API server on a loopback port.
    pub(crate) fn write(dir: &Path, port: u16) -> Result<Self> {
        let files = Self::of(dir);
        for folder in ["pki", "logs"] {
            let folder = dir.join(folder);
            fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        }

        let authority_key = KeyPair::generate()?;
        let mut authority = CertificateParams::default();
        authority
            .distinguished_name
            .push(DnType::CommonName, "kaos test cluster");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let authority_certificate = authority.self_signed(&authority_key)?;

        let server_key = KeyPair::generate()?;
        let names = ["127.0.0.1", "localhost", "kubernetes", "kubernetes.default.svc"];
        let mut server = CertificateParams::new(names.map(str::to_owned).to_vec())?;
        server
            .distinguished_name
            .push(DnType::CommonName, "kube-apiserver");
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let server_certificate = server.signed_by(&server_key, &Issuer::new(authority, authority_key))?;

        let token = random_token()?;
        write_private(&files.authority, &authority_certificate.pem())?;
        write_private(&files.server_certificate, &server_certificate.pem())?;
        write_private(&files.server_key, &server_key.serialize_pem())?;
        let account_key = KeyPair::generate()?;
        write_private(&files.account_key, &account_key.serialize_pem())?;
        write_private(&files.account_public_key, &account_key.public_key_pem())?;
        write_private(
            &files.tokens,
            &format!("{token},admin,admin,\"system:masters\"\n"),
        )?;
        write_private(
            &dir.join("kubeconfig"),
            &kubeconfig(&files.authority, port, &token),
        )?;
        Ok(files)
    }
}

fn kubeconfig(authority: &Path, port: u16, token: &str) -> String {
    let authority = serde_json::Value::from(authority.to_string_lossy());
    format!(
        "apiVersion: v1
kind: Config
current-context: test
clusters:
- name: test
  cluster:
    server: https://127.0.0.1:{port}
    certificate-authority: {authority}
contexts:
- name: test
  context:
    cluster: test
    user: admin
users:
- name: admin
  user:
    token: {token}
"
    )
}

fn random_token() -> Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).context("the system gives no randomness")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn write_private(path: &Path, text: &str) -> Result<()> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("cannot write {}", path.display()))
}
