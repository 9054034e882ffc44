{{- /*
What the operator may do: the verbs of io/cluster.py and io/watches.py and what kopf needs for our own kind.
Secrets, ConfigMaps and Namespaces are read by name only, never listed. A server-side apply of an object that does
not exist yet asks for create as well as patch.
*/ -}}
{{- define "lmcb.rules" -}}
- apiGroups: [lmcache-couchbase.io]
  resources: [lmcachecouchbases]
  verbs: [get, list, watch, patch]
- apiGroups: [lmcache-couchbase.io]
  resources: [lmcachecouchbases/status]
  verbs: [patch]
- apiGroups: [apps]
  resources: [deployments, controllerrevisions]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, create, patch]
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get]
- apiGroups: [""]
  resources: [pods]
  verbs: [list]
- apiGroups: [""]
  resources: [events]
  verbs: [create]
{{- end -}}
