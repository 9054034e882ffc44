"""Certificates of the node: one authority, one certificate per component, one key for service account tokens.

Common names and organisations are those Kubernetes grants its built-in roles to
(https://kubernetes.io/docs/setup/best-practices/certificates/).
"""

import datetime
import ipaddress
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from e2e.cluster import paths

_LIFETIME = datetime.timedelta(days=3650)
_CLOCK_SKEW = datetime.timedelta(hours=1)


@dataclass(frozen=True)
class Identity:
    """One certificate: file name, subject, and for servers the names it is valid for."""

    file: str
    common_name: str
    organisation: str | None = None
    server_names: Sequence[str] = ()

    @property
    def certificate(self) -> Path:
        """Path of the certificate."""
        return paths.PKI / f"{self.file}.crt"

    @property
    def key(self) -> Path:
        """Path of the private key."""
        return paths.PKI / f"{self.file}.key"


AUTHORITY = Identity("ca", "lmcache-couchbase-e2e")
ADMIN = Identity("admin", "admin", "system:masters")
API_SERVER = Identity(
    "apiserver",
    "kube-apiserver",
    server_names=(
        *("127.0.0.1", paths.NODE_ADDRESS, paths.API_SERVICE_ADDRESS, "localhost", "kubernetes", "kubernetes.default"),
        *("kubernetes.default.svc", f"kubernetes.default.svc.{paths.CLUSTER_DOMAIN}"),
    ),
)
API_SERVER_TO_KUBELET = Identity("apiserver-kubelet-client", "kube-apiserver-kubelet-client", "system:masters")
CONTROLLER_MANAGER = Identity("controller-manager", "system:kube-controller-manager")
SCHEDULER = Identity("scheduler", "system:kube-scheduler")
PROXY = Identity("proxy", "system:kube-proxy")
DNS = Identity("dns", "system:coredns")
KUBELET = Identity("kubelet", f"system:node:{paths.NODE_NAME}", "system:nodes")
KUBELET_SERVER = Identity("kubelet-server", paths.NODE_NAME, server_names=(paths.NODE_NAME, paths.NODE_ADDRESS))
SERVICE_ACCOUNT_KEY = paths.PKI / "service-accounts.key"
SERVICE_ACCOUNT_PUBLIC_KEY = paths.PKI / "service-accounts.pub"

CLIENTS = (ADMIN, CONTROLLER_MANAGER, SCHEDULER, PROXY, DNS, KUBELET)
_ISSUED = (*CLIENTS, API_SERVER, API_SERVER_TO_KUBELET, KUBELET_SERVER)


def ensure() -> None:
    """Make the whole set unless it is there; it appears in one step, so a killed run leaves none or all of it."""
    if paths.PKI.exists():
        return
    making = paths.PKI.with_suffix(".making")
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(parents=True, mode=0o700)
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = _authority_certificate(authority_key)
    _write(making / AUTHORITY.certificate.name, authority.public_bytes(serialization.Encoding.PEM))
    _write(making / AUTHORITY.key.name, _pem(authority_key))
    for identity in _ISSUED:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _issue(identity, key.public_key(), authority, authority_key)
        _write(making / identity.certificate.name, certificate.public_bytes(serialization.Encoding.PEM))
        _write(making / identity.key.name, _pem(key))
    tokens = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public = tokens.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    _write(making / SERVICE_ACCOUNT_KEY.name, _pem(tokens))
    _write(making / SERVICE_ACCOUNT_PUBLIC_KEY.name, public)
    making.rename(paths.PKI)


def _authority_certificate(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    name = _name(AUTHORITY)
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        _builder(name, name, key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def _issue(
    identity: Identity,
    key: ec.EllipticCurvePublicKey,
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
) -> x509.Certificate:
    is_server = bool(identity.server_names)
    purpose = ExtendedKeyUsageOID.SERVER_AUTH if is_server else ExtendedKeyUsageOID.CLIENT_AUTH
    builder = (
        _builder(_name(identity), authority.subject, key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
    )
    if is_server:
        names = x509.SubjectAlternativeName([_general_name(name) for name in identity.server_names])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(authority_key, hashes.SHA256())


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + _LIFETIME)
    )


def _name(identity: Identity) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, identity.common_name)]
    if identity.organisation is not None:
        parts.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, identity.organisation))
    return x509.Name(parts)


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)
