{{- /* Names and labels. Every template takes the chart's own context. */ -}}

{{- define "kafka-dispatch-sidecar.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "kafka-dispatch-sidecar.selectorLabels" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "kafka-dispatch-sidecar.ownLabels" -}}
{{ include "kafka-dispatch-sidecar.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | quote }}
{{- end -}}

{{- define "kafka-dispatch-sidecar.labels" -}}
{{ include "kafka-dispatch-sidecar.ownLabels" . }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* With further ones, which come before the common ones: (dict "root" $ "labels" …) */ -}}
{{- define "kafka-dispatch-sidecar.labelsWith" -}}
{{- toYaml (merge (dict) .labels (include "kafka-dispatch-sidecar.labels" .root | fromYaml)) -}}
{{- end -}}

{{- define "kafka-dispatch-sidecar.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (ternary (include "kafka-dispatch-sidecar.fullname" .) "default" .Values.serviceAccount.create) -}}
{{- end -}}

{{- define "kafka-dispatch-sidecar.image" -}}
{{- $tag := .image.tag | default .default -}}
{{- if .image.digest -}}
{{ printf "%s@%s" .image.repository .image.digest }}
{{- else -}}
{{ printf "%s:%s" .image.repository $tag }}
{{- end -}}
{{- end -}}

{{- /* Whose replicas an autoscaler sets: (dict "root" $ "target" …) */ -}}
{{- define "kafka-dispatch-sidecar.scaleTarget" -}}
apiVersion: apps/v1
kind: {{ .target.kind }}
name: {{ .target.name | default (include "kafka-dispatch-sidecar.fullname" .root) | quote }}
{{- end -}}
