//! The public certificate authorities of Mozilla's list, from a crate in the lock file. Images of one commit trust equal certificate authorities on whichever
//! machine they are built; the machine's own list may have authorities that its owner added.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use webpki_root_certs::TLS_SERVER_ROOT_CERTS;

/// Number of base64 characters in a line of a PEM text.
const LINE: usize = 64;
const HEAD: &str = "# Certificate authorities of Mozilla's root program, from the crate webpki-root-certs.\n\
    # Licence: CDLA-Permissive-2.0, https://cdla.dev/permissive-2-0/\n";

/// All certificates of Mozilla's authorities in one PEM text.
pub(super) fn pem() -> String {
    let mut text = HEAD.to_owned();
    for certificate in TLS_SERVER_ROOT_CERTS {
        let encoded = STANDARD.encode(certificate);
        text += "-----BEGIN CERTIFICATE-----\n";
        let mut rest = encoded.as_str();
        while !rest.is_empty() {
            let (line, more) = rest.split_at(LINE.min(rest.len()));
            text += line;
            text.push('\n');
            rest = more;
        }
        text += "-----END CERTIFICATE-----\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pem_bundle_holds_every_certificate_authority_unchanged() {
        let text = pem();
        let blocks = text.split("-----BEGIN CERTIFICATE-----\n").skip(1);
        let decoded: Vec<Vec<u8>> = blocks
            .map(|block| {
                let (body, rest) = block.split_once("-----END CERTIFICATE-----\n").unwrap();
                assert!(rest.is_empty() && body.lines().all(|line| line.len() <= LINE));
                STANDARD.decode(body.replace('\n', "")).unwrap()
            })
            .collect();
        assert!(decoded.len() > 100, "{} authorities", decoded.len());
        assert!(
            decoded.iter().map(Vec::as_slice).eq(TLS_SERVER_ROOT_CERTS.iter().map(|certificate| certificate.as_ref()))
        );
    }
}
