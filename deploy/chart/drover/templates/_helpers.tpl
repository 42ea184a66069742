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
