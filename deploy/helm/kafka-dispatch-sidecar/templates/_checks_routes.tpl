{{- /*
What the sidecar would refuse at its start, in routes. The schema has said already what is wrong with
a value by itself.
*/ -}}

{{- /* One route: (dict "at" its path "route" as it was given) */ -}}
{{- define "kafka-dispatch-sidecar.checkRoute" -}}
{{- $at := .at -}}
{{- $route := .route -}}
{{- $once := eq ($route.guarantee | default "at_least_once") "at_most_once" -}}
{{- $exhausted := $route.on_exhausted | default "" -}}
{{- $threshold := $route.threshold | default $route.loss_budget | default 1000 | int64 -}}
{{- $retry := $route.retry | default dict -}}
{{- if and (not $route.topics) (not $route.pattern) -}}
{{- fail (printf "%s.topics is missing: a list of topics, or pattern: ^…" $at) -}}
{{- end -}}
{{- if and $route.topics $route.pattern -}}
{{- fail (printf "%s.pattern is given as well as topics: keep one of them." $at) -}}
{{- end -}}
{{- if regexMatch `\\[dD]|\(\?|[*+?}]\?` ($route.pattern | default "") -}}
{{- fail (printf "%s.pattern (%s) is a POSIX extended expression: no \\d, (?…) or lazy repeats; write [0-9] for \\d." $at $route.pattern) -}}
{{- end -}}
{{- if and $once (not $route.loss_budget) -}}
{{- fail (printf "%s.loss_budget is required by at_most_once: how many records may one crash lose?" $at) -}}
{{- end -}}
{{- if and (not $once) (not (kindIs "invalid" $route.loss_budget)) -}}
{{- fail (printf "%s.loss_budget belongs to guarantee: at_most_once; at_least_once loses nothing." $at) -}}
{{- end -}}
{{- if and $once (ne $threshold (int64 $route.loss_budget)) -}}
{{- fail (printf "%s.threshold (%d) is the loss_budget (%d) in at_most_once: remove one, or make them equal." $at $threshold (int64 $route.loss_budget)) -}}
{{- end -}}
{{- if and (eq $exhausted "park") (not $route.dead_letter) -}}
{{- fail (printf "%s.on_exhausted: park needs a place: add dead_letter: {topic: …}" $at) -}}
{{- end -}}
{{- if and $once (has $exhausted (list "halt" "retry_forever")) -}}
{{- fail (printf "%s.on_exhausted: %s would send again what may have been processed, which at_most_once promises not to do: choose park or drop." $at $exhausted) -}}
{{- end -}}
{{- if and $once $retry.topics -}}
{{- fail (printf "%s.retry.topics would deliver again what may have been processed, which at_most_once promises not to do: remove them, or choose at_least_once." $at) -}}
{{- end -}}
{{- range $name := list "relieve_after_seconds" "relieve_by" -}}
{{- if and $once (hasKey $route $name) -}}
{{- fail (printf "%s.%s says nothing in at_most_once, whose commits wait for no record: remove it." $at $name) -}}
{{- end -}}
{{- end -}}
{{- if and (eq ($route.relieve_by | default "retry") "park") (not $route.dead_letter) -}}
{{- fail (printf "%s.relieve_by: park needs a place: add dead_letter: {topic: …}" $at) -}}
{{- end -}}
{{- $first := dig "initial_backoff_seconds" 0.2 $retry | float64 -}}
{{- $longest := dig "max_backoff_seconds" 30 $retry | float64 -}}
{{- if gt $first $longest -}}
{{- fail (printf "%s.retry.initial_backoff_seconds (%v) must not be above max_backoff_seconds (%v)." $at $first $longest) -}}
{{- end -}}
{{- include "kafka-dispatch-sidecar.checkCredentials" . -}}
{{- include "kafka-dispatch-sidecar.checkRequests" (dict "at" $at "route" $route "threshold" $threshold) -}}
{{- end -}}

{{- /* Headers and auth of a route: (dict "at" … "route" …) */ -}}
{{- define "kafka-dispatch-sidecar.checkCredentials" -}}
{{- $at := .at -}}
{{- $route := .route -}}
{{- range $name, $value := $route.auth -}}
{{- if not (or (kindIs "map" $value) (kindIs "invalid" $value)) -}}
{{- fail (printf "%s.auth.%s is a secret and would show in a ConfigMap: give {file: …} from sidecar.secretMounts, or {env: …}." $at $name) -}}
{{- end -}}
{{- end -}}
{{- $seen := dict -}}
{{- range $name, $value := $route.headers -}}
{{- $header := lower $name -}}
{{- if regexMatch "^(connection|content-length|content-type|host|te|trailer|transfer-encoding|baggage|expect|idempotency-key|pubsubname|traceparent|tracestate|upgrade)$|^(__|ce-|kafka-|sidecar-|webhook-)" $header -}}
{{- fail (printf "%s.headers.%s is the sidecar's own header: remove it." $at $name) -}}
{{- end -}}
{{- if hasKey $seen $header -}}
{{- fail (printf "%s.headers.%s is given twice." $at $name) -}}
{{- end -}}
{{- $_ := set $seen $header true -}}
{{- if and (eq $header "authorization") (dig "bearer" "" ($route.auth | default dict)) -}}
{{- fail (printf "%s.headers.%s is given as well as auth.bearer: keep one of them." $at $name) -}}
{{- end -}}
{{- if and (regexMatch "authorization|cookie|token|secret|passw|credential|signature|(api|access|auth|private)-?key|(^|-)auth(-|$)" $header) (not (kindIs "map" $value)) -}}
{{- fail (printf "%s.headers.%s is a secret by its name and would show in a ConfigMap: give {file: …} from sidecar.secretMounts, or {env: …}." $at $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* What the app is sent: (dict "at" … "route" … "threshold" …) */ -}}
{{- define "kafka-dispatch-sidecar.checkRequests" -}}
{{- $at := .at -}}
{{- $route := .route -}}
{{- $encodings := dict "default" (list "raw" "cloudevents") "dapr" (list "cloudevents" "raw") "knative" (list "cloudevents") "pubsub" (list "pubsub" "raw") "lambda" (list "lambda") -}}
{{- $preset := $route.preset | default "default" -}}
{{- $fits := index $encodings $preset -}}
{{- $encoding := $route.encoding | default (first $fits) -}}
{{- if not (has $encoding $fits) -}}
{{- fail (printf "%s.encoding: %s is not what preset: %s sends: %s." $at $encoding $preset (join " or " $fits)) -}}
{{- end -}}
{{- if kindIs "map" $route.cloudevents -}}
{{- if ne $encoding "cloudevents" -}}
{{- fail (printf "%s.cloudevents needs encoding: cloudevents." $at) -}}
{{- end -}}
{{- $fixed := get (dict "dapr" "structured" "knative" "binary") $preset -}}
{{- if and $fixed (ne ($route.cloudevents.mode | default $fixed) $fixed) -}}
{{- fail (printf "%s.cloudevents.mode is %s with preset: %s." $at $fixed $preset) -}}
{{- end -}}
{{- end -}}
{{- if kindIs "map" $route.batch -}}
{{- if has $preset (list "dapr" "knative" "pubsub") -}}
{{- fail (printf "%s.batch is nothing that preset: %s knows: remove batch, or leave out preset and choose encoding: raw or cloudevents." $at $preset) -}}
{{- end -}}
{{- if $route.headers_always -}}
{{- fail (printf "%s.headers_always says nothing of batches, which hold all headers: remove it." $at) -}}
{{- end -}}
{{- $records := dig "max_records" 100 $route.batch | int64 -}}
{{- if gt $records .threshold -}}
{{- fail (printf "%s.batch.max_records (%d) must not be above threshold (%d), or no batch is ever full: lower it." $at $records .threshold) -}}
{{- end -}}
{{- end -}}
{{- $secure := hasPrefix "https://" (lower $route.target) -}}
{{- if and $route.http2 (not $secure) -}}
{{- fail (printf "%s.http2 needs an https target: remove it, or change target." $at) -}}
{{- end -}}
{{- if kindIs "map" $route.tls -}}
{{- if not $secure -}}
{{- fail (printf "%s.tls belongs to an https target: remove it, or change target." $at) -}}
{{- end -}}
{{- if ne (empty $route.tls.cert_file) (empty $route.tls.key_file) -}}
{{- fail (printf "%s.tls needs cert_file and key_file together." $at) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The routes against each other. */ -}}
{{- define "kafka-dispatch-sidecar.checkPairs" -}}
{{- $routes := include "kafka-dispatch-sidecar.routes" . | fromJsonArray -}}
{{- $brokers := eq (dig "group.protocol" "classic" .Values.sidecar.config.kafka | toString | lower) "consumer" -}}
{{- $dead := dict -}}
{{- $waits := dict -}}
{{- range $one := $routes -}}
{{- if and $one.parked (has $one.parked $one.topics) -}}
{{- fail (printf "%s.dead_letter.topic (%s) is read by the same route, which would be a loop: choose a name that it does not read." $one.at $one.parked) -}}
{{- end -}}
{{- if $one.parked -}}
{{- $_ := set $dead $one.parked $one.at -}}
{{- end -}}
{{- end -}}
{{- range $second, $other := $routes -}}
{{- range $one := slice $routes 0 $second -}}
{{- if eq $one.name $other.name -}}
{{- fail (printf "%s.name (%s) is also the name of %s: names must differ." $other.at $other.name $one.at) -}}
{{- end -}}
{{- range $topic := concat $one.topics $other.topics -}}
{{- if and (eq (toJson $one.group) (toJson $other.group)) (include "kafka-dispatch-sidecar.reads" (dict "route" $one "topic" $topic)) (include "kafka-dispatch-sidecar.reads" (dict "route" $other "topic" $topic)) -}}
{{- fail (printf "%s reads %s like %s, in the same group: each would get a part of it. Give one of them a group_id, or take the topic out." $other.at $topic $one.at) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $topic := $other.waiting -}}
{{- if hasKey $waits $topic -}}
{{- fail (printf "%s.retry: the topic %s is that of %s as well: give it another name." $other.at $topic (get $waits $topic)) -}}
{{- end -}}
{{- $_ := set $waits $topic $other.at -}}
{{- if hasKey $dead $topic -}}
{{- fail (printf "%s.retry: the topic %s is %s.dead_letter.topic as well: give one of them another name." $other.at $topic (get $dead $topic)) -}}
{{- end -}}
{{- range $reader := $routes -}}
{{- $others := and (ne $reader.at $other.at) (eq (toJson $reader.group) (toJson $other.group)) -}}
{{- if or (has $topic $reader.topics) (and $others (include "kafka-dispatch-sidecar.reads" (dict "route" $reader "topic" $topic))) -}}
{{- fail (printf "%s.retry: the topic %s is read by %s, which would deliver records before they are due and not as their originals: choose a name that nobody reads." $other.at $topic $reader.at) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if $brokers -}}
{{- range $route := $routes -}}
{{- range $other := $routes -}}
{{- range $topic := concat (list $other.parked) (ternary (list) $other.waiting (eq (toJson $route.group) (toJson $other.group))) -}}
{{- if and $topic $route.pattern (regexMatch $route.pattern $topic) -}}
{{- fail (printf "%s.pattern matches %s, where dead letters or retries are written, and with group.protocol: consumer the broker matches it, which can leave nothing out: choose another name for that topic, or group.protocol: classic." $route.at $topic) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
