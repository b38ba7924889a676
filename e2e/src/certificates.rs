//! Certificates and keys of one control plane, which are made anew for each control plane.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};

/// A name of the API server that no DNS server knows: clients get the address from their `/etc/hosts`.
pub const IN_HOSTS: &str = "apiserver.berth.test";

/// The files with certificates and keys in a control plane's folder.
#[derive(Clone, Debug)]
pub struct Certificates {
    folder: PathBuf,
}

impl Certificates {
    /// Makes all certificates and keys of a control plane and writes them to `folder`.
    ///
    /// # Errors
    /// Fails when a file cannot be written.
    pub fn create(folder: &Path) -> Result<Certificates> {
        fs::create_dir_all(folder)?;
        let mut params = CertificateParams::new(Vec::<String>::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::CrlSign];
        params.distinguished_name = name("berth-e2e-ca", None);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let serving = issue(&authority, "kube-apiserver", None, ExtendedKeyUsagePurpose::ServerAuth)?;
        let proxy = issue(&authority, "front-proxy-client", None, ExtendedKeyUsagePurpose::ClientAuth)?;
        let admin = issue(&authority, "berth-e2e-admin", Some("system:masters"), ExtendedKeyUsagePurpose::ClientAuth)?;
        // The certificate of a user without a group, who has rights only by bindings.
        let tenant = issue(&authority, "alice", None, ExtendedKeyUsagePurpose::ClientAuth)?;
        let account = KeyPair::generate()?;
        let files = [
            ("alice.crt", tenant.0),
            ("alice.key", tenant.1),
            ("ca.crt", authority.pem()),
            ("apiserver.crt", serving.0),
            ("apiserver.key", serving.1),
            ("admin.crt", admin.0),
            ("admin.key", admin.1),
            ("front-proxy-client.crt", proxy.0),
            ("front-proxy-client.key", proxy.1),
            ("service-account.key", account.serialize_pem()),
            ("service-account.pub", account.public_key_pem()),
        ];
        for (file, text) in files {
            let path = folder.join(file);
            fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        }
        Ok(Certificates { folder: folder.to_path_buf() })
    }

    /// Copies the certificate for 127.0.0.1 and its key into a folder, as `tls.crt` and `tls.key`. The key is copied before the certificate, because
    /// readers wait for the certificate.
    ///
    /// # Errors
    /// Fails when a file cannot be copied.
    pub fn serving_into(&self, folder: &Path) -> Result<()> {
        for (from, to) in [("apiserver.key", "tls.key"), ("apiserver.crt", "tls.crt")] {
            fs::copy(self.file(from), folder.join(to)).with_context(|| format!("copying {from}"))?;
        }
        Ok(())
    }

    /// Path of the file `name` in the folder of the certificates.
    pub fn file(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }
}

fn name(common: &str, organization: Option<&str>) -> DistinguishedName {
    let mut dn = DistinguishedName::new();
    dn.push(DnType::CommonName, common);
    if let Some(organization) = organization {
        dn.push(DnType::OrganizationName, organization);
    }
    dn
}

fn issue(
    authority: &CertifiedIssuer<'_, KeyPair>,
    common: &str,
    organization: Option<&str>,
    usage: ExtendedKeyUsagePurpose,
) -> Result<(String, String)> {
    let sans = vec![
        "127.0.0.1".to_owned(),
        "10.0.0.1".to_owned(),
        "localhost".to_owned(),
        "kubernetes.default.svc".to_owned(),
        IN_HOSTS.to_owned(),
    ];
    let mut params = CertificateParams::new(sans)?;
    params.distinguished_name = name(common, organization);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![usage];
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, authority)?;
    Ok((certificate.pem(), key.serialize_pem()))
}
