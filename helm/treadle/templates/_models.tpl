{{/* Where model files lie: in a volume of the pod, a claim, or a folder of the machine; and who fetches them. */}}

{{- define "treadle.modelClaim" -}}
{{- .Values.modelStorage.pvc.existingClaim | default (printf "%s-models" (include "treadle.fullname" .)) -}}
{{- end -}}

{{- define "treadle.modelVolume" -}}
{{- $storage := .Values.modelStorage -}}
name: models
{{- if eq $storage.kind "pvc" }}
persistentVolumeClaim:
  claimName: {{ include "treadle.modelClaim" . }}
{{- else if eq $storage.kind "hostPath" }}
hostPath:
  path: {{ $storage.hostPath.path }}
  type: Directory
{{- else }}
emptyDir:
  sizeLimit: {{ $storage.download.sizeLimit }}
{{- end }}
{{- end -}}

{{/* "true" where pods fetch the models that are not there yet. */}}
{{- define "treadle.pulls" -}}
{{- $storage := .Values.modelStorage -}}
{{- if or (eq $storage.kind "download") (and (eq $storage.kind "pvc") $storage.pvc.pull) -}}true{{- end -}}
{{- end -}}

{{/* The init container that does. Several at a time may share a claim: models come by a rename, whole and checked. */}}
{{- define "treadle.pullModels" -}}
{{- if include "treadle.pulls" . -}}
{{- $pull := .Values.modelStorage.pull -}}
- name: models
  image: {{ include "treadle.image" (dict "root" . "image" $pull.image "name" "services") }}
  imagePullPolicy: {{ $pull.image.pullPolicy | default .Values.image.pullPolicy }}
  command: [python, -m, cli, models, pull]
  env:
    - name: TREADLE_CONFIG
      value: /etc/treadle/cluster.yaml
    - name: TREADLE_MODELS_DIR
      value: /models
    {{- with $pull.extraEnv }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with $pull.envFrom }}
  envFrom:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    {{- include "treadle.containerSecurity" . | nindent 4 }}
  resources:
    {{- toYaml $pull.resources | nindent 4 }}
  volumeMounts:
    - name: config
      mountPath: /etc/treadle
      readOnly: true
    - name: models
      mountPath: /models
    - name: tmp
      mountPath: /tmp
{{- end -}}
{{- end -}}
