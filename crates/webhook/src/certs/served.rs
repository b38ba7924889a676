//! The certificate that the server shows, exchanged while it runs.

use super::issue::Pair;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::sync::{Arc, PoisonError, RwLock};

/// The certificate served at this moment, and whether the API server would accept it.
#[derive(Debug)]
pub struct Served {
    key: RwLock<Option<(Pair, Arc<CertifiedKey>)>>,
    trouble: RwLock<Option<String>>,
}

impl Default for Served {
    fn default() -> Self {
        Self { key: RwLock::default(), trouble: RwLock::new(Some("the webhooks have no certificate yet".to_owned())) }
    }
}

impl Served {
    /// Serves a certificate from the next handshake on; true when it is another than before.
    ///
    /// # Errors
    /// When certificate and key do not make one; what was served before is served still.
    pub fn load(&self, pair: &Pair) -> Result<bool, rustls::Error> {
        if self.key.read().unwrap_or_else(PoisonError::into_inner).as_ref().is_some_and(|(old, _)| old == pair) {
            return Ok(false);
        }
        let unreadable = |error: rustls::pki_types::pem::Error| rustls::Error::General(error.to_string());
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(pair.certificate.as_bytes())
            .collect::<Result<_, _>>()
            .map_err(unreadable)?;
        let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).map_err(unreadable)?;
        let certified = CertifiedKey::from_der(chain, key, &ring::default_provider())?;
        *self.key.write().unwrap_or_else(PoisonError::into_inner) = Some((pair.clone(), Arc::new(certified)));
        Ok(true)
    }

    /// What is served, as PEM.
    #[must_use]
    pub fn pair(&self) -> Option<Pair> {
        self.key.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(|(pair, _)| pair.clone())
    }

    /// Says that reviews can arrive, or why not.
    pub fn set_trouble(&self, trouble: Option<String>) {
        *self.trouble.write().unwrap_or_else(PoisonError::into_inner) = trouble;
    }

    /// Why reviews cannot arrive, when they cannot.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        self.trouble.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The server's side of TLS: this certificate, TLS 1.2 and 1.3, HTTP/2 where the client speaks it.
    ///
    /// # Errors
    /// When the provider does not know the protocol versions.
    pub fn tls(self: &Arc<Self>) -> Result<Arc<ServerConfig>, rustls::Error> {
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(self) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

impl ResolvesServerCert for Served {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.key.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(|(_, key)| Arc::clone(key))
    }
}

#[cfg(test)]
mod tests {
    use super::super::issue::{authority, leaf};
    use super::*;
    use jiff::{SignedDuration, Timestamp};

    #[test]
    fn a_pair_is_loaded_once_and_rubbish_never() {
        let now: Timestamp = "2026-06-01T00:00:00Z".parse().unwrap();
        let ca = authority(now, SignedDuration::from_hours(2)).unwrap();
        let made = || leaf(&ca, &["a.svc".to_owned()], now, SignedDuration::from_hours(1)).unwrap();
        let (one, other) = (made(), made());
        let served = Arc::new(Served::default());
        assert!(served.trouble().is_some() && served.pair().is_none());
        assert_eq!(served.load(&one), Ok(true));
        assert_eq!(served.load(&one), Ok(false));
        assert!(served.load(&Pair { certificate: "x".into(), key: one.key.clone() }).is_err());
        assert!(served.load(&Pair { certificate: one.certificate.clone(), key: "x".into() }).is_err());
        assert!(served.load(&Pair { certificate: one.certificate.clone(), key: other.key.clone() }).is_err());
        assert_eq!(served.pair(), Some(one));
        assert_eq!(served.load(&other), Ok(true));
        assert!(served.tls().unwrap().alpn_protocols.len() == 2);
    }
}
