{{- /* What the sidecar would refuse at its start, outside of routes. */ -}}

{{- define "kafka-dispatch-sidecar.checkConfig" -}}
{{- $config := .Values.sidecar.config -}}
{{- $kafka := $config.kafka | default dict -}}
{{- include "kafka-dispatch-sidecar.checkKafka" $kafka -}}
{{- if not $config.routes -}}
{{- fail "sidecar.config.routes is missing: what goes where." -}}
{{- end -}}
{{- $drain := dig "drain_seconds" 25 $config | float64 -}}
{{- range $index, $route := $config.routes -}}
{{- $at := printf "sidecar.config.routes[%d]" $index -}}
{{- if and (not (index $kafka "group.id")) (not $route.group_id) -}}
{{- fail (printf "sidecar.config.kafka: group.id is missing, and %s has no group_id of its own." $at) -}}
{{- end -}}
{{- include "kafka-dispatch-sidecar.checkRoute" (dict "at" $at "route" $route) -}}
{{- $timeout := dig "timeout_seconds" 20 $route | float64 -}}
{{- if ge $timeout $drain -}}
{{- fail (printf "%s.timeout_seconds (%v) must be below sidecar.config.drain_seconds (%v), or a stop cuts requests that were on time." $at $timeout $drain) -}}
{{- end -}}
{{- end -}}
{{- include "kafka-dispatch-sidecar.checkPairs" . -}}
{{- $interval := dig "commit_interval_seconds" 1 $config | float64 -}}
{{- if ge $interval $drain -}}
{{- fail (printf "sidecar.config.commit_interval_seconds (%v) must be below drain_seconds (%v): lower it." $interval $drain) -}}
{{- end -}}
{{- $revoke := dig "revoke_seconds" 5 $config | float64 -}}
{{- $longest := get $kafka "max.poll.interval.ms" | default 300000 -}}
{{- if and (not (kindIs "map" $longest)) (ge (mulf $revoke 1000) (float64 $longest)) -}}
{{- fail (printf "sidecar.config.revoke_seconds (%v) must be below kafka's max.poll.interval.ms (%d), or waiting for a rebalance costs the membership: lower it." $revoke (int64 $longest)) -}}
{{- end -}}
{{- end -}}

{{- /* Takes kafka itself. What is given by reference is taken to be right. */ -}}
{{- define "kafka-dispatch-sidecar.checkKafka" -}}
{{- if not (index . "bootstrap.servers") -}}
{{- fail "sidecar.config.kafka: bootstrap.servers is missing: the addresses of the brokers." -}}
{{- end -}}
{{- range $property, $value := . -}}
{{- if and (regexMatch "password|passphrase|secret|key[.]pem$|oauthbearer[.]config$" $property) (not (kindIs "map" $value)) -}}
{{- fail (printf "sidecar.config.kafka: %s is a secret and would show in a ConfigMap: give {file: …} from sidecar.secretMounts, or {env: …}." $property) -}}
{{- end -}}
{{- end -}}
{{- $protocol := get . "group.protocol" -}}
{{- if eq (lower (toString $protocol)) "consumer" -}}
{{- range $name := list "session.timeout.ms" "heartbeat.interval.ms" "partition.assignment.strategy" -}}
{{- if hasKey $ $name -}}
{{- fail (printf "sidecar.config.kafka: %s does not belong to group.protocol: consumer, where the broker decides it: remove it." $name) -}}
{{- end -}}
{{- end -}}
{{- else if not (kindIs "map" $protocol) -}}
{{- if hasKey . "group.remote.assignor" -}}
{{- fail "sidecar.config.kafka: group.remote.assignor needs group.protocol: consumer; add it or remove it." -}}
{{- end -}}
{{- $heartbeat := get . "heartbeat.interval.ms" | default 3000 -}}
{{- $session := get . "session.timeout.ms" | default 45000 -}}
{{- $longest := get . "max.poll.interval.ms" | default 300000 -}}
{{- if not (or (kindIs "map" $heartbeat) (kindIs "map" $session)) -}}
{{- if ge (int64 $heartbeat) (int64 $session) -}}
{{- fail (printf "sidecar.config.kafka: heartbeat.interval.ms (%d) must be below session.timeout.ms (%d); a third is usual." (int64 $heartbeat) (int64 $session)) -}}
{{- end -}}
{{- end -}}
{{- if not (or (kindIs "map" $session) (kindIs "map" $longest)) -}}
{{- if gt (int64 $session) (int64 $longest) -}}
{{- fail (printf "sidecar.config.kafka: session.timeout.ms (%d) must not be above max.poll.interval.ms (%d): lower it." (int64 $session) (int64 $longest)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $mechanism := get . "sasl.mechanisms" | toString | upper -}}
{{- $security := get . "security.protocol" -}}
{{- if and (eq $mechanism "AWS_MSK_IAM") (not (kindIs "map" $security)) (ne (lower (toString $security)) "sasl_ssl") -}}
{{- fail "sidecar.config.kafka: security.protocol must be SASL_SSL with AWS_MSK_IAM." -}}
{{- end -}}
{{- if contains "OAUTHBEARER" $mechanism -}}
{{- $method := get . "sasl.oauthbearer.method" -}}
{{- $oidc := or (kindIs "map" $method) (eq (lower (toString $method)) "oidc") -}}
{{- $unsecured := not (has (get . "enable.sasl.oauthbearer.unsecure.jwt" | toString | lower) (list "" "false")) -}}
{{- $cloud := not (has (get . "sasl.oauthbearer.metadata.authentication.type" | toString | lower) (list "" "none")) -}}
{{- if not (or $oidc $unsecured $cloud) -}}
{{- fail "sidecar.config.kafka: sasl.mechanisms: OAUTHBEARER needs a source of tokens: set sasl.oauthbearer.method: oidc and its client id, client secret and token endpoint." -}}
{{- end -}}
{{- end -}}
{{- end -}}
