{{/*
The pod of one of our processes: `python -m MODULE`, which reads cluster.yaml and answers /healthz and /readyz.

Takes {root, component, spec, image (its name), module} and optionally {pool, clients (true: it serves them, too), env,
models (true: it reads the files of the models), keys (true: it reads the API keys), devices (NVIDIA devices that it
owns), vllm (true: its engine is vLLM), kvFolder (where its volume kv is), dataFolder (its volume data), startupSeconds, preStopSeconds, threads} and
what treadle.pod takes.
*/}}
{{- define "treadle.component" -}}
{{- $root := .root -}}
{{- $checksums := dict "checksum/config" (include "treadle.startConfig" $root | sha256sum) -}}
{{- $config := dict "name" "config" "configMap" (dict "name" (include "treadle.configMap" $root)) -}}
{{- $volumes := prepend (.volumes | default list) $config -}}
{{- $keys := ternary (include "treadle.keysSecret" $root) "" (.keys | default false) -}}
{{- with $keys -}}
{{- $volumes = append $volumes (dict "name" "keys" "secret" (dict "secretName" . "defaultMode" 0440)) -}}
{{- end -}}
{{- if and (not $root.Values.redis.enabled) (not $root.Values.redis.existingSecret) -}}
{{- $checksums = set $checksums "checksum/redis-url" (sha256sum $root.Values.redis.url) -}}
{{- end -}}
{{- with include "treadle.redisTls" $root -}}
{{- $items := list (dict "key" "ca.crt" "path" "ca.crt") -}}
{{- $volumes = append $volumes (dict "name" "redis-ca" "secret" (dict "secretName" . "items" $items "defaultMode" 0444)) -}}
{{- end -}}
{{- $pull := "" -}}
{{- if .models -}}
{{- $volumes = append $volumes (include "treadle.modelVolume" $root | fromYaml) -}}
{{- $pull = include "treadle.pullModels" $root -}}
{{- end -}}
{{- if or .devices .vllm -}}
{{- $volumes = append $volumes (dict "name" "kernels" "emptyDir" (dict "sizeLimit" "1Gi")) -}}
{{- end -}}
{{- if or .vllm (gt (.devices | default 0) 1) -}}
{{- $volumes = append $volumes (dict "name" "shm" "emptyDir" (dict "medium" "Memory" "sizeLimit" "1Gi")) -}}
{{- end -}}
{{- $containers := include "treadle.process" (merge (dict "keysSecret" $keys) .) -}}
{{- $pod := dict "containers" $containers "initContainers" $pull "volumes" $volumes "checksums" $checksums -}}
{{- include "treadle.pod" (merge $pod (omit . "volumes")) -}}
{{- end -}}

{{- define "treadle.process" -}}
{{- $root := .root -}}
- name: {{ .component }}
  image: {{ include "treadle.image" (dict "root" $root "image" .spec.image "name" .image) }}
  imagePullPolicy: {{ .spec.image.pullPolicy | default $root.Values.image.pullPolicy }}
  command: [python, -m, {{ .module }}]
  env:
    {{- include "treadle.env" . | nindent 4 }}
  ports:
    {{- if .clients }}
    - name: http
      containerPort: {{ include "treadle.port" "http" }}
    {{- end }}
    - name: admin
      containerPort: {{ include "treadle.port" "admin" }}
  startupProbe:
    httpGet: { path: /healthz, port: admin }
    periodSeconds: 5
    failureThreshold: {{ div (add (.startupSeconds | default 120) 4) 5 }}
  livenessProbe:
    httpGet: { path: /healthz, port: admin }
    periodSeconds: 10
    timeoutSeconds: 5
    failureThreshold: 6
  readinessProbe:
    httpGet: { path: /readyz, port: admin }
    periodSeconds: 5
    timeoutSeconds: 5
  {{- with .preStopSeconds }}
  lifecycle:
    preStop:
      sleep: { seconds: {{ . }} } # until nobody sends it requests any more
  {{- end }}
  securityContext:
    {{- include "treadle.containerSecurity" $root | nindent 4 }}
  resources:
    {{- toYaml .spec.resources | nindent 4 }}
  volumeMounts:
    - name: config
      mountPath: /etc/treadle
      readOnly: true
    {{- if .keysSecret }}
    - name: keys
      mountPath: /etc/treadle-keys
      readOnly: true
    {{- end }}
    {{- if include "treadle.redisTls" $root }}
    - name: redis-ca
      mountPath: /etc/treadle-redis
      readOnly: true
    {{- end }}
    {{- if .models }}
    - name: models
      mountPath: /models
      readOnly: true
    {{- end }}
    {{- if or .devices .vllm }}
    - name: kernels # compiled when they are first launched; what restarts in its pod finds them
      mountPath: /var/cache/treadle
    {{- end }}
    {{- if or .vllm (gt (.devices | default 0) 1) }}
    - name: shm # by which devices without NVLink add; a container has 64 MiB of its own
      mountPath: /dev/shm
    {{- end }}
    {{- with .kvFolder }}
    - name: kv # the SSD below host memory
      mountPath: {{ . }}
    {{- end }}
    {{- with .dataFolder }}
    - name: data
      mountPath: {{ . }}
    {{- end }}
    - name: tmp
      mountPath: /tmp
{{- end -}}

{{- define "treadle.port" -}}
{{- get (dict "http" 8080 "admin" 9400) . -}}
{{- end -}}

{{/* Environment of a process. Takes what treadle.component takes. */}}
{{- define "treadle.env" -}}
- name: TREADLE_CONFIG
  value: /etc/treadle/cluster.yaml
- name: TREADLE_INSTANCE
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: TREADLE_ADMIN_PORT
  value: {{ include "treadle.port" "admin" | quote }}
- name: OMP_NUM_THREADS # else OpenMP takes all cores of the machine
  value: {{ .threads | default 1 | quote }}
{{ include "treadle.redisEnv" . }}
{{- if .keysSecret }}
- name: TREADLE_KEYS
  value: /etc/treadle-keys/{{ .root.Values.apiKeys.secretKey }}
{{- end }}
{{- if .models }}
- name: TREADLE_MODELS_DIR
  value: /models
{{- end }}
{{- with .env }}
{{ toYaml . }}
{{- end }}
{{- with .spec.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}
