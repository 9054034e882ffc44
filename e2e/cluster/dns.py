"""CoreDNS on the node, behind the Service address that the kubelet writes into every pod's resolv.conf."""

from e2e.cluster import api, binaries, configuration, paths, pki
from e2e.cluster.processes import Service
from e2e.cluster.reachability import answers_over_http

_COREFILE = f"""\
.:{paths.DNS_PORT} {{
    bind {paths.NODE_ADDRESS}
    errors
    health 127.0.0.1:{paths.DNS_HEALTH_PORT}
    kubernetes {paths.CLUSTER_DOMAIN} in-addr.arpa ip6.arpa {{
        kubeconfig {configuration.kubeconfig_of(pki.DNS)}
        pods insecure
        ttl 5
    }}
}}
"""

# A Service without selector: its one endpoint is the program on the node.
_MANIFESTS = f"""\
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: "system:coredns"}}
rules:
- {{apiGroups: [""], resources: [endpoints, services, pods, namespaces], verbs: [list, watch]}}
- {{apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: "system:coredns"}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:coredns"}}
subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: User, name: "{pki.DNS.common_name}"}}]
---
apiVersion: v1
kind: Service
metadata: {{name: kube-dns, namespace: kube-system, labels: {{k8s-app: kube-dns}}}}
spec:
  clusterIP: {paths.DNS_SERVICE_ADDRESS}
  ports:
  - {{name: dns, protocol: UDP, port: 53}}
  - {{name: dns-tcp, protocol: TCP, port: 53}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: kube-dns, namespace: kube-system, labels: {{kubernetes.io/service-name: kube-dns}}}}
addressType: IPv4
endpoints: [{{addresses: ["{paths.NODE_ADDRESS}"], conditions: {{ready: true}}}}]
ports:
- {{name: dns, protocol: UDP, port: {paths.DNS_PORT}}}
- {{name: dns-tcp, protocol: TCP, port: {paths.DNS_PORT}}}
"""


def service() -> Service:
    """Return CoreDNS."""
    return Service("coredns", [binaries.path("coredns"), "-conf", paths.CONFIG / "Corefile"])


def start() -> None:
    """Apply its Service and rights, start it if it does not run, and wait until it answers.

    Raises:
        ClusterError: the API server refused an object, or CoreDNS ended or did not answer in time.
    """
    configuration.write_text(paths.CONFIG / "Corefile", _COREFILE)
    api.apply(_MANIFESTS)
    service().start()
    service().await_ready(is_ready, timeout_seconds=30)


def is_ready() -> bool:
    """Tell whether it answers."""
    return answers_over_http(f"http://127.0.0.1:{paths.DNS_HEALTH_PORT}/health")
