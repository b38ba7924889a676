//! Creates certificate authorities and server certificates (leaves), and reads certificates that others may have stored in their place.

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData,
};
use std::time::Duration;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Difference between clocks that is tolerated: a certificate is valid from this time before its creation.
const SKEW: SignedDuration = SignedDuration::from_hours(1);

/// A certificate and its private key, both as PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The certificate.
    pub certificate: String,
    /// Private key of the certificate.
    pub key: String,
}

/// Reason why no certificate was issued.
#[derive(Debug, thiserror::Error)]
#[error("issuing a certificate")]
pub struct Error(#[from] rcgen::Error);

/// Start and end of a certificate's validity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// Not before.
    pub from: Timestamp,
    /// Not after.
    pub until: Timestamp,
}

impl Validity {
    /// The time at which two thirds of the certificate's validity are over, after which it is renewed.
    #[must_use]
    pub fn due(&self) -> Timestamp {
        let life = self.until.duration_since(self.from);
        self.from.checked_add(life / 3 * 2).unwrap_or(self.until)
    }

    /// Whether the certificate is valid at the time `now`.
    #[must_use]
    pub fn holds(&self, now: Timestamp) -> bool {
        self.from <= now && now < self.until
    }
}

fn params(name: &str, sans: Vec<String>, now: Timestamp, life: SignedDuration) -> Result<CertificateParams, Error> {
    let mut params = CertificateParams::new(sans)?;
    let at = |when: Timestamp| {
        let seconds = u64::try_from(when.as_second()).unwrap_or_default();
        rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds)
    };
    params.not_before = at(now.checked_sub(SKEW).unwrap_or(now));
    params.not_after = at(now.checked_add(life).unwrap_or(Timestamp::MAX));
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, name);
    params.distinguished_name = subject;
    Ok(params)
}

/// Creates a certificate authority. The authority's name contains the time of its creation in seconds, so that authorities created at different times have
/// different names.
///
/// # Errors
/// Fails if the key or the certificate cannot be created.
pub fn authority(now: Timestamp, life: SignedDuration) -> Result<Pair, Error> {
    let mut params = params(&format!("berth-webhook-ca-{}", now.as_second()), Vec::new(), now, life)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    let key = KeyPair::generate()?;
    Ok(Pair { certificate: params.self_signed(&key)?.pem(), key: key.serialize_pem() })
}

/// Creates a server certificate for the host names `names`, signed by an authority.
///
/// # Errors
/// Fails if the authority cannot be used, or if the certificate cannot be created.
pub fn leaf(authority: &Pair, names: &[String], now: Timestamp, life: SignedDuration) -> Result<Pair, Error> {
    let issuer = Issuer::from_ca_cert_pem(&authority.certificate, KeyPair::from_pem(&authority.key)?)?;
    let mut params = params(names.first().map_or("berth", String::as_str), names.to_vec(), now, life)?;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate()?;
    Ok(Pair { certificate: params.signed_by(&key, &issuer)?.pem(), key: key.serialize_pem() })
}

/// Creates a self-signed certificate for the host names `names`: the certificate encrypts a connection, and proves nothing about the server.
///
/// # Errors
/// Fails if the key or the certificate cannot be created.
pub fn unsigned_leaf(names: &[String], now: Timestamp, life: SignedDuration) -> Result<Pair, Error> {
    let mut params = params(names.first().map_or("berth", String::as_str), names.to_vec(), now, life)?;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate()?;
    Ok(Pair { certificate: params.self_signed(&key)?.pem(), key: key.serialize_pem() })
}

/// Reads the first certificate of a PEM text with `read`; `None` if the text has no certificate.
fn parsed<T>(pem: &str, read: impl FnOnce(&X509Certificate<'_>) -> Option<T>) -> Option<T> {
    let (_, block) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).ok()?;
    let (_, certificate) = X509Certificate::from_der(&block.contents).ok()?;
    read(&certificate)
}

fn validity_of(certificate: &X509Certificate<'_>) -> Option<Validity> {
    let at = |seconds: i64| Timestamp::from_second(seconds).ok();
    let validity = certificate.validity();
    Some(Validity { from: at(validity.not_before.timestamp())?, until: at(validity.not_after.timestamp())? })
}

/// The validity of a certificate; `None` if the text is no certificate.
#[must_use]
pub fn validity(pem: &str) -> Option<Validity> {
    parsed(pem, validity_of)
}

/// The validity of a certificate authority; `None` if the certificate is no authority, or if the key does not belong to the certificate.
#[must_use]
pub fn authority_validity(pair: &Pair) -> Option<Validity> {
    parsed(&pair.certificate, |certificate| {
        (certificate.is_ca() && is_key_of(&pair.key, certificate)).then(|| validity_of(certificate))?
    })
}

/// The validity of a server certificate; `None` if `authority` did not sign the certificate for all `names`, or if the key does not belong to the
/// certificate.
#[must_use]
pub fn leaf_validity(leaf: &Pair, authority: &str, names: &[String]) -> Option<Validity> {
    parsed(&leaf.certificate, |certificate| {
        let for_all = names.iter().all(|name| is_for(certificate, name));
        let signed = parsed(authority, |authority| certificate.verify_signature(Some(authority.public_key())).ok());
        (for_all && is_key_of(&leaf.key, certificate) && signed.is_some()).then(|| validity_of(certificate))?
    })
}

/// Whether a server certificate was signed by one of the authorities of a bundle.
#[must_use]
pub fn is_signed_by_one_of(leaf: &str, bundle: &str) -> bool {
    parsed(leaf, |certificate| {
        let blocks = x509_parser::pem::Pem::iter_from_buffer(bundle.as_bytes()).filter_map(Result::ok);
        blocks.into_iter().find_map(|block| {
            let (_, authority) = X509Certificate::from_der(&block.contents).ok()?;
            certificate.verify_signature(Some(authority.public_key())).ok()
        })
    })
    .is_some()
}

fn is_key_of(key: &str, certificate: &X509Certificate<'_>) -> bool {
    KeyPair::from_pem(key).is_ok_and(|key| key.der_bytes() == certificate.public_key().subject_public_key.data.as_ref())
}

fn is_for(certificate: &X509Certificate<'_>, name: &str) -> bool {
    let Ok(Some(names)) = certificate.subject_alternative_name() else { return false };
    let address: Option<std::net::IpAddr> = name.parse().ok();
    names.value.general_names.iter().any(|general| match (general, address) {
        (GeneralName::DNSName(dns), None) => *dns == name,
        (GeneralName::IPAddress(bytes), Some(std::net::IpAddr::V4(address))) => **bytes == address.octets(),
        (GeneralName::IPAddress(bytes), Some(std::net::IpAddr::V6(address))) => **bytes == address.octets(),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-06-01T00:00:00Z".parse().unwrap()
    }

    fn names() -> Vec<String> {
        vec!["a.b.svc".to_owned(), "127.0.0.1".to_owned()]
    }

    #[test]
    fn leaf_certificate_is_valid_only_for_authority_key_and_names() {
        let life = SignedDuration::from_hours(30);
        let (one, other) = (authority(now(), life).unwrap(), authority(now(), life).unwrap());
        let leaf = leaf(&one, &names(), now(), SignedDuration::from_hours(2)).unwrap();
        let valid = leaf_validity(&leaf, &one.certificate, &names()).unwrap();
        assert_eq!(valid.from, now() - SKEW);
        assert_eq!(valid.until, now() + SignedDuration::from_hours(2));
        assert_eq!(valid.due(), now() + SignedDuration::from_hours(1));
        assert!(valid.holds(now()) && !valid.holds(valid.until));
        assert_eq!(leaf_validity(&leaf, &other.certificate, &names()), None);
        assert_eq!(leaf_validity(&leaf, &one.certificate, &["c.d.svc".to_owned()]), None);
        let foreign = Pair { key: other.key.clone(), ..leaf.clone() };
        assert_eq!(leaf_validity(&foreign, &one.certificate, &names()), None);
        assert!(authority_validity(&one).is_some() && authority_validity(&leaf).is_none());
        assert_eq!(authority_validity(&Pair { key: other.key.clone(), ..one.clone() }), None);
        let bundle = format!("{}{}", other.certificate, one.certificate);
        assert!(is_signed_by_one_of(&leaf.certificate, &bundle));
        assert!(!is_signed_by_one_of(&leaf.certificate, &other.certificate));
    }

    #[test]
    fn text_that_is_no_certificate_has_no_validity() {
        let nothing = Pair { certificate: "x".into(), key: "y".into() };
        assert_eq!(validity("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), None);
        assert_eq!(authority_validity(&nothing), None);
        assert_eq!(leaf_validity(&nothing, "", &names()), None);
        assert!(leaf(&nothing, &names(), now(), SignedDuration::from_hours(1)).is_err());
        assert!(!is_signed_by_one_of("", ""));
    }
}
