{{- /* The configuration as the sidecar reads it, and the times that follow from it. */ -}}

{{- define "kafka-dispatch-sidecar.drainSeconds" -}}
{{- include "kafka-dispatch-sidecar.settle" . -}}
{{- ceil (dig "drain_seconds" 25 .Values.sidecar.config) | int -}}
{{- end -}}

{{- define "kafka-dispatch-sidecar.graceSeconds" -}}
{{- $least := add (include "kafka-dispatch-sidecar.drainSeconds" . | int) (ceil .Values.app.stopSeconds | int) -}}
{{- $given := .Values.terminationGracePeriodSeconds -}}
{{- if kindIs "invalid" $given -}}
{{- $least -}}
{{- else -}}
{{- int $given -}}
{{- end -}}
{{- end -}}

{{- define "kafka-dispatch-sidecar.adminPort" -}}
{{- int .Values.sidecar.config.admin.port -}}
{{- end -}}

{{- /* The file. The pod's grace period is told, so that the sidecar checks its own times by it. */ -}}
{{- define "kafka-dispatch-sidecar.config" -}}
{{- include "kafka-dispatch-sidecar.settle" . -}}
{{- $config := deepCopy .Values.sidecar.config -}}
{{- $_ := set $config "grace_seconds" (include "kafka-dispatch-sidecar.graceSeconds" . | int) -}}
{{- if .Values.sidecar.adminToken.secretName -}}
{{- $_ := set $config.admin "token_file" (printf "/run/secrets/sidecar-admin/%s" .Values.sidecar.adminToken.key) -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}
