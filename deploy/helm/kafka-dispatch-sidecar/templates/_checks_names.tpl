{{- /* Names that users choose, against each other and against those of the chart. */ -}}

{{- define "kafka-dispatch-sidecar.checkNames" -}}
{{- $selecting := include "kafka-dispatch-sidecar.selectorLabels" . | fromYaml -}}
{{- $own := include "kafka-dispatch-sidecar.ownLabels" . | fromYaml -}}
{{- range $at, $labels := dict "commonLabels" .Values.commonLabels "podMonitor.labels" .Values.podMonitor.labels "prometheusRule.labels" .Values.prometheusRule.labels -}}
{{- range $label, $_ := $labels -}}
{{- if hasKey $own $label -}}
{{- fail (printf "%s: %s is a label of the chart's own: see nameOverride, or choose another." $at $label) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $label, $_ := .Values.podLabels -}}
{{- if hasKey $selecting $label -}}
{{- fail (printf "podLabels: %s is what the Deployment selects its pods by: see nameOverride, or choose another." $label) -}}
{{- end -}}
{{- end -}}
{{- if hasKey .Values.podAnnotations "checksum/sidecar-config" -}}
{{- fail "podAnnotations: checksum/sidecar-config is an annotation of the chart's own, which rolls the pods: choose another." -}}
{{- end -}}
{{- $seen := dict "app" true "sidecar" true -}}
{{- range $container := concat .Values.extraInitContainers .Values.extraContainers -}}
{{- if hasKey $seen $container.name -}}
{{- fail (printf "extraContainers, extraInitContainers: %s is the name of another container of the pod: choose another." $container.name) -}}
{{- end -}}
{{- $_ := set $seen $container.name true -}}
{{- end -}}
{{- $mounts := dict "/etc/sidecar" "its configuration" "/run/sidecar" "its socket" "/run/secrets/sidecar-admin" "sidecar.adminToken" -}}
{{- range $mount := .Values.sidecar.secretMounts -}}
{{- $path := printf "/run/secrets/%s" $mount.name -}}
{{- if hasKey $mounts $path -}}
{{- fail (printf "sidecar.secretMounts: %s is taken, and would be mounted at %s as well: choose another name." $mount.name $path) -}}
{{- end -}}
{{- $_ := set $mounts $path "sidecar.secretMounts" -}}
{{- end -}}
{{- range $mount := .Values.sidecar.extraVolumeMounts -}}
{{- $path := trimSuffix "/" $mount.mountPath -}}
{{- if hasKey $mounts $path -}}
{{- fail (printf "sidecar.extraVolumeMounts: at %s is %s already: choose another path." $path (get $mounts $path)) -}}
{{- end -}}
{{- $_ := set $mounts $path "another of them" -}}
{{- end -}}
{{- $volumes := dict -}}
{{- range $volume := include "kafka-dispatch-sidecar.volumes" . | fromYamlArray -}}
{{- $_ := set $volumes $volume.name true -}}
{{- end -}}
{{- range $volume := .Values.extraVolumes -}}
{{- if hasKey $volumes $volume.name -}}
{{- fail (printf "extraVolumes: %s is the name of another volume of the pod: choose another." $volume.name) -}}
{{- end -}}
{{- $_ := set $volumes $volume.name true -}}
{{- end -}}
{{- end -}}
