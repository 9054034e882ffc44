"""The certificates of the node verify each other and carry the subjects that Kubernetes' built-in roles name."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.x509.oid import NameOID

from e2e.cluster import configuration, paths, pki


@pytest.fixture(autouse=True)
def certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "PKI", tmp_path / "pki")
    pki.ensure()


def load(identity: pki.Identity) -> x509.Certificate:
    return x509.load_pem_x509_certificate(identity.certificate.read_bytes())


@pytest.mark.parametrize("identity", [*pki.CLIENTS, pki.API_SERVER, pki.KUBELET_SERVER], ids=lambda one: one.file)
def test_every_certificate_is_issued_by_the_authority(identity: pki.Identity) -> None:
    load(identity).verify_directly_issued_by(load(pki.AUTHORITY))
    assert identity.key.stat().st_mode & 0o777 == 0o600


def test_kubelet_is_a_node() -> None:
    subject = load(pki.KUBELET).subject
    assert subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)[0].value == "system:nodes"
    assert subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value == f"system:node:{paths.NODE_NAME}"


def test_second_run_keeps_the_certificates() -> None:
    before = pki.AUTHORITY.certificate.read_bytes()
    pki.ensure()
    assert pki.AUTHORITY.certificate.read_bytes() == before


def test_kubeconfig_is_self_contained_and_private(tmp_path: Path) -> None:
    path = configuration.write_kubeconfig(pki.ADMIN, tmp_path / "folder" / "kubeconfig")
    assert path.stat().st_mode & 0o777 == 0o600
    document = yaml.safe_load(path.read_text())
    assert document["clusters"][0]["cluster"]["server"] == paths.API_URL
    assert set(document["users"][0]["user"]) == {"client-certificate-data", "client-key-data"}
