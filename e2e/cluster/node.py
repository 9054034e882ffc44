"""The kubelet and kube-proxy.

The node offers the CPUs and the memory that the machine has; the kubelet reads them from the kernel and cannot be told
others, so the CPU requests of all pods together must fit the machine.
"""

from typing import Any

from e2e.cluster import api, binaries, configuration, paths, pki
from e2e.cluster.processes import Service
from e2e.cluster.reachability import answers_over_http


def kubelet() -> Service:
    """Return the kubelet."""
    return Service(
        "kubelet",
        [
            binaries.path("kubelet"),
            f"--config={paths.CONFIG / 'kubelet.yaml'}",
            f"--kubeconfig={configuration.kubeconfig_of(pki.KUBELET)}",
            f"--hostname-override={paths.NODE_NAME}",
            f"--node-ip={paths.NODE_ADDRESS}",
            f"--root-dir={paths.KUBELET_ROOT}",
        ],
    )


def proxy() -> Service:
    """Return kube-proxy."""
    return Service("kube-proxy", [binaries.path("kube-proxy"), f"--config={paths.CONFIG / 'kube-proxy.yaml'}"])


def services() -> tuple[Service, ...]:
    """Return both, in the order in which they start."""
    return (kubelet(), proxy())


def start() -> None:
    """Start what does not run and wait until the node is Ready and Services have rules.

    Raises:
        ClusterError: one of them ended or did not become ready in time.
    """
    configuration.write_yaml("kubelet.yaml", _kubelet_configuration())
    configuration.write_yaml("kube-proxy.yaml", _proxy_configuration())
    for service in services():
        service.start()
    proxy().await_ready(
        lambda: answers_over_http(f"http://127.0.0.1:{paths.PROXY_HEALTH_PORT}/healthz"), timeout_seconds=60
    )
    kubelet().await_ready(is_ready, timeout_seconds=90)


def is_ready() -> bool:
    """Tell whether the kubelet answers and the API server calls the node Ready."""
    # Both: the API server goes on to call a node Ready for 40 s after its kubelet died.
    if not answers_over_http(f"http://127.0.0.1:{paths.KUBELET_HEALTH_PORT}/healthz"):
        return False
    node = api.get(f"/api/v1/nodes/{paths.NODE_NAME}")
    conditions = node["status"].get("conditions", []) if node else []
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def _kubelet_configuration() -> dict[str, Any]:
    # https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": paths.NODE_ADDRESS,
        "port": paths.KUBELET_PORT,
        "healthzPort": paths.KUBELET_HEALTH_PORT,
        "tlsCertFile": str(pki.KUBELET_SERVER.certificate),
        "tlsPrivateKeyFile": str(pki.KUBELET_SERVER.key),
        "authentication": {
            "anonymous": {"enabled": False},
            "x509": {"clientCAFile": str(pki.AUTHORITY.certificate)},
            "webhook": {"enabled": True},
        },
        "authorization": {"mode": "Webhook"},
        "clusterDomain": paths.CLUSTER_DOMAIN,
        "clusterDNS": [paths.DNS_SERVICE_ADDRESS],
        # Pods see no name server but the cluster's.
        "resolvConf": "/dev/null",
        "containerRuntimeEndpoint": f"unix://{paths.CONTAINERD_SOCKET}",
        "podLogsDir": str(paths.POD_LOGS),
        "volumePluginDir": str(paths.VOLUME_PLUGINS),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{paths.CGROUP_NAME}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "enforceNodeAllocatable": [],
        "makeIPTablesUtilChains": False,
        # The disk is shared with everything else on the machine: no pod may suffer for that before it is really full,
        # and no image may be collected, for there is no registry to pull it from again.
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        # A rotated Secret reaches a pod after this period; the default is a minute.
        "syncFrequency": "10s",
    }


def _proxy_configuration() -> dict[str, Any]:
    # https://kubernetes.io/docs/reference/config-api/kube-proxy-config.v1alpha1/
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "hostnameOverride": paths.NODE_NAME,
        "clientConnection": {"kubeconfig": str(configuration.kubeconfig_of(pki.PROXY))},
        "clusterCIDR": paths.POD_CIDR,
        "metricsBindAddress": f"127.0.0.1:{paths.PROXY_METRICS_PORT}",
        "healthzBindAddress": f"127.0.0.1:{paths.PROXY_HEALTH_PORT}",
        # Without it answers between two pods would pass the bridge untranslated where br_netfilter is off.
        "nftables": {"masqueradeAll": True},
        # The machine's connection tracking keeps its own limits.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }
