{{- /*
Where an LMCacheCouchbase names Secrets. `has` says in CEL that the field is there, `condition` that the place its
content is sent to is unchanged.
*/ -}}
{{- define "lmcb.secretFields" -}}
- path: spec.couchbase.adminSecretRef
  has: has(object.spec.couchbase.adminSecretRef)
  condition: variables.isSameServer
- path: spec.couchbase.credentialsSecretRef
  has: has(object.spec.couchbase.credentialsSecretRef)
  condition: variables.isSameServer
- path: spec.couchbase.tls.caSecretRef
  has: (has(object.spec.couchbase.tls) && has(object.spec.couchbase.tls.caSecretRef))
  condition: oldObject != null
- path: spec.model.tokenSecretRef
  has: has(object.spec.model.tokenSecretRef)
  condition: variables.isSameHub
{{- end -}}

{{- /* Lists: `names` is the CEL list of all names in it, with SPEC for the spec that is read. */ -}}
{{- define "lmcb.secretLists" -}}
- name: engineEnv
  path: spec.engine.env
  names: >-
    SPEC.?engine.?env.orValue([]).filter(e, has(e.valueFrom) && has(e.valueFrom.secretKeyRef)).map(e,
    string(e.valueFrom.secretKeyRef.name))
- name: engineEnvFrom
  path: spec.engine.envFrom
  names: >-
    SPEC.?engine.?envFrom.orValue([]).filter(e, has(e.secretRef)).map(e, string(e.secretRef.name))
- name: cacheEnv
  path: spec.cache.env
  names: >-
    SPEC.?cache.?env.orValue([]).filter(e, has(e.valueFrom) && has(e.valueFrom.secretKeyRef)).map(e,
    string(e.valueFrom.secretKeyRef.name))
- name: volumes
  path: spec.podTemplate.volumes
  names: >-
    (SPEC.?podTemplate.?volumes.orValue([]).filter(v, has(v.secret)).map(v, string(v.secret.secretName)) +
    SPEC.?podTemplate.?volumes.orValue([]).filter(v, has(v.csi) && has(v.csi.nodePublishSecretRef)).map(v,
    string(v.csi.nodePublishSecretRef.name)))
- name: pullSecrets
  path: spec.podTemplate.imagePullSecrets
  names: >-
    SPEC.?podTemplate.?imagePullSecrets.orValue([]).map(s, string(s.name))
{{- end -}}
