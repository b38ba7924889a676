//! The certificate that the webhook server shows, which can be exchanged while the server runs, and the certificate for metrics.

use super::issue::{self, Pair};
use jiff::{SignedDuration, Timestamp};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::sync::{Arc, PoisonError, RwLock};

/// The certificate that is served now, and the reason, if any, why the API server would not accept it.
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
    /// Serves a certificate from the next TLS handshake on; returns true if the certificate differs from the one before.
    ///
    /// # Errors
    /// Fails if the certificate and the key do not match; the server then keeps its previous certificate.
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

    /// The served certificate, as PEM.
    #[must_use]
    pub fn pair(&self) -> Option<Pair> {
        self.key.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(|(pair, _)| pair.clone())
    }

    /// Sets the reason why reviews cannot arrive; `None` if they can arrive.
    pub fn set_trouble(&self, trouble: Option<String>) {
        *self.trouble.write().unwrap_or_else(PoisonError::into_inner) = trouble;
    }

    /// The reason why reviews cannot arrive; `None` if they can arrive.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        self.trouble.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The TLS configuration of the webhook server: the certificate `self`, TLS 1.2 and 1.3, and HTTP/2 for clients that support it.
    ///
    /// # Errors
    /// Fails if the TLS provider does not support the protocol versions.
    pub fn tls(self: &Arc<Self>) -> Result<Arc<ServerConfig>, rustls::Error> {
        side(Arc::clone(self) as Arc<dyn ResolvesServerCert>, &[b"h2", b"http/1.1"])
    }

    fn shown(&self) -> Option<Arc<CertifiedKey>> {
        self.key.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(|(_, key)| Arc::clone(key))
    }
}

/// A TLS configuration for servers, with TLS 1.2 and 1.3 and the application protocols `protocols`.
fn side(shows: Arc<dyn ResolvesServerCert>, protocols: &[&[u8]]) -> Result<Arc<ServerConfig>, rustls::Error> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(shows);
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    Ok(Arc::new(config))
}

impl ResolvesServerCert for Served {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.shown()
    }
}

/// The certificate for metrics: the webhooks' certificate if there is one, or else a self-signed certificate of this process.
#[derive(Debug)]
struct OrOwn {
    webhooks: Option<Arc<Served>>,
    own: Served,
}

impl ResolvesServerCert for OrOwn {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.webhooks.as_ref().and_then(|served| served.shown()).or_else(|| self.own.shown())
    }
}

/// Reason why metrics cannot be served over TLS.
#[derive(Debug, thiserror::Error)]
pub enum FiguresError {
    /// No self-signed certificate for the metrics server could be created.
    #[error(transparent)]
    Issue(#[from] issue::Error),
    /// The certificate or the protocol versions are not accepted.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
}

/// Validity of a self-signed certificate, which is created again at each start of a process.
const OWN_LIFE: SignedDuration = SignedDuration::from_hours(24 * 3650);

/// The TLS configuration for metrics, with HTTP/1.1 only. The parameter `names` has the names in the self-signed certificate, which is used while the
/// webhooks have no certificate.
///
/// # Errors
/// Fails if no certificate can be created.
pub fn tls_of_figures(
    webhooks: Option<Arc<Served>>,
    names: &[String],
    now: Timestamp,
) -> Result<Arc<ServerConfig>, FiguresError> {
    let own = Served::default();
    own.load(&issue::unsigned_leaf(names, now, OWN_LIFE)?)?;
    Ok(side(Arc::new(OrOwn { webhooks, own }), &[b"http/1.1"])?)
}

#[cfg(test)]
mod tests {
    use super::super::issue::{authority, leaf};
    use super::*;
    use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
    use rustls::pki_types::{ServerName, UnixTime};
    use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
    use std::sync::Mutex;
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    #[test]
    fn served_pair_is_loaded_once_and_invalid_pairs_are_refused() {
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

    /// A client's verifier that trusts every server, and keeps the servers' certificates.
    #[derive(Debug, Default)]
    struct Trusting(Mutex<Vec<CertificateDer<'static>>>);

    impl ServerCertVerifier for Trusting {
        fn verify_server_cert(
            &self,
            end_entity: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: &ServerName<'_>,
            _: &[u8],
            _: UnixTime,
        ) -> Result<ServerCertVerified, rustls::Error> {
            self.0.lock().unwrap().push(end_entity.clone().into_owned());
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
            ring::default_provider().signature_verification_algorithms.supported_schemes()
        }
    }

    /// The certificate and the application protocol that a client gets in a TLS handshake.
    async fn shown_by(tls: &Arc<ServerConfig>) -> (CertificateDer<'static>, Option<Vec<u8>>) {
        let trusting = Arc::new(Trusting::default());
        let mut client = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&trusting) as Arc<dyn ServerCertVerifier>)
            .with_no_client_auth();
        client.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let (near, far) = tokio::io::duplex(64 * 1024);
        let connector = TlsConnector::from(Arc::new(client));
        let both = tokio::join!(
            connector.connect(ServerName::try_from("a.svc").unwrap(), near),
            TlsAcceptor::from(Arc::clone(tls)).accept(far)
        );
        let spoken = both.0.unwrap().get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
        both.1.unwrap();
        let seen = trusting.0.lock().unwrap().pop().unwrap();
        (seen, spoken)
    }

    #[tokio::test]
    async fn metrics_endpoint_uses_the_webhook_certificate_if_there_is_one() {
        let now = Timestamp::now();
        let names = ["a.svc".to_owned()];
        let ca = authority(now, SignedDuration::from_hours(2)).unwrap();
        let der = |pair: &Pair| CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap();
        let served = Arc::new(Served::default());
        let tls = tls_of_figures(Some(Arc::clone(&served)), &names, now).unwrap();
        let own = shown_by(&tls).await;
        assert_eq!(own.1.as_deref(), Some(&b"http/1.1"[..]));
        assert_eq!(shown_by(&tls).await.0, own.0, "the same one for as long as the process lives");
        for _ in 0..2 {
            let pair = leaf(&ca, &names, now, SignedDuration::from_hours(1)).unwrap();
            served.load(&pair).unwrap();
            assert_eq!(shown_by(&tls).await.0, der(&pair), "a new one is shown at once");
        }
        let alone = tls_of_figures(None, &names, now).unwrap();
        assert_ne!(shown_by(&alone).await.0, own.0);
    }
}
