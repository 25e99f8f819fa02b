{{/* What the processes read, in the words of cluster.yaml. */}}

{{/* A pool's values over those of all pools, and its name in the cluster. Takes {root, pool}. */}}
{{- define "treadle.pool" -}}
{{- $pool := mergeOverwrite (omit .root.Values.gpuNode "pools" | deepCopy) (deepCopy .pool) -}}
{{- $pool = set $pool "fullname" (printf "%s-%s" (include "treadle.fullname" .root) .pool.name) -}}
{{- toYaml (merge $pool (dict "node" (dict "max_nodes" 1 "num_threads" 1))) -}}
{{- end -}}

{{- define "treadle.config" -}}
{{- $cluster := .Values.cluster -}}
{{- $gateway := merge (dict "host" "0.0.0.0" "port" (include "treadle.port" "http" | int) "drain_s" .Values.gateway.drainSeconds) $cluster.gateway -}}
{{- $pools := list -}}
{{- range .Values.gpuNode.pools -}}
{{- $pool := include "treadle.pool" (dict "root" $ "pool" .) | fromYaml -}}
{{- $pools = append $pools (merge (dict "name" $pool.fullname) $pool.node) -}}
{{- end -}}
{{- $config := dict "models" .Values.models "nodes" list "pools" $pools "gateway" $gateway "admin_host" "0.0.0.0" -}}
{{- with .Values.tracing.endpoint -}}
{{- $config = set $config "otlp_endpoint" . -}}
{{- end -}}
{{- range $section := list "slo_classes" "tenants" "engine" "queue" "scaling" -}}
{{- with index $cluster $section -}}
{{- $config = set $config $section . -}}
{{- end -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{/* "true" where the scheduler scales the pools, through the API server. */}}
{{- define "treadle.scales" -}}
{{- if eq (.Values.cluster.scaling.provider | default "none") "kubernetes" -}}true{{- end -}}
{{- end -}}

{{/* The Secret with the API keys; empty without keys. */}}
{{- define "treadle.keysSecret" -}}
{{- if .Values.apiKeys.existingSecret -}}
{{- .Values.apiKeys.existingSecret -}}
{{- else if .Values.apiKeys.list -}}
{{- include "treadle.fullname" . }}-keys
{{- end -}}
{{- end -}}

{{/* What contradicts itself, all of it at once, in words that say what to do. */}}
{{- define "treadle.validate" -}}
{{- $redis := .Values.redis -}}
{{- $problems := list -}}
{{- if and $redis.enabled (or $redis.url $redis.existingSecret) -}}
{{- $problems = append $problems "redis.enabled: the chart's Redis and one of your own; set redis.enabled=false, or leave redis.url and redis.existingSecret empty" -}}
{{- end -}}
{{- if and (not $redis.enabled) (not (or $redis.url $redis.existingSecret)) -}}
{{- $problems = append $problems "redis.enabled: false needs redis.existingSecret or redis.url" -}}
{{- end -}}
{{- if and $redis.url $redis.existingSecret -}}
{{- $problems = append $problems "redis.url: redis.existingSecret names the address already; leave one of them empty" -}}
{{- end -}}
{{- if and .Values.apiKeys.list .Values.apiKeys.existingSecret -}}
{{- $problems = append $problems "apiKeys.list: apiKeys.existingSecret holds the keys already; leave one of them empty" -}}
{{- end -}}
{{- $pools := list -}}
{{- range .Values.gpuNode.pools -}}
{{- if has .name $pools -}}
{{- $problems = append $problems (printf "gpuNode.pools: %q is there twice" .name) -}}
{{- end -}}
{{- $pools = append $pools .name -}}
{{- end -}}
{{- with $problems -}}
{{- fail (printf "\n  - %s" (join "\n  - " .)) -}}
{{- end -}}
{{- end -}}
