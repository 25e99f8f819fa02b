{{/* What contradicts itself, all of it at once, in words that say what to do. */}}
{{- define "treadle.validate" -}}
{{- $redis := .Values.redis -}}
{{- $keys := .Values.apiKeys -}}
{{- $problems := list -}}
{{- $sentinels := $redis.sentinel.addresses -}}
{{- if and $redis.enabled (or $redis.url $redis.existingSecret $sentinels) -}}
{{- $problems = append $problems "redis.enabled: true runs a Redis, but redis.url, redis.existingSecret or redis.sentinel is set" -}}
{{- else if not (or $redis.enabled $redis.url $redis.existingSecret $sentinels) -}}
{{- $problems = append $problems "redis.enabled: false needs redis.existingSecret or redis.url, or redis.sentinel" -}}
{{- else if and $redis.url $redis.existingSecret -}}
{{- $problems = append $problems "redis.url: redis.existingSecret holds the address already; empty one of them" -}}
{{- else if and $sentinels (or $redis.url $redis.existingSecret) -}}
{{- $problems = append $problems "redis.sentinel: redis.url or redis.existingSecret holds the address already; empty one of them" -}}
{{- end -}}
{{- if and $sentinels (not $redis.sentinel.service) -}}
{{- $problems = append $problems "redis.sentinel.service: the name under which the sentinels know the master" -}}
{{- end -}}
{{- if and (not $redis.enabled) (not $sentinels) $redis.auth.existingSecret -}}
{{- $problems = append $problems "redis.auth: is for the Redis that is run here; the address of yours has its own" -}}
{{- end -}}
{{- if and $redis.acl.enabled $redis.auth.existingSecret -}}
{{- $problems = append $problems "redis.auth: users have passwords of their own (redis.acl); empty it" -}}
{{- end -}}
{{- if and $redis.acl.enabled $redis.url -}}
{{- $problems = append $problems "redis.acl: one redis.url cannot be for several users; put theirs into redis.existingSecret" -}}
{{- end -}}
{{- if and $redis.acl.enabled $sentinels (not $redis.acl.existingSecret) -}}
{{- $problems = append $problems "redis.acl.existingSecret: a Redis of yours knows the passwords; name the Secret that holds them" -}}
{{- end -}}
{{- if and $redis.tls.enabled (not $redis.tls.existingSecret) (or (not $redis.enabled) (not $redis.tls.certManager.issuerRef.name)) -}}
{{- $problems = append $problems "redis.tls: needs redis.tls.existingSecret, or for the Redis that is run here redis.tls.certManager.issuerRef" -}}
{{- end -}}
{{- if and $keys.list $keys.existingSecret -}}
{{- $problems = append $problems "apiKeys.list: apiKeys.existingSecret holds the keys already; empty one of them" -}}
{{- end -}}
{{- if and .Values.httpRoute.enabled (not .Values.httpRoute.parentRefs) -}}
{{- $problems = append $problems "httpRoute.parentRefs: name the Gateway that the route belongs to" -}}
{{- end -}}
{{- if and .Values.cluster.batches (not .Values.batches.enabled) -}}
{{- $problems = append $problems "cluster.batches: nobody takes batches; set batches.enabled" -}}
{{- end -}}
{{- if and .Values.modelStorage.reload (include "treadle.pulls" .) -}}
{{- $problems = append $problems "modelStorage.reload: pods fetch models only when they start; put the files there yourself (kind: hostPath, or pvc.pull: false)" -}}
{{- end -}}
{{- $fullname := include "treadle.fullname" . -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $fullname) -}}
{{- $problems = append $problems (printf "fullnameOverride: services are called after %q, so it begins with a small letter, and has small letters, digits and hyphens; set another" $fullname) -}}
{{- end -}}
{{- with .Values.gateway.autoscaling -}}
{{- if and .enabled (gt (int .minReplicas) (int .maxReplicas)) -}}
{{- $problems = append $problems (printf "gateway.autoscaling: minReplicas (%d) is above maxReplicas (%d)" (int .minReplicas) (int .maxReplicas)) -}}
{{- end -}}
{{- end -}}
{{- $names := list -}}
{{- range $number, $pool := .Values.gpuNode.pools -}}
{{- if has $pool.name $names -}}
{{- $problems = append $problems (printf "gpuNode.pools.%d.name: %q is there twice" $number $pool.name) -}}
{{- end -}}
{{- $names = append $names $pool.name -}}
{{- $device := dig "node" "device" "cpu" $pool -}}
{{- if and (hasPrefix "cuda:" $device) (ne $device "cuda:0") -}}
{{- $problems = append $problems (printf "gpuNode.pools.%d.node.device: a pod sees only the devices that it is given; set cuda:0" $number) -}}
{{- end -}}
{{- if and (eq (dig "node" "engine" "treadle" $pool) "vllm") (hasPrefix "cuda:" $device) (not (dig "image" "repository" "" $pool)) -}}
{{- $problems = append $problems (printf "gpuNode.pools.%d.image.repository: the image gpu-node-vllm is for processors; name one of yours, with node.vllm.python in it" $number) -}}
{{- end -}}
{{- end -}}
{{- with $problems -}}
{{- fail (printf "%d of these values do not fit together:\n  - %s" (len .) (join "\n  - " .)) -}}
{{- end -}}
{{- end -}}
