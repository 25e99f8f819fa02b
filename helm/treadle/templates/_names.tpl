{{/* Names and labels. Room is left for a pool's name: a StatefulSet's name has at most 52 characters. */}}

{{- define "treadle.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 36 | trimSuffix "-" -}}
{{- end -}}

{{- define "treadle.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 36 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "treadle.name" . -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- $full | trunc 36 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* What a selector may hold: it never changes. Takes {root, component}, and pool for the nodes of one pool. */}}
{{- define "treadle.selector" -}}
app.kubernetes.io/name: {{ include "treadle.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- with .pool }}
treadle/pool: {{ . }}
{{- end }}
{{- end -}}

{{/* Labels of an object. Takes what treadle.selector takes. */}}
{{- define "treadle.labels" -}}
{{ include "treadle.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Name of a component's objects: RELEASE-COMPONENT, RELEASE-POOL. Takes what treadle.selector takes. */}}
{{- define "treadle.object" -}}
{{- printf "%s-%s" (include "treadle.fullname" .root) (.pool | default .component) -}}
{{- end -}}

{{/* The head of every object. Takes what treadle.selector takes, and optionally name, labels and annotations. */}}
{{- define "treadle.metadata" -}}
name: {{ .name | default (include "treadle.object" .) }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "treadle.labels" . | nindent 2 }}
  {{- with .labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (dict) (.annotations | default dict) .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "treadle.nodes" -}}
{{- include "treadle.fullname" . }}-nodes
{{- end -}}

{{- define "treadle.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "treadle.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* Image of a component. Takes {root, image (its own values), name (its part of the repository)}. */}}
{{- define "treadle.image" -}}
{{- $all := .root.Values.image -}}
{{- $own := dict
  "registry" (.image.registry | default $all.registry)
  "repository" (.image.repository | default (printf "%s/%s" $all.repository .name))
  "tag" (coalesce .image.tag $all.tag .root.Chart.AppVersion)
  "digest" .image.digest -}}
{{- include "treadle.imageOf" $own -}}
{{- end -}}

{{/* An image by its registry, repository and digest, else tag. */}}
{{- define "treadle.imageOf" -}}
{{- with .registry }}{{ . }}/{{ end -}}
{{- .repository -}}
{{- if .digest }}@{{ .digest }}{{ else }}:{{ .tag }}{{ end -}}
{{- end -}}
