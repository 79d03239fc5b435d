{{- /*
The routes as the sidecar understands them, as a JSON array: what is not given is filled in here, once,
for what compares routes with each other and for what looks at their topics from outside.
*/ -}}

{{- define "kafka-dispatch-sidecar.routes" -}}
{{- $kafka := .Values.sidecar.config.kafka | default dict -}}
{{- $routes := list -}}
{{- range $index, $route := .Values.sidecar.config.routes -}}
{{- $topics := $route.topics | default list -}}
{{- $pattern := $route.pattern | default "" -}}
{{- $named := regexReplaceAll "[^A-Za-z0-9_]+" $pattern "-" | trimAll "-" | default "route" -}}
{{- $name := $route.name | default (first $topics) | default $named -}}
{{- $group := $route.group_id | default (index $kafka "group.id") -}}
{{- if kindIs "float64" $group -}}{{- $group = printf "%.0f" $group -}}{{- end -}}
{{- $guarantee := $route.guarantee | default "at_least_once" -}}
{{- $parked := dig "topic" "" ($route.dead_letter | default dict) -}}
{{- $tiers := dig "retry" "topics" (list) $route -}}
{{- $waiting := list -}}
{{- if and (eq $guarantee "at_least_once") (or $tiers $parked) -}}
{{- /* Where redrives go, then one for each delay: orders.billing.retry.0s, orders.billing.retry.60s */ -}}
{{- range $tier := prepend $tiers (dict "delay_seconds" 0) -}}
{{- $wanted := printf "%s.%v.retry.%.6gs" $name $group (float64 $tier.delay_seconds) -}}
{{- $legal := regexReplaceAll "[^A-Za-z0-9._-]" $wanted "_" -}}
{{- if gt (len $legal) 249 -}}
{{- $legal = printf "%s.%s" (sha256sum $wanted | trunc 12) (trunc -236 $legal) -}}
{{- end -}}
{{- $waiting = append $waiting ($tier.topic | default $legal) -}}
{{- end -}}
{{- end -}}
{{- $routes = append $routes (dict "at" (printf "sidecar.config.routes[%d]" $index) "name" $name "topics" $topics "pattern" $pattern "group" $group "guarantee" $guarantee "parked" $parked "waiting" $waiting) -}}
{{- end -}}
{{- toJson $routes -}}
{{- end -}}

{{- /* "yes" where a route, as above, consumes a topic that is not its own: (dict "route" … "topic" …) */ -}}
{{- define "kafka-dispatch-sidecar.reads" -}}
{{- if or (has .topic .route.topics) (and .route.pattern (regexMatch .route.pattern .topic)) -}}yes{{- end -}}
{{- end -}}
