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

{{/* What the provider may in a namespace of functions: faas_stack/provider/kubernetes/rules.py, and a test compares. */}}
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

{{/* What Pod Security "restricted" asks of a pod. */}}
{{- define "carpool.podSecurity" -}}
runAsNonRoot: true
runAsUser: 1000
runAsGroup: 1000
fsGroup: 1000
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* And of each of its containers. */}}
{{- define "carpool.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* How a container starts, lives and ends. The start may take ten minutes, as the API server may be away: only after it a restart helps. At the end it serves until no proxy of a Service sends it anything new. */}}
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

{{/* Rules that let the API server be reached. */}}
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

{{/* Where a pod of ours is put: its own settings before those of all. Call with (dict "root" $ "own" .Values.gateway "app" "gateway"). */}}
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

{{/* A secret of this release that stays what it is at upgrades, or a new one. Call with (dict "name" "basic-auth" "key" "basic-auth-password"). */}}
{{- define "carpool.kept" -}}
{{- $found := lookup "v1" "Secret" .namespace .name -}}
{{- if and $found (hasKey $found.data .key) -}}
{{- index $found.data .key -}}
{{- else -}}
{{- randAlphaNum 32 | b64enc -}}
{{- end -}}
{{- end }}
