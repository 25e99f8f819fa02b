{{/* Where Redis is, and how that is told without showing a password. */}}

{{- define "treadle.redisHost" -}}
{{- include "treadle.fullname" . }}-redis
{{- end -}}

{{/* The Secret that holds the address of a Redis of one's own. */}}
{{- define "treadle.redisSecret" -}}
{{- .Values.redis.existingSecret | default (printf "%s-redis-url" (include "treadle.fullname" .)) -}}
{{- end -}}

{{- define "treadle.redisEnv" -}}
{{- $redis := .Values.redis -}}
{{- if not $redis.enabled -}}
- name: TREADLE_REDIS_URL
  valueFrom:
    secretKeyRef:
      name: {{ include "treadle.redisSecret" . }}
      key: {{ $redis.secretKey }}
{{- else if $redis.auth.existingSecret -}}
{{ include "treadle.redisPassword" (dict "root" . "name" "TREADLE_REDIS_PASSWORD") }}
- name: TREADLE_REDIS_URL
  value: redis://:$(TREADLE_REDIS_PASSWORD)@{{ include "treadle.redisHost" . }}:6379/0
{{- else -}}
- name: TREADLE_REDIS_URL
  value: redis://{{ include "treadle.redisHost" . }}:6379/0
{{- end -}}
{{- end -}}

{{/* Takes {root, name (of the variable)}. */}}
{{- define "treadle.redisPassword" -}}
- name: {{ .name }}
  valueFrom:
    secretKeyRef:
      name: {{ .root.Values.redis.auth.existingSecret }}
      key: {{ .root.Values.redis.auth.secretKey }}
{{- end -}}

{{/* Every write in the append-only file, no snapshot beside it, nothing evicted. maxMemory is 5/8 of the memory limit: the
rest is for what is never refused (ends, cancels, leases, snapshots), pages copied while the file is rewritten, connections. */}}
{{- define "treadle.redis" -}}
{{- $redis := .Values.redis -}}
- name: redis
  image: {{ include "treadle.imageOf" $redis.image }}
  imagePullPolicy: {{ $redis.image.pullPolicy }}
  command: [redis-server]
  args:
    - --dir
    - /data
    - --appendonly
    - "yes"
    - --appendfsync
    - {{ $redis.appendfsync }}
    - --save
    - ""
    - --maxmemory
    - {{ $redis.maxMemory }}
    - --maxmemory-policy
    - noeviction
    {{- if $redis.auth.existingSecret }}
    - --requirepass
    - $(REDISCLI_AUTH)
    {{- else }}
    - --protected-mode # who may connect is said by the network policy
    - "no"
    {{- end }}
    {{- with $redis.extraArgs }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- if or $redis.auth.existingSecret $redis.extraEnv }}
  env:
    {{- if $redis.auth.existingSecret }}
    {{- include "treadle.redisPassword" (dict "root" . "name" "REDISCLI_AUTH") | nindent 4 }}
    {{- end }}
    {{- with $redis.extraEnv }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
  ports:
    - name: redis
      containerPort: 6379
  startupProbe: # a large append-only file is read back before the first answer
    exec: &ping
      command: [sh, -c, redis-cli ping | grep -q PONG]
    periodSeconds: 5
    timeoutSeconds: 5
    failureThreshold: 120
  readinessProbe:
    exec: *ping
    periodSeconds: 5
    timeoutSeconds: 5
  livenessProbe:
    tcpSocket: { port: redis }
    periodSeconds: 10
    failureThreshold: 6
  securityContext:
    {{- include "treadle.containerSecurity" . | nindent 4 }}
  resources:
    {{- toYaml $redis.resources | nindent 4 }}
  volumeMounts:
    - name: data
      mountPath: /data
    - name: tmp
      mountPath: /tmp
{{- end -}}
