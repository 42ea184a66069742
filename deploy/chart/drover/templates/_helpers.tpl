{{/* SPDX-License-Identifier: Apache-2.0 */}}
{{- define "drover.labels" -}}
app.kubernetes.io/name: drover-controller
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "drover.chartLabels" -}}
{{ include "drover.labels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}
{{- define "drover.name" -}}
{{ printf "%s-controller" .Release.Name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- define "drover.webhooks" -}}
{{ and (has "vcjob" .Values.controllers) .Values.volcano.webhooks | ternary "yes" "" }}
{{- end }}
{{- /* A role of Drover's and its binding: in a namespace, or "" for the whole cluster. */}}
{{- define "drover.role" }}
{{- $kind := ternary "Role" "ClusterRole" (ne .namespace "") }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}
metadata:
  name: {{ .name }}
  {{- if .namespace }}
  namespace: {{ .namespace }}
  {{- end }}
  labels:
    {{- include "drover.chartLabels" .root | nindent 4 }}
rules:
{{- include .rules . }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}Binding
metadata:
  name: {{ .name }}
  {{- if .namespace }}
  namespace: {{ .namespace }}
  {{- end }}
  labels:
    {{- include "drover.chartLabels" .root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $kind }}
  name: {{ .name }}
subjects:
- kind: ServiceAccount
  name: {{ include "drover.name" .root }}
  namespace: {{ .root.Release.Namespace }}
{{- end }}
