{{/* What the processes read, in the words of cluster.yaml. */}}

{{/* A pool's values over those of all pools, and its name in the cluster. Takes {root, pool}. */}}
{{- define "treadle.pool" -}}
{{- $pool := mergeOverwrite (omit .root.Values.gpuNode "pools" | deepCopy) (deepCopy .pool) -}}
{{- $pool = set $pool "fullname" (printf "%s-%s" (include "treadle.fullname" .root) .pool.name) -}}
{{- $pool = merge $pool (dict "node" (dict "max_nodes" 1 "num_threads" 1)) -}}
{{- if eq ($pool.node.engine | default "treadle") "vllm" -}}
{{- $pool = merge $pool (dict "node" (dict "vllm" (dict "python" "/opt/treadle/bin/python"))) -}}
{{- end -}}
{{- $devices := include "treadle.poolDevices" $pool | int -}}
{{- $limits := dig "resources" "limits" dict $pool -}}
{{- if and $devices (not (hasKey $limits "nvidia.com/gpu")) -}}
{{- $pool = mergeOverwrite $pool (dict "resources" (dict "limits" (dict "nvidia.com/gpu" $devices))) -}}
{{- end -}}
{{- toYaml $pool -}}
{{- end -}}

{{/* How many NVIDIA devices each node of a pool owns. */}}
{{- define "treadle.poolDevices" -}}
{{- if hasPrefix "cuda:" (.node.device | default "cpu") -}}{{- .node.tensor_parallel | default 1 -}}{{- else -}}0{{- end -}}
{{- end -}}

{{- define "treadle.configMap" -}}
{{- include "treadle.fullname" . }}-config
{{- end -}}

{{/* What of it a pod has to be replaced for. */}}
{{- define "treadle.startConfig" -}}
{{- if .Values.modelStorage.reload -}}
{{- omit (include "treadle.config" . | fromYaml) "models" | toYaml -}}
{{- else -}}
{{- include "treadle.config" . -}}
{{- end -}}
{{- end -}}

{{- define "treadle.config" -}}
{{- $cluster := .Values.cluster -}}
{{- $own := dict "host" "0.0.0.0" "port" (include "treadle.port" "http" | int) "drain_s" .Values.gateway.drainSeconds -}}
{{- $pools := list -}}
{{- range .Values.gpuNode.pools -}}
{{- $pool := include "treadle.pool" (dict "root" $ "pool" .) | fromYaml -}}
{{- $pools = append $pools (merge (dict "name" $pool.fullname) $pool.node) -}}
{{- end -}}
{{- $config := dict
  "models" .Values.models "nodes" list "pools" $pools "gateway" (merge $own $cluster.gateway) "admin_host" "0.0.0.0" -}}
{{- if .Values.batches.enabled -}}
{{- $config = set $config "batches" (include "treadle.batchConfig" . | fromYaml) -}}
{{- end -}}
{{- with .Values.tracing.endpoint -}}
{{- $config = set $config "otlp_endpoint" . -}}
{{- end -}}
{{- range $section := list "slo_classes" "tenants" "engine" "queue" "scaling" "durability" -}}
{{- with index $cluster $section -}}
{{- $config = set $config $section . -}}
{{- end -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{/* Where the batch service has its volume. */}}
{{- define "treadle.batchFolder" -}}
/var/lib/treadle/batches
{{- end -}}

{{/* Where gateways and the batch service find each other, and what the values say of batches. */}}
{{- define "treadle.batchConfig" -}}
{{- $service := include "treadle.object" (dict "root" . "component" "batches") -}}
{{- $gateway := include "treadle.object" (dict "root" . "component" "gateway") -}}
{{- $own := dict
  "enabled" true
  "folder" (printf "%s/data" (include "treadle.batchFolder" .))
  "url" (printf "http://%s:%s" $service (include "treadle.port" "admin"))
  "gateway_url" (printf "http://%s:%d" $gateway (int .Values.gateway.service.port)) -}}
{{- toYaml (merge $own .Values.cluster.batches) -}}
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
