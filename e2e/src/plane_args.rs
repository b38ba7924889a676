//! Arguments and environment of a control plane's programs.

use std::path::Path;

use crate::certificates::Certificates;

/// Environment of the control plane's programs, which are written in Go: a third of the API server's time goes into garbage collection unless it may
/// keep several times as much garbage. The memory of each program is limited, because several control planes share a machine.
pub(crate) const GARBAGE: [(&str, &str); 2] = [("GOGC", "800"), ("GOMEMLIMIT", "1500MiB")];

pub(crate) fn etcd_args(data: &Path, store: &str, peer: u16) -> Vec<String> {
    vec![
        format!("--data-dir={}", data.display()),
        format!("--listen-client-urls={store}"),
        format!("--advertise-client-urls={store}"),
        format!("--listen-peer-urls=http://127.0.0.1:{peer}"),
        format!("--initial-advertise-peer-urls=http://127.0.0.1:{peer}"),
        format!("--initial-cluster=default=http://127.0.0.1:{peer}"),
        "--unsafe-no-fsync".to_owned(),
        "--quota-backend-bytes=8589934592".to_owned(),
        "--auto-compaction-mode=periodic".to_owned(),
        "--auto-compaction-retention=5m".to_owned(),
        "--log-level=warn".to_owned(),
    ]
}

pub(crate) fn api_server_args(certificates: &Certificates, store: &str, port: u16, url: &str) -> Vec<String> {
    let file = |name: &str| certificates.file(name);
    vec![
        format!("--etcd-servers={store}"),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
        format!("--tls-cert-file={}", file("apiserver.crt")),
        format!("--tls-private-key-file={}", file("apiserver.key")),
        format!("--client-ca-file={}", file("ca.crt")),
        format!("--service-account-key-file={}", file("service-account.pub")),
        format!("--service-account-signing-key-file={}", file("service-account.key")),
        format!("--service-account-issuer={url}"),
        "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
        "--authorization-mode=RBAC".to_owned(),
        "--allow-privileged=true".to_owned(),
        // Managed clouds enable the admission plugin ExtendedResourceToleration, which adds to pods that request a device the toleration of the device's taint.
        "--enable-admission-plugins=ExtendedResourceToleration".to_owned(),
        format!("--requestheader-client-ca-file={}", file("ca.crt")),
        "--requestheader-allowed-names=front-proxy-client".to_owned(),
        "--requestheader-username-headers=X-Remote-User".to_owned(),
        "--requestheader-group-headers=X-Remote-Group".to_owned(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
        format!("--proxy-client-cert-file={}", file("front-proxy-client.crt")),
        format!("--proxy-client-key-file={}", file("front-proxy-client.key")),
        "--max-requests-inflight=5000".to_owned(),
        "--max-mutating-requests-inflight=2500".to_owned(),
        "--service-account-lookup=false".to_owned(),
    ]
}
