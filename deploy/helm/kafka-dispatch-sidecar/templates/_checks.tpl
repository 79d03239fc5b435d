{{- /*
What the schema cannot say: values that are right by themselves and contradict each other. Each
failure is one sentence that begins with the value. Everything that is rendered includes this.
*/ -}}

{{- define "kafka-dispatch-sidecar.check" -}}
{{- include "kafka-dispatch-sidecar.checkConfig" . -}}
{{- include "kafka-dispatch-sidecar.checkPod" . -}}
{{- if and .Values.autoscaling.enabled .Values.keda.enabled -}}
{{- fail "keda.enabled and autoscaling.enabled are both true: two autoscalers would fight over the replicas, keep one." -}}
{{- end -}}
{{- if and .Values.keda.enabled (not .Values.keda.lag.enabled) (not .Values.keda.backlog.enabled) -}}
{{- fail "keda.enabled is true and neither keda.lag nor keda.backlog is: enable what to scale by." -}}
{{- end -}}
{{- if and .Values.keda.enabled .Values.keda.backlog.enabled (not .Values.keda.backlog.serverAddress) -}}
{{- fail "keda.backlog.serverAddress is missing: the address of Prometheus." -}}
{{- end -}}
{{- range $name := list "autoscaling" "keda" -}}
{{- $scaler := index $.Values $name -}}
{{- if and $scaler.enabled (lt (int $scaler.maxReplicas) (int $scaler.minReplicas)) -}}
{{- fail (printf "%s.maxReplicas (%v) is below %s.minReplicas (%v): raise it." $name $scaler.maxReplicas $name $scaler.minReplicas) -}}
{{- end -}}
{{- if and $scaler.enabled (not $.Values.workload.enabled) (not $scaler.target.name) -}}
{{- fail (printf "%s.target.name is missing: with workload.enabled false, say whose replicas are to change." $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "kafka-dispatch-sidecar.checkConfig" -}}
{{- $config := .Values.sidecar.config -}}
{{- $kafka := $config.kafka | default dict -}}
{{- if not (index $kafka "bootstrap.servers") -}}
{{- fail "sidecar.config.kafka: bootstrap.servers is missing: the addresses of the brokers." -}}
{{- end -}}
{{- range $property, $value := $kafka -}}
{{- if and (regexMatch "password|passphrase|secret|key[.]pem$|oauthbearer[.]config$" $property) (not (kindIs "map" $value)) -}}
{{- fail (printf "sidecar.config.kafka: %s is a secret and would show in a ConfigMap: give {file: …} from sidecar.secretMounts, or {env: …}." $property) -}}
{{- end -}}
{{- end -}}
{{- range $index, $route := $config.routes -}}
{{- $at := printf "sidecar.config.routes[%d]" $index -}}
{{- if and (not (index $kafka "group.id")) (not $route.group_id) -}}
{{- fail (printf "sidecar.config.kafka: group.id is missing, and %s has no group_id of its own." $at) -}}
{{- end -}}
{{- if and (not $route.topics) (not $route.pattern) -}}
{{- fail (printf "%s.topics is missing: a list of topics, or pattern: ^…" $at) -}}
{{- end -}}
{{- if and $route.topics $route.pattern -}}
{{- fail (printf "%s.pattern is given as well as topics: keep one of them." $at) -}}
{{- end -}}
{{- if and (eq (default "at_least_once" $route.guarantee) "at_most_once") (not $route.loss_budget) -}}
{{- fail (printf "%s.loss_budget is required by at_most_once: how many records may one crash lose?" $at) -}}
{{- end -}}
{{- if and (eq (default "at_least_once" $route.guarantee) "at_least_once") (not (kindIs "invalid" $route.loss_budget)) -}}
{{- fail (printf "%s.loss_budget belongs to guarantee: at_most_once; at_least_once loses nothing." $at) -}}
{{- end -}}
{{- range $name, $value := $route.auth -}}
{{- if not (kindIs "map" $value) -}}
{{- fail (printf "%s.auth.%s is a secret and would show in a ConfigMap: give {file: …} from sidecar.secretMounts, or {env: …}." $at $name) -}}
{{- end -}}
{{- end -}}
{{- $timeout := dig "timeout_seconds" 20 $route | float64 -}}
{{- $drain := dig "drain_seconds" 25 $config | float64 -}}
{{- if ge $timeout $drain -}}
{{- fail (printf "%s.timeout_seconds (%v) must be below sidecar.config.drain_seconds (%v), or a stop cuts requests that were on time." $at $timeout $drain) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "kafka-dispatch-sidecar.checkPod" -}}
{{- $config := .Values.sidecar.config -}}
{{- if hasKey $config "grace_seconds" -}}
{{- fail "sidecar.config.grace_seconds is set by the chart: remove it, and see terminationGracePeriodSeconds." -}}
{{- end -}}
{{- $admin := $config.admin -}}
{{- if hasKey $admin "token" -}}
{{- fail "sidecar.config.admin.token would show in a ConfigMap: name a Secret in sidecar.adminToken." -}}
{{- end -}}
{{- if hasKey $admin "token_file" -}}
{{- fail "sidecar.config.admin.token_file is set by the chart: name a Secret in sidecar.adminToken." -}}
{{- end -}}
{{- if hasKey $admin "socket" -}}
{{- fail "sidecar.config.admin.socket is set by the chart: the drain at the end of the pod goes through it." -}}
{{- end -}}
{{- if or (hasPrefix "127." $admin.host) (has $admin.host (list "localhost" "::1")) -}}
{{- fail (printf "sidecar.config.admin.host (%s) is loopback: probes come from outside the pod, keep 0.0.0.0 (or ::)." $admin.host) -}}
{{- end -}}
{{- if not (int $admin.port) -}}
{{- fail "sidecar.config.admin.port is 0: probes need a port that is known." -}}
{{- end -}}
{{- $drain := include "kafka-dispatch-sidecar.drainSeconds" . | int -}}
{{- $stop := ceil .Values.app.stopSeconds | int -}}
{{- $grace := include "kafka-dispatch-sidecar.graceSeconds" . | int -}}
{{- if lt $grace (add $drain $stop | int) -}}
{{- fail (printf "terminationGracePeriodSeconds (%d) is below sidecar.config.drain_seconds (%d) and app.stopSeconds (%d) together: the pod would be killed before it has drained." $grace $drain $stop) -}}
{{- end -}}
{{- if and .Values.sidecar.native (semverCompare "<1.29-0" .Capabilities.KubeVersion.Version) -}}
{{- fail (printf "sidecar.native needs Kubernetes 1.29 or newer (this is %s): set it to false." .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- range $port := .Values.app.ports -}}
{{- if eq (int $port.containerPort) (int $admin.port) -}}
{{- fail (printf "app.ports: %d is also sidecar.config.admin.port, and both share the pod's network: change one." (int $admin.port)) -}}
{{- end -}}
{{- end -}}
{{- $own := list "affinity" "automountServiceAccountToken" "containers" "enableServiceLinks" "imagePullSecrets" "initContainers" "nodeSelector" "priorityClassName" "securityContext" "serviceAccountName" "terminationGracePeriodSeconds" "tolerations" "topologySpreadConstraints" "volumes" -}}
{{- range $field, $_ := .Values.extraPodSpec -}}
{{- if has $field $own -}}
{{- fail (printf "extraPodSpec.%s has a value of its own in this chart: see its values.yaml." $field) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.workload.enabled (not .Values.app.image.repository) -}}
{{- fail "app.image.repository is missing: the image of the application." -}}
{{- end -}}
{{- if and .Values.podDisruptionBudget.enabled (not (kindIs "invalid" .Values.podDisruptionBudget.minAvailable)) (not (kindIs "invalid" .Values.podDisruptionBudget.maxUnavailable)) -}}
{{- fail "podDisruptionBudget.minAvailable and maxUnavailable are both given: set one of them to null." -}}
{{- end -}}
{{- end -}}
