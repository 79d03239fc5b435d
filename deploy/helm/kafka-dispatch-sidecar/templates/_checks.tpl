{{- /*
What the schema cannot say: values that are right by themselves and contradict each other. Each
failure is one sentence that begins with the value. Everything that is rendered includes this; it is done once.
*/ -}}

{{- define "kafka-dispatch-sidecar.check" -}}
{{- include "kafka-dispatch-sidecar.settle" . -}}
{{- if not .Values.checked -}}
{{- include "kafka-dispatch-sidecar.checkConfig" . -}}
{{- include "kafka-dispatch-sidecar.checkPod" . -}}
{{- include "kafka-dispatch-sidecar.checkNames" . -}}
{{- include "kafka-dispatch-sidecar.checkScaling" . -}}
{{- $_ := set .Values "checked" true -}}
{{- end -}}
{{- end -}}

{{- /*
A value that is null, or has nothing behind its colon, is taken out by helm, with all that would be below
it: it is put back as it is by default. What is null by default, and what Kubernetes knows better, is left.
*/ -}}
{{- define "kafka-dispatch-sidecar.settle" -}}
{{- if not .Values.settled -}}
{{- $defaults := .Files.Get "files/defaults.yaml" | required "This chart was packed without its files." | fromYaml -}}
{{- include "kafka-dispatch-sidecar.fill" (dict "into" .Values "from" $defaults) -}}
{{- $_ := set .Values "settled" true -}}
{{- end -}}
{{- end -}}

{{- define "kafka-dispatch-sidecar.fill" -}}
{{- $into := .into -}}
{{- range $key, $value := .from -}}
{{- if kindIs "invalid" (index $into $key) -}}
{{- $_ := set $into $key $value -}}
{{- else if kindIs "map" $value -}}
{{- include "kafka-dispatch-sidecar.fill" (dict "into" (index $into $key) "from" $value) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "kafka-dispatch-sidecar.checkScaling" -}}
{{- $keda := .Values.keda -}}
{{- if and .Values.autoscaling.enabled $keda.enabled -}}
{{- fail "keda.enabled and autoscaling.enabled are both true: two autoscalers would fight over the replicas, keep one." -}}
{{- end -}}
{{- if and $keda.enabled (not $keda.lag.enabled) (not $keda.backlog.enabled) -}}
{{- fail "keda.enabled is true and neither keda.lag nor keda.backlog is: enable what to scale by." -}}
{{- end -}}
{{- if and $keda.enabled $keda.backlog.enabled (not $keda.backlog.serverAddress) -}}
{{- fail "keda.backlog.serverAddress is missing: the address of Prometheus." -}}
{{- end -}}
{{- if and $keda.enabled (not $keda.lag.enabled) (not (int $keda.minReplicas)) -}}
{{- fail "keda.minReplicas is 0 and keda.lag is off: nothing would start the first pod, since the backlog is told by pods. Enable keda.lag, or set keda.minReplicas to 1." -}}
{{- end -}}
{{- if and $keda.enabled $keda.lag.enabled -}}
{{- range $name := list "bootstrap.servers" "group.id" "auto.offset.reset" -}}
{{- if kindIs "map" (get $.Values.sidecar.config.kafka $name) -}}
{{- fail (printf "sidecar.config.kafka: %s is read by the pod alone, and keda.lag needs it: write it as text, or scale by keda.backlog." $name) -}}
{{- end -}}
{{- end -}}
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

{{- define "kafka-dispatch-sidecar.checkPod" -}}
{{- $config := .Values.sidecar.config -}}
{{- if hasKey $config "grace_seconds" -}}
{{- fail "sidecar.config.grace_seconds is set by the chart: remove it, and see terminationGracePeriodSeconds." -}}
{{- end -}}
{{- $admin := $config.admin -}}
{{- if $admin.token -}}
{{- fail "sidecar.config.admin.token would show in a ConfigMap: name a Secret in sidecar.adminToken." -}}
{{- end -}}
{{- if $admin.token_file -}}
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
{{- range $container := prepend .Values.extraContainers (dict "name" "app" "ports" .Values.app.ports) -}}
{{- $at := ternary "app.ports" (printf "extraContainers: %s: ports" $container.name) (eq $container.name "app") -}}
{{- range $port := $container.ports -}}
{{- if eq (int $port.containerPort) (int $admin.port) -}}
{{- fail (printf "%s: %d is also sidecar.config.admin.port, and both share the pod's network: change one." $at (int $admin.port)) -}}
{{- end -}}
{{- if eq ($port.name | default "") "sidecar-admin" -}}
{{- fail (printf "%s: sidecar-admin is the name of the sidecar's port, by which it is scraped: choose another." $at) -}}
{{- end -}}
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
{{- if not .Values.sidecar.image.repository -}}
{{- fail "sidecar.image.repository is empty: the image of the sidecar, where it was pushed to." -}}
{{- end -}}
{{- if and .Values.podDisruptionBudget.enabled (not (kindIs "invalid" .Values.podDisruptionBudget.minAvailable)) (not (kindIs "invalid" .Values.podDisruptionBudget.maxUnavailable)) -}}
{{- fail "podDisruptionBudget.minAvailable and maxUnavailable are both given: set one of them to null." -}}
{{- end -}}
{{- end -}}
