{{/* Where Redis is, and how that is told without showing a password. */}}

{{- define "treadle.redisHost" -}}
{{- include "treadle.fullname" . }}-redis
{{- end -}}

{{/* The Secret that holds the address of a Redis of one's own. */}}
{{- define "treadle.redisSecret" -}}
{{- .Values.redis.existingSecret | default (printf "%s-redis-url" (include "treadle.fullname" .)) -}}
{{- end -}}

{{/* The Secret with a password for each user. */}}
{{- define "treadle.redisUsers" -}}
{{- .Values.redis.acl.existingSecret | default (printf "%s-redis-users" (include "treadle.fullname" .)) -}}
{{- end -}}

{{/* The Secret with certificates; empty without TLS. */}}
{{- define "treadle.redisTls" -}}
{{- with .Values.redis.tls -}}
{{- if .enabled -}}
{{- .existingSecret | default (printf "%s-redis-tls" (include "treadle.fullname" $)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Environment by which a process finds Redis. Takes {root, component}. */}}
{{- define "treadle.redisEnv" -}}
{{- $redis := .root.Values.redis -}}
{{- $role := ternary "node" .component (eq .component "gpu-node") -}}
{{- if and (not $redis.enabled) (not $redis.sentinel.addresses) -}}
- name: TREADLE_REDIS_URL
  valueFrom:
    secretKeyRef:
      name: {{ include "treadle.redisSecret" .root }}
      key: {{ ternary $role $redis.secretKey $redis.acl.enabled }}
{{- else -}}
{{- $credentials := "" -}}
{{- if $redis.acl.enabled -}}
{{- $credentials = printf "%s:$(TREADLE_REDIS_PASSWORD)@" $role -}}
- name: TREADLE_REDIS_PASSWORD
  valueFrom:
    secretKeyRef:
      name: {{ include "treadle.redisUsers" .root }}
      key: {{ $role }}
{{ else if $redis.auth.existingSecret -}}
{{- $credentials = ":$(TREADLE_REDIS_PASSWORD)@" -}}
{{ include "treadle.redisPassword" (dict "root" .root "name" "TREADLE_REDIS_PASSWORD") }}
{{ end -}}
{{- $scheme := ternary "rediss" "redis" $redis.tls.enabled -}}
{{- $place := printf "%s:6379/0" (include "treadle.redisHost" .root) -}}
{{- with $redis.sentinel -}}
{{- if .addresses -}}
{{- $scheme = printf "%s+sentinel" $scheme -}}
{{- $place = printf "%s/%s/%d" (join "," .addresses) .service (int .db) -}}
{{- end -}}
{{- end -}}
{{- $options := ternary "?ssl_ca_certs=/etc/treadle-redis/ca.crt" "" (and $redis.tls.enabled (include "treadle.redisTls" .root | empty | not)) -}}
- name: TREADLE_REDIS_URL
  value: {{ printf "%s://%s%s%s" $scheme $credentials $place $options }}
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
{{- $cli := ternary "redis-cli --tls --cacert /etc/redis-tls/ca.crt" "redis-cli" $redis.tls.enabled -}}
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
    - --protected-mode # who may connect is said by the network policy, who may do what by the users
    - "no"
    {{- end }}
    {{- if $redis.acl.enabled }}
    - --aclfile
    - /etc/redis-users/users.acl
    {{- end }}
    {{- if $redis.tls.enabled }}
    - --port
    - "0"
    - --tls-port
    - "6379"
    - --tls-cert-file
    - /etc/redis-tls/tls.crt
    - --tls-key-file
    - /etc/redis-tls/tls.key
    - --tls-ca-cert-file
    - /etc/redis-tls/ca.crt
    - --tls-auth-clients
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
      command: [sh, -c, {{ $cli }} ping | grep -q PONG]
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
    {{- if $redis.acl.enabled }}
    - name: users
      mountPath: /etc/redis-users
      readOnly: true
    {{- end }}
    {{- if $redis.tls.enabled }}
    - name: tls
      mountPath: /etc/redis-tls
      readOnly: true
    {{- end }}
    - name: tmp
      mountPath: /tmp
{{- end -}}

{{/* Puts digests of the passwords where the users' file names them: the passwords themselves are in no file. */}}
{{- define "treadle.redisUsersFile" -}}
{{- $redis := .Values.redis -}}
- name: users
  image: {{ include "treadle.imageOf" $redis.image }}
  imagePullPolicy: {{ $redis.image.pullPolicy }}
  command:
    - sh
    - -ec
    - |
      cp /etc/redis-acl/users.acl /etc/redis-users/users.acl
      for file in /etc/redis-passwords/*; do
        digest=$(sha256sum < "$file" | cut -d ' ' -f 1)
        sed -i "s/@$(basename "$file")@/$digest/" /etc/redis-users/users.acl
      done
  securityContext:
    {{- include "treadle.containerSecurity" . | nindent 4 }}
  resources:
    requests: { cpu: 50m, memory: 32Mi }
    limits: { memory: 64Mi }
  volumeMounts:
    - name: acl
      mountPath: /etc/redis-acl
      readOnly: true
    - name: passwords
      mountPath: /etc/redis-passwords
      readOnly: true
    - name: users
      mountPath: /etc/redis-users
    - name: tmp
      mountPath: /tmp
{{- end -}}

{{/* Volumes of the pod of Redis beside its data, as a list. */}}
{{- define "treadle.redisVolumes" -}}
{{- $volumes := list -}}
{{- if not .Values.redis.persistence.enabled -}}
{{- $volumes = append $volumes (dict "name" "data" "emptyDir" dict) -}}
{{- end -}}
{{- if .Values.redis.acl.enabled -}}
{{- $volumes = append $volumes (dict "name" "acl" "configMap" (dict "name" (printf "%s-acl" (include "treadle.redisHost" .)))) -}}
{{- $volumes = append $volumes (dict "name" "passwords" "secret" (dict "secretName" (include "treadle.redisUsers" .) "defaultMode" 0440)) -}}
{{- $volumes = append $volumes (dict "name" "users" "emptyDir" (dict "medium" "Memory" "sizeLimit" "1Mi")) -}}
{{- end -}}
{{- with include "treadle.redisTls" . -}}
{{- $volumes = append $volumes (dict "name" "tls" "secret" (dict "secretName" . "defaultMode" 0440)) -}}
{{- end -}}
{{- toYaml (dict "volumes" $volumes) -}}
{{- end -}}
