{{- define "lmcb.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- /* 45 characters leave room for the endings below. */ -}}
{{- define "lmcb.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 45 | trimSuffix "-" -}}
{{- else if contains (include "lmcb.name" .) .Release.Name -}}
{{- .Release.Name | trunc 45 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "lmcb.name" .) | trunc 45 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "lmcb.operatorName" -}}
{{ include "lmcb.fullname" . }}-operator
{{- end -}}

{{- /* Names of cluster-scoped objects: two releases of one name in two namespaces must not meet. */ -}}
{{- define "lmcb.clusterName" -}}
{{ printf "%s-%s" .Release.Namespace (include "lmcb.fullname" .) | trunc 100 }}
{{- end -}}

{{- define "lmcb.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "lmcb.operatorName" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "lmcb.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "lmcb.selectorLabels" -}}
app.kubernetes.io/name: {{ include "lmcb.name" . }}-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "lmcb.labels" -}}
{{ include "lmcb.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: {{ include "lmcb.name" . }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- /* What Pod Security "restricted" asks for. */ -}}
{{- define "lmcb.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "lmcb.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- /* The namespaces that instances of this release live in, each once. */ -}}
{{- define "lmcb.instanceNamespaces" -}}
{{- $names := list -}}
{{- range .Values.instances -}}
{{- $names = append $names (default $.Release.Namespace .namespace) -}}
{{- end -}}
{{- $names | uniq | sortAlpha | toJson -}}
{{- end -}}

{{- /* A quantity with a binary ending, in bytes. The schema admits Mi, Gi and Ti only. */ -}}
{{- define "lmcb.bytes" -}}
{{- $number := regexFind "^[0-9]+" . | int64 -}}
{{- $factor := get (dict "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776) (regexFind "[A-Z]i$" .) | int64 -}}
{{- mul $number $factor -}}
{{- end -}}

{{- /* Annotations of a hook; dict: hook, weight. */ -}}
{{- define "lmcb.hookAnnotations" -}}
helm.sh/hook: {{ .hook }}
helm.sh/hook-weight: {{ .weight | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}

{{- /* Pod of a short Job of our image; dict: root, serviceAccountName, args, and command unless it is lmcb. */ -}}
{{- define "lmcb.jobPod" -}}
metadata:
  labels:
    app.kubernetes.io/name: {{ include "lmcb.name" .root }}-job
    app.kubernetes.io/instance: {{ .root.Release.Name }}
spec:
  restartPolicy: Never
  serviceAccountName: {{ .serviceAccountName }}
  {{- with .root.Values.imagePullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext: {{- include "lmcb.podSecurityContext" . | nindent 4 }}
  containers:
    - name: job
      image: {{ include "lmcb.image" .root | quote }}
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      {{- with .command }}
      command: {{- toYaml . | nindent 8 }}
      {{- end }}
      args: {{- toYaml .args | nindent 8 }}
      resources:
        requests: {cpu: 20m, memory: 96Mi}
        limits: {memory: 256Mi}
      securityContext: {{- include "lmcb.containerSecurityContext" . | nindent 8 }}
      volumeMounts:
        - {name: tmp, mountPath: /tmp}
  volumes:
    - name: tmp
      emptyDir: {sizeLimit: 16Mi}
  {{- with .root.Values.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .root.Values.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{- /* The model's name in requests; takes a spec. The operator's default: the id, for a path its last part. */ -}}
{{- define "lmcb.servedModelName" -}}
{{- $id := .model.id -}}
{{- dig "engine" "servedModelName" (hasPrefix "/" $id | ternary (base $id) $id) . -}}
{{- end -}}

{{- /* Rights of a hook's account on the instances of this release; dict: root, name, hook, verbs. */ -}}
{{- define "lmcb.instanceRbac" -}}
{{- range $namespace := include "lmcb.instanceNamespaces" .root | fromJsonArray }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ $.name }}
  namespace: {{ $namespace }}
  labels: {{- include "lmcb.labels" $.root | nindent 4 }}
  annotations: {{- include "lmcb.hookAnnotations" (dict "hook" $.hook "weight" -20) | nindent 4 }}
rules:
  - apiGroups: [lmcache-couchbase.io]
    resources: [lmcachecouchbases]
    resourceNames:
      {{- range $name, $instance := $.root.Values.instances }}
      {{- if eq $namespace (default $.root.Release.Namespace $instance.namespace) }}
      - {{ $name | quote }}
      {{- end }}
      {{- end }}
    verbs: {{ $.verbs | toJson }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ $.name }}
  namespace: {{ $namespace }}
  labels: {{- include "lmcb.labels" $.root | nindent 4 }}
  annotations: {{- include "lmcb.hookAnnotations" (dict "hook" $.hook "weight" -20) | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ $.name }}
subjects:
  - kind: ServiceAccount
    name: {{ $.name }}
    namespace: {{ $.root.Release.Namespace }}
{{- end }}
{{- end -}}
