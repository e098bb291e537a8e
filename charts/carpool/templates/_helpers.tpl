{{- define "carpool.labels" -}}
app.kubernetes.io/name: carpool
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* The namespace of the functions. */}}
{{- define "carpool.functions" -}}
{{- default .Release.Namespace .Values.functionNamespace -}}
{{- end }}

{{/* The provider's rules in a namespace of functions; a test compares them with faas_stack/provider/kubernetes/rules.py. */}}
{{- define "carpool.functionRules" -}}
- {apiGroups: [apps], resources: [deployments], verbs: [create, delete, get, list, update, watch]}
- {apiGroups: [apps], resources: [deployments/scale], verbs: [patch]}
- {apiGroups: [""], resources: [pods], verbs: [list, patch, watch]}
- {apiGroups: [""], resources: [pods/log], verbs: [get]}
- {apiGroups: [""], resources: [services], verbs: [create, get, patch]}
- {apiGroups: [""], resources: [secrets], verbs: [create, delete, get, list, patch]}
- {apiGroups: [policy], resources: [poddisruptionbudgets], verbs: [create, get, patch]}
{{- if .Values.functions.prepull }}
- {apiGroups: [apps], resources: [daemonsets], verbs: [create, delete, list, patch]}
{{- end }}
{{- end }}

{{/* Requirements of Pod Security "restricted" for a pod. */}}
{{- define "carpool.podSecurity" -}}
runAsNonRoot: true
runAsUser: 1000
runAsGroup: 1000
fsGroup: 1000
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* Requirements of Pod Security "restricted" for a container. */}}
{{- define "carpool.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Probes and preStop hook of a container. The start may take ten minutes, because the API server may be unavailable and a restart would not help. The hook keeps it serving until no proxy of a Service sends it new requests. */}}
{{- define "carpool.life" -}}
startupProbe:
  httpGet: {path: /healthz, port: http}
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: 300
livenessProbe:
  httpGet: {path: /healthz, port: http}
  periodSeconds: 10
  timeoutSeconds: 5
lifecycle: {preStop: {sleep: {seconds: 5}}}
{{- end }}

{{/* Egress rules for the API server. */}}
{{- define "carpool.apiServer" -}}
- ports:
    {{- range .Values.networkPolicy.apiServerPorts }}
    - {port: {{ . }}}
    {{- end }}
  {{- with .Values.networkPolicy.apiServerCidrs }}
  to:
    {{- range . }}
    - ipBlock: {cidr: {{ . | quote }}}
    {{- end }}
  {{- end }}
{{- end }}

{{/* Placement of one of Carpool's pods: its own settings override the common ones. Call with (dict "root" $ "own" .Values.gateway "app" "gateway"). */}}
{{- define "carpool.placement" -}}
{{- with default .root.Values.nodeSelector .own.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with default .root.Values.tolerations .own.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with default .root.Values.affinity .own.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector: {matchLabels: {app: {{ .app }}}}
{{- end }}

{{/* A secret of this release, which is kept at upgrades, or a new one. Call with (dict "name" "basic-auth" "key" "basic-auth-password"). */}}
{{- define "carpool.kept" -}}
{{- $found := lookup "v1" "Secret" .namespace .name -}}
{{- if and $found (hasKey $found.data .key) -}}
{{- index $found.data .key -}}
{{- else -}}
{{- randAlphaNum 32 | b64enc -}}
{{- end -}}
{{- end }}
