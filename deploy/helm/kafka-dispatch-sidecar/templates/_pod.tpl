{{- /*
The parts of a pod, for this chart's Deployment and for other charts' workloads. Another chart hands
over this chart's context: (index .Subcharts "kafka-dispatch-sidecar").
*/ -}}

{{- define "kafka-dispatch-sidecar.podAnnotations" -}}
checksum/sidecar-config: {{ include "kafka-dispatch-sidecar.config" . | sha256sum }}
{{- end -}}

{{- /* The container. In initContainers where sidecar.native, else in containers. */ -}}
{{- define "kafka-dispatch-sidecar.container" -}}
{{- include "kafka-dispatch-sidecar.check" . -}}
{{- $values := .Values.sidecar -}}
name: sidecar
image: {{ include "kafka-dispatch-sidecar.image" (dict "image" $values.image "default" .Chart.AppVersion) | quote }}
imagePullPolicy: {{ $values.image.pullPolicy }}
{{- if $values.native }}
restartPolicy: Always
{{- end }}
args: [run, -c, /etc/sidecar/sidecar.yaml]
ports:
  - {name: sidecar-admin, containerPort: {{ include "kafka-dispatch-sidecar.adminPort" . }}, protocol: TCP}
{{- with $values.env }}
env:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.envFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
# Neither waits for the app or a broker: the app is not started before the first, and keeps its traffic.
startupProbe:
  httpGet: {path: /startupz, port: sidecar-admin}
  periodSeconds: 1
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /livez, port: sidecar-admin}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
readinessProbe:
  httpGet: {path: /readyz, port: sidecar-admin}
  periodSeconds: 10
  timeoutSeconds: 5
lifecycle:
  preStop:
    exec:
      command: [sidecar, drain, --wait, {{ include "kafka-dispatch-sidecar.drainSeconds" . }}s]
resources:
  {{- toYaml $values.resources | nindent 2 }}
securityContext:
  {{- toYaml $values.securityContext | nindent 2 }}
volumeMounts:
  - {name: sidecar-config, mountPath: /etc/sidecar, readOnly: true}
  - {name: sidecar-run, mountPath: /run/sidecar}
  {{- range $values.secretMounts }}
  - {name: {{ printf "sidecar-secret-%s" .name | quote }}, mountPath: {{ printf "/run/secrets/%s" .name | quote }}, readOnly: true}
  {{- end }}
  {{- if $values.adminToken.secretName }}
  - {name: sidecar-admin-token, mountPath: /run/secrets/sidecar-admin, readOnly: true}
  {{- end }}
  {{- with $values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- define "kafka-dispatch-sidecar.volumes" -}}
{{- include "kafka-dispatch-sidecar.settle" . -}}
- name: sidecar-config
  configMap:
    name: {{ include "kafka-dispatch-sidecar.fullname" . | quote }}
- name: sidecar-run
  emptyDir: {medium: Memory, sizeLimit: 1Mi}
{{- range .Values.sidecar.secretMounts }}
- name: {{ printf "sidecar-secret-%s" .name | quote }}
  secret:
    secretName: {{ .secretName | quote }}
    defaultMode: 0444
{{- end }}
{{- with .Values.sidecar.adminToken }}
{{- if .secretName }}
- name: sidecar-admin-token
  secret:
    secretName: {{ .secretName | quote }}
    defaultMode: 0444
{{- end }}
{{- end }}
{{- end -}}

{{- /*
The app's lifecycle: its SIGTERM comes after the sidecar has drained. When the app alone is restarted
(a failed liveness probe) the hook runs too, and no drain begins: it is not to wait for one.
*/ -}}
{{- define "kafka-dispatch-sidecar.appLifecycle" -}}
preStop:
  httpGet:
    path: /v1/drained?wait_seconds={{ include "kafka-dispatch-sidecar.drainSeconds" . }}&begins_within_seconds=10
    port: {{ include "kafka-dispatch-sidecar.adminPort" . }}
{{- end -}}
