// The CRDs of ServiceMonitors and PrometheusRules, for the end-to-end tests: only its files are read, nothing of it is built.
module berth.dev/e2e/prometheus-operator

go 1.26.0

require github.com/prometheus-operator/prometheus-operator v0.85.0
