"""etcd, API server, controller manager and scheduler."""

from e2e.cluster import api, binaries, configuration, paths, pki
from e2e.cluster.processes import Service
from e2e.cluster.reachability import answers_over_http

# The API server must be reachable from pods, so it listens on every address; network.py closes the ports to others.
_LISTEN = "0.0.0.0"
_ETCD_URL = f"http://127.0.0.1:{paths.ETCD_CLIENT_PORT}"
_ETCD_PEER_URL = f"http://127.0.0.1:{paths.ETCD_PEER_PORT}"


def etcd() -> Service:
    """Return etcd; it may lose the last writes when the machine fails, and is fast for that."""
    return Service(
        "etcd",
        [
            "etcd",
            f"--data-dir={paths.ETCD_DATA}",
            f"--listen-client-urls={_ETCD_URL}",
            f"--advertise-client-urls={_ETCD_URL}",
            f"--listen-peer-urls={_ETCD_PEER_URL}",
            f"--initial-advertise-peer-urls={_ETCD_PEER_URL}",
            f"--initial-cluster=default={_ETCD_PEER_URL}",
            "--unsafe-no-fsync",
            "--auto-compaction-mode=revision",
            "--auto-compaction-retention=10000",
            "--logger=zap",
            "--log-level=warn",
        ],
    )


def api_server() -> Service:
    """Return the API server, with Pod Security admission and ValidatingAdmissionPolicy on (both are defaults)."""
    return Service(
        "kube-apiserver",
        [
            binaries.path("kube-apiserver"),
            f"--etcd-servers={_ETCD_URL}",
            f"--secure-port={paths.API_PORT}",
            f"--bind-address={_LISTEN}",
            f"--advertise-address={paths.NODE_ADDRESS}",
            f"--service-cluster-ip-range={paths.SERVICE_CIDR}",
            f"--client-ca-file={pki.AUTHORITY.certificate}",
            f"--tls-cert-file={pki.API_SERVER.certificate}",
            f"--tls-private-key-file={pki.API_SERVER.key}",
            f"--service-account-key-file={pki.SERVICE_ACCOUNT_PUBLIC_KEY}",
            f"--service-account-signing-key-file={pki.SERVICE_ACCOUNT_KEY}",
            f"--service-account-issuer=https://kubernetes.default.svc.{paths.CLUSTER_DOMAIN}",
            f"--kubelet-client-certificate={pki.API_SERVER_TO_KUBELET.certificate}",
            f"--kubelet-client-key={pki.API_SERVER_TO_KUBELET.key}",
            f"--kubelet-certificate-authority={pki.AUTHORITY.certificate}",
            # The node's name resolves nowhere; `kubectl logs` would fail on it.
            "--kubelet-preferred-address-types=InternalIP",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged=true",
        ],
    )


def controller_manager() -> Service:
    """Return the controller manager, each controller with a service account of its own."""
    return Service(
        "kube-controller-manager",
        [
            binaries.path("kube-controller-manager"),
            f"--kubeconfig={configuration.kubeconfig_of(pki.CONTROLLER_MANAGER)}",
            f"--secure-port={paths.CONTROLLER_MANAGER_PORT}",
            "--bind-address=127.0.0.1",
            f"--root-ca-file={pki.AUTHORITY.certificate}",
            f"--service-account-private-key-file={pki.SERVICE_ACCOUNT_KEY}",
            f"--cluster-signing-cert-file={pki.AUTHORITY.certificate}",
            f"--cluster-signing-key-file={pki.AUTHORITY.key}",
            f"--flex-volume-plugin-dir={paths.VOLUME_PLUGINS}",
            "--use-service-account-credentials",
            "--leader-elect=false",
        ],
    )


def scheduler() -> Service:
    """Return the scheduler."""
    return Service(
        "kube-scheduler",
        [
            binaries.path("kube-scheduler"),
            f"--kubeconfig={configuration.kubeconfig_of(pki.SCHEDULER)}",
            f"--secure-port={paths.SCHEDULER_PORT}",
            "--bind-address=127.0.0.1",
            "--leader-elect=false",
        ],
    )


def services() -> tuple[Service, ...]:
    """Return all of them, in the order in which they start."""
    return (etcd(), api_server(), controller_manager(), scheduler())


def start() -> None:
    """Start what does not run and wait until the API server is ready.

    Raises:
        ClusterError: one of them ended or did not become ready in time.
    """
    for client in pki.CLIENTS:
        configuration.write_kubeconfig(client)
    etcd().start()
    etcd().await_ready(lambda: answers_over_http(f"{_ETCD_URL}/health"), timeout_seconds=30)
    api_server().start()
    api_server().await_ready(api.is_ready, timeout_seconds=90)
    controller_manager().start()
    scheduler().start()


def await_controllers() -> None:
    """Wait until the controllers work: without the service account they make, no pod is admitted.

    Raises:
        ClusterError: the controller manager ended, or made none in time.
    """
    account = "/api/v1/namespaces/default/serviceaccounts/default"
    controller_manager().await_ready(lambda: api.get(account) is not None, timeout_seconds=60)
