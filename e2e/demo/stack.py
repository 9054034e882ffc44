"""Bring up what the demo runs on, step by step, each idempotent, and take down exactly that."""

from __future__ import annotations

import base64
import os
import secrets
from pathlib import Path
from typing import Any

import yaml

from couchbase_lm_operator import names
from e2e.bootstrap import ROOT
from e2e.cluster import paths
from e2e.demo import manifests
from e2e.demo.journey import PROGRESS
from e2e.demo.kube import DemoError, Kube
from e2e.demo.manifests import Place
from e2e.demo.record import Made
from e2e.images.registry import Published

QUICKSTART = ROOT / "examples" / "quickstart.yaml"
CHART = ROOT / "charts" / "lmcache-couchbase"
RELEASE = "lmcache-couchbase"
PLACE = Place("lmcb-demo")
DEFINITION = f"{names.PLURAL}.{names.GROUP}"
_READY_SECONDS = 900


def own_kubeconfig(cluster: str) -> Path:
    """Return the kubeconfig to use: the local node's, or the user's own for an external cluster."""
    if cluster == "local":
        return paths.kubeconfig()
    given = os.environ.get("KUBECONFIG", "")
    if not given or not Path(given).exists():
        raise DemoError("CLUSTER=external needs KUBECONFIG to name the kubeconfig of your cluster")
    return Path(given)


def make_namespaces(kube: Kube, place: Place, made: Made) -> None:
    """Create the demo's namespaces and remember those that were not there."""
    for namespace in manifests.namespaces(place):
        name = namespace["metadata"]["name"]
        if name not in made.namespaces and kube.get("namespace", name) is None:
            made.namespaces.append(name)
            made.save()
        kube.apply(namespace)


def admin_password(kube: Kube, place: Place) -> str:
    """Return the Couchbase administrator's password, made up at the first run and kept in its Secret."""
    found = kube.get("secret", manifests.ADMIN_SECRET, "-n", place.couchbase)
    if found:
        return base64.b64decode(found["data"]["password"]).decode()
    return secrets.token_urlsafe(24)


def run_couchbase(kube: Kube, place: Place, image: Published, password: str) -> None:
    """Run the emulator behind a Service and give both sides the administrator's Secret."""
    for namespace in (place.couchbase, place.name):
        kube.apply(manifests.admin_secret(namespace, password))
    for manifest in manifests.couchbase(place, image):
        kube.apply(manifest)
    rollout = ["rollout", "status", f"deployment/{manifests.COUCHBASE}", "-n", place.couchbase]
    kube.kubectl(*rollout, "--timeout=120s")


def install_operator(kube: Kube, place: Place, image: Published, made: Made) -> None:
    """Install or upgrade our chart, watching the place's namespace alone, and wait until the operator runs."""
    values = ["--set", f"image.repository={image.repository}", "--set", f"image.tag={image.tag}"]
    content = manifests.CONTENT.replace(".", "\\.")
    values += ["--set-string", f"podAnnotations.{content}={image.inputs}"]
    values += ["--set", f"watchNamespaces={{{place.name}}}"]
    flags = [*values, "--wait", "--timeout=180s"]
    was_defined = kube.get("crd", DEFINITION) is not None
    try:
        kube.helm("upgrade", "--install", RELEASE, str(CHART), "-n", place.system, *flags)
    finally:
        # an installation that failed has brought the definition all the same
        if not was_defined and (definition := kube.get("crd", DEFINITION)):
            made.crd_uid = definition["metadata"]["uid"]
            made.save()


def apply_example(kube: Kube, place: Place, engine_image: str, example: Path = QUICKSTART) -> dict[str, Any]:
    """Apply an example, with the engine image where this cluster finds it; return the resource."""
    documents = [document for document in yaml.safe_load_all(example.read_text()) if document]
    resource: dict[str, Any] = next(document for document in documents if document["kind"] == names.KIND)
    resource["spec"].setdefault("engine", {})["image"] = engine_image
    resource["spec"]["couchbase"]["connectionString"] = f"couchbase://{place.couchbase_host}"
    for document in documents:
        document["metadata"]["namespace"] = place.name
        kube.apply(document)
    return resource


def wait_until_ready(kube: Kube, place: Place, name: str) -> dict[str, Any]:
    """Wait for the resource's Ready and return it."""
    kube.wait_until_ready(f"{names.SHORT_NAME}/{name}", place.name, _READY_SECONDS)
    found = kube.get(names.SHORT_NAME, name, "-n", place.name)
    if found is None:
        raise DemoError(f"{names.KIND} {place.name}/{name} went away")
    return found


def served_model(resource: dict[str, Any]) -> str:
    """Return the name under which the pods of a resource serve its model."""
    spec = resource["spec"]
    return str(spec.get("engine", {}).get("servedModelName") or spec["model"]["id"].rsplit("/", 1)[-1])


def take_down(kube: Kube, place: Place, made: Made) -> None:
    """Remove what the record names: resource first, so that the operator can clean up, then the rest."""
    for namespace in place.all:
        if namespace not in made.namespaces:
            continue
        with PROGRESS.step(f"removing namespace {namespace}"):
            if namespace == place.name:
                kube.kubectl("delete", names.SHORT_NAME, "--all", "-n", namespace, "--timeout=60s", check=False)
                # a namespace whose pods still drain is looked at again only after half of their grace period
                kube.kubectl("wait", "--for=delete", "pods", "--all", "-n", namespace, "--timeout=150s", check=False)
            if namespace == place.system:
                kube.helm("uninstall", RELEASE, "-n", namespace, "--ignore-not-found", "--wait", "--timeout=120s")
            kube.kubectl("delete", "namespace", namespace, "--ignore-not-found", "--timeout=180s", timeout_seconds=200)
        made.namespaces.remove(namespace)
        made.save()
    _remove_definition(kube, made)


def _remove_definition(kube: Kube, made: Made) -> None:
    """Delete the definition if it is the one that the demo brought and nobody uses it: its resources go with it."""
    definition = kube.get("crd", DEFINITION) if made.crd_uid else None
    if definition is not None and definition["metadata"]["uid"] == made.crd_uid:
        if used := (kube.get(DEFINITION, "-A") or {"items": []})["items"]:
            places = ", ".join(f"{item['metadata']['namespace']}/{item['metadata']['name']}" for item in used)
            PROGRESS.say(f"crd/{DEFINITION} stays: {places} would be deleted with it")
            return
        kube.kubectl("delete", "crd", DEFINITION, "--ignore-not-found", "--timeout=60s")
    made.crd_uid = ""
    made.save()


def leftovers(kube: Kube, place: Place) -> list[str]:
    """Return what of an installation that was taken down is still there, in namespaces and beside them."""
    kept = [f"namespace/{name}" for name in place.all if kube.get("namespace", name)]
    kinds = "clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings"
    listed = kube.get(kinds) or {"items": []}
    owner = "meta.helm.sh/release-namespace"
    of_release = [
        item for item in listed["items"] if item["metadata"].get("annotations", {}).get(owner) == place.system
    ]
    return kept + [f"{item['kind']}/{item['metadata']['name']}" for item in of_release]
