{{- /* How the names of all objects begin: with Kueue's name, in its place, or with our own. */}}
{{- define "berth.prefix" -}}
{{ .Values.kueueNames | ternary "kueue" "berth" }}
{{- end }}

{{- /* The service account: Kueue's name stands in for the default of ours alone. */}}
{{- define "berth.account" -}}
{{- $name := .Values.serviceAccount.name }}
{{- and .Values.kueueNames (eq $name "berth-controller-manager") | ternary "kueue-controller-manager" $name }}
{{- end }}

{{- /* A file of the chart as `berth.file` gives it, rendered with the account's name as `berth.account` has it. */}}
{{- define "berth.rendered" -}}
{{- $root := index . 0 }}
{{- $values := mergeOverwrite (deepCopy $root.Values) (dict "serviceAccount" (dict "name" (include "berth.account" $root))) }}
{{- tpl (include "berth.file" .) (dict "Values" $values "Release" $root.Release "Template" $root.Template) }}
{{- end }}

{{- /* A file of the chart, in which webhooks and what belongs to them are called as the objects are. */}}
{{- define "berth.file" -}}
{{- $text := (index . 0).Files.Get (index . 1) }}
{{- if (index . 0).Values.kueueNames }}
{{- range list "webhook-service" "webhook-server-cert" "mutating-webhook-configuration" "validating-webhook-configuration" }}
{{- $text = $text | replace (printf "berth-%s" .) (printf "kueue-%s" .) }}
{{- end }}
{{- $text = regexReplaceAll "(?m)^(- name: .*)\\.berth\\.dev$" $text "${1}.kb.io" }}
{{- end }}
{{- $text }}
{{- end }}

{{- define "berth.labels" -}}
app.kubernetes.io/name: {{ include "berth.prefix" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "berth.selector" -}}
app.kubernetes.io/name: {{ include "berth.prefix" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
control-plane: controller-manager
{{- end }}

{{- /* The namespace of the leader's lease; empty means our own. */}}
{{- define "berth.leaseNamespace" -}}
{{ .Values.leaderElection.namespace | default .Release.Namespace }}
{{- end }}

{{- /* Rendered when the lease's namespace has to be made: it is not ours and nobody else's release or hand has made it. */}}
{{- define "berth.makesLeaseNamespace" -}}
{{- $name := include "berth.leaseNamespace" . }}
{{- if ne $name .Release.Namespace }}
{{- $there := lookup "v1" "Namespace" "" $name }}
{{- $by := dig "metadata" "annotations" "meta.helm.sh/release-name" "" ($there | default dict) }}
{{- if or (not $there) (eq $by .Release.Name) }}yes{{ end }}
{{- end }}
{{- end }}

{{- /* Where a probe is served: the configuration file, the field of its health section, the default. What the manager refuses is left to it. */}}
{{- define "berth.probePath" -}}
{{- $file := index . 0 | fromYaml }}
{{- $health := $file.health }}
{{- $given := kindIs "map" $health | ternary $health dict }}
{{- $name := dig (index . 1) "" $given | default (index . 2) }}
{{- printf "/%s" (regexReplaceAll "^/+" (toString $name) "") | quote }}
{{- end }}
