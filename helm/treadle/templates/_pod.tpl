{{/*
A pod, restricted in the sense of the Pod Security Standards, with the settings that every component has.

Takes {root, component, spec (the component's values), containers (text)} and optionally {pool, initContainers (text),
volumes (list), serviceAccountName, token (true: the pod may talk to the API server), checksums (annotations that change
with what the pod reads), securityContext, grace (seconds)}.
*/}}
{{- define "treadle.pod" -}}
{{- $root := .root -}}
{{- $spec := .spec -}}
metadata:
  labels:
    {{- include "treadle.selector" . | nindent 4 }}
    {{- with merge (dict) $spec.podLabels $root.Values.commonLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with merge (dict) (.checksums | default dict) $spec.podAnnotations $root.Values.commonAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ .serviceAccountName | default (include "treadle.serviceAccountName" $root) }}
  automountServiceAccountToken: {{ .token | default false }}
  enableServiceLinks: false # their variables begin like ours: TREADLE_GATEWAY_PORT
  securityContext:
    {{- $security := deepCopy $root.Values.podSecurityContext }}
    {{- toYaml (mergeOverwrite $security (.securityContext | default dict)) | nindent 4 }}
  terminationGracePeriodSeconds: {{ .grace | default $spec.terminationGracePeriodSeconds }}
  {{- with $root.Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- range $setting := list "priorityClassName" "runtimeClassName" }}
  {{- with index $spec $setting }}
  {{ $setting }}: {{ . }}
  {{- end }}
  {{- end }}
  {{- range $setting := list "nodeSelector" "tolerations" "affinity" }}
  {{- with index $spec $setting }}
  {{ $setting }}:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
  {{- with $spec.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- $own := dict "labelSelector" (dict "matchLabels" (include "treadle.selector" $ | fromYaml)) }}
    {{- range . }}
    {{- toYaml (list (merge (deepCopy .) $own)) | nindent 4 }}
    {{- end }}
  {{- end }}
  {{- with .initContainers }}
  initContainers:
    {{- . | nindent 4 }}
  {{- end }}
  containers:
    {{- .containers | nindent 4 }}
  volumes:
    {{- with .volumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    - name: tmp
      emptyDir: { sizeLimit: 1Gi }
{{- end -}}

{{/* What every container may do: nothing but compute, and write to its volumes. */}}
{{- define "treadle.containerSecurity" -}}
allowPrivilegeEscalation: false
capabilities:
  drop: [ALL]
readOnlyRootFilesystem: true
{{- end -}}
