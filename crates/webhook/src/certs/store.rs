//! The Secret with certificates and keys, which is read and written without loss of other data in it.

use super::issue::{Pair, is_signed_by_one_of, validity};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;

/// Annotation of the Secret: time since which the API server knows the next authority.
const PUBLISHED: &str = "berth.dev/next-ca-published-at";
/// Annotation of the Secret: time since which server certificates of the present authority are served.
const SWITCHED: &str = "berth.dev/ca-switched-at";
/// Annotation of the Secret by which a user requests a new authority; its value does not matter.
pub const ROTATE: &str = "berth.dev/rotate-ca";

/// The content of the Secret; an authority is first the next, then the present, then the previous one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// The present authority, which signs.
    pub ca: Option<Pair>,
    /// The server certificate that is served.
    pub leaf: Option<Pair>,
    /// The next authority, which will sign once the API server knows it.
    pub next: Option<Pair>,
    /// The previous authority, whose server certificates a slow replica may still serve.
    pub previous: Option<String>,
    /// Time since which the API server knows the next authority.
    pub published_at: Option<Timestamp>,
    /// Time since which the present authority signs instead of the previous one.
    pub switched_at: Option<Timestamp>,
    /// True if an annotation of the Secret requests a new authority.
    pub asked: bool,
}

impl Stored {
    /// Reads a Secret; the value of a key that is missing or holds no text is `None`.
    #[must_use]
    pub fn read(secret: &Secret) -> Self {
        let text = |key: &str| {
            let bytes = secret.data.as_ref()?.get(key)?;
            String::from_utf8(bytes.0.clone()).ok().filter(|text| !text.trim().is_empty())
        };
        let pair = |certificate: &str, key: &str| Some(Pair { certificate: text(certificate)?, key: text(key)? });
        let annotation = |key: &str| secret.metadata.annotations.as_ref()?.get(key);
        let time = |key: &str| annotation(key)?.parse().ok();
        Self {
            ca: pair("ca.crt", "ca.key"),
            leaf: pair("tls.crt", "tls.key"),
            next: pair("ca-next.crt", "ca-next.key"),
            previous: text("ca-previous.crt"),
            published_at: time(PUBLISHED),
            switched_at: time(SWITCHED),
            asked: annotation(ROTATE).is_some(),
        }
    }

    /// Writes the certificates, times and annotations into a Secret.
    pub fn write(&self, secret: &mut Secret) {
        secret.type_ = Some(secret.type_.take().unwrap_or_else(|| "Opaque".to_owned()));
        let data = secret.data.get_or_insert_default();
        let certificate = |pair: &Option<Pair>| pair.as_ref().map(|pair| pair.certificate.clone());
        let key = |pair: &Option<Pair>| pair.as_ref().map(|pair| pair.key.clone());
        for (name, value) in [
            ("ca.crt", certificate(&self.ca)),
            ("ca.key", key(&self.ca)),
            ("tls.crt", certificate(&self.leaf)),
            ("tls.key", key(&self.leaf)),
            ("ca-next.crt", certificate(&self.next)),
            ("ca-next.key", key(&self.next)),
            ("ca-previous.crt", self.previous.clone()),
        ] {
            match value {
                Some(text) => data.insert(name.to_owned(), ByteString(text.into_bytes())),
                None => data.remove(name),
            };
        }
        let annotations = secret.metadata.annotations.get_or_insert_default();
        for (name, value) in [
            (PUBLISHED, self.published_at.map(|at| at.to_string())),
            (SWITCHED, self.switched_at.map(|at| at.to_string())),
        ] {
            match value {
                Some(text) => annotations.insert(name.to_owned(), text),
                None => annotations.remove(name),
            };
        }
        if !self.asked {
            annotations.remove(ROTATE);
        }
    }

    /// The authorities that the API server should trust, each once. The order of the authorities in the bundle does not depend on their roles, so
    /// that a switch of roles does not change the bundle.
    #[must_use]
    pub fn bundle(&self) -> String {
        let pairs = [&self.ca, &self.next].into_iter().flatten().map(|pair| pair.certificate.as_str());
        let mut all: Vec<String> = pairs
            .chain(self.previous.as_deref())
            .filter(|text| validity(text).is_some())
            .map(|text| format!("{}\n", text.trim()))
            .collect();
        all.sort();
        all.dedup();
        all.concat()
    }

    /// Whether an API server that trusts the authorities in `bundle` accepts the served certificate.
    #[must_use]
    pub fn is_trusted_by(&self, bundle: &str) -> bool {
        self.leaf.as_ref().is_some_and(|leaf| is_signed_by_one_of(&leaf.certificate, bundle))
    }
}

#[cfg(test)]
mod tests {
    use super::super::issue::authority;
    use super::*;
    use jiff::SignedDuration;
    use std::collections::BTreeMap;

    #[test]
    fn stored_certificates_round_trip_through_secret_and_keep_other_data() {
        let now: Timestamp = "2026-06-01T00:00:00Z".parse().unwrap();
        let made = || Some(authority(now, SignedDuration::from_hours(1)).unwrap());
        let stored = Stored {
            ca: made(),
            leaf: made(),
            next: made(),
            previous: made().map(|pair| pair.certificate),
            published_at: Some(now),
            switched_at: None,
            asked: true,
        };
        let mut secret =
            Secret { data: Some(BTreeMap::from([("other".to_owned(), ByteString(vec![1]))])), ..Secret::default() };
        secret.metadata.annotations = Some(BTreeMap::from([(ROTATE.to_owned(), String::new())]));
        stored.write(&mut secret);
        assert_eq!(Stored::read(&secret), stored);
        assert!(secret.data.as_ref().unwrap().contains_key("other"));
        assert_eq!(stored.bundle().matches("BEGIN CERTIFICATE").count(), 3);
        let less = Stored { ca: stored.ca.clone(), leaf: stored.leaf.clone(), ..Stored::default() };
        less.write(&mut secret);
        assert_eq!(Stored::read(&secret), less);
        // A change of roles does not change the set of trusted authorities.
        let turned = Stored { ca: stored.next.clone(), next: stored.ca.clone(), ..stored.clone() };
        assert_eq!(turned.bundle(), stored.bundle());
    }

    #[test]
    fn secret_with_unreadable_certificates_counts_as_empty() {
        let bytes = |text: &[u8]| ByteString(text.to_vec());
        let data = BTreeMap::from([
            ("ca.crt".to_owned(), bytes(b"\xff\xfe")),
            ("ca.key".to_owned(), bytes(b"k")),
            ("tls.crt".to_owned(), bytes(b"  ")),
            ("ca-previous.crt".to_owned(), bytes(b"no certificate")),
        ]);
        let stored = Stored::read(&Secret { data: Some(data), ..Secret::default() });
        assert_eq!((&stored.ca, &stored.leaf, stored.bundle().as_str()), (&None, &None, ""));
    }
}
