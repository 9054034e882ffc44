"""``python -m e2e.demo up|down``."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from e2e.cluster import binaries, lifecycle
from e2e.cluster.errors import ClusterError
from e2e.demo import record, stack
from e2e.demo.bucket import Bucket, check_documents
from e2e.demo.journey import PROGRESS, Turn, Workload
from e2e.demo.kube import DemoError, Kube
from e2e.demo.metrics import read_transport
from e2e.demo.prompt import new_prompt
from e2e.demo.report import print_table, write_result
from e2e.images import registry

_LOGPROB_TOLERANCE = 0.1
_LEAST_CACHED_SHARE = 0.9
_USER_TOOLS = ("kubectl", "helm")


def up(cluster: str, image_registry: str) -> None:
    """Bring everything up, then prove that a second pod answers from what the first computed."""
    if cluster == "external" and not image_registry:
        raise DemoError("CLUSTER=external needs IMAGE_REGISTRY to name a registry that your cluster pulls from")
    kube = Kube(stack.own_kubeconfig(cluster))
    if cluster == "local":
        made = _start_node(kube)
    else:
        binaries.ensure(_USER_TOOLS)
        made = record.of_cluster(kube, is_local=False)
    images = registry.publish(image_registry) if cluster == "external" else registry.load_locally()
    with PROGRESS.step("namespaces, Couchbase (emulated) and its admin Secret"):
        stack.make_namespaces(kube, stack.PLACE, made)
        password = stack.admin_password(kube, stack.PLACE)
        stack.run_couchbase(kube, stack.PLACE, images["emulator"], password)
    with PROGRESS.step("installing the operator from charts/lmcache-couchbase"):
        stack.install_operator(kube, stack.PLACE, images["operator"], made)
    with PROGRESS.step("applying examples/quickstart.yaml and waiting for Ready"):
        name = stack.apply_example(kube, stack.PLACE, images["engine-cpu"].reference)["metadata"]["name"]
        resource = stack.wait_until_ready(kube, stack.PLACE, name)
    bucket = Bucket(kube, stack.PLACE, password, resource["status"]["couchbase"])
    prove(Workload(kube, stack.PLACE.name, name), resource, bucket, record.FOLDER)
    print(f"written: {record.FOLDER / 'result.json'} and result.png")
    print(f"left up: kubectl --kubeconfig {kube.kubeconfig} get lmcb -A; `make demo-down` removes it")


def prove(workload: Workload, resource: dict[str, Any], bucket: Bucket, folder: Path) -> list[Turn]:
    """Run the journey, check all that it claims, show it and write it into ``folder``."""
    chunk_tokens = resource["status"]["model"]["chunkSize"]
    served = stack.served_model(resource)
    prompt, (pod_a, pod_b) = new_prompt(), workload.pods()[:2]
    workload.warm_up([pod_a, pod_b], served)
    known = bucket.keys()
    turns = [workload.ask("pod A computes", pod_a, served, prompt)]
    chunks = turns[0].answer.prompt_tokens // chunk_tokens
    workload.wait_until_stored(turns[0], chunks)
    workload.wait_until_sized()
    turns.append(workload.ask("pod B reads Couchbase", pod_b, served, prompt))
    new_keys = bucket.keys() - known
    new_pods = workload.replace_pods()[:2]
    workload.warm_up(new_pods, served)
    for number, pod in enumerate(new_pods, start=1):
        turns.append(workload.ask(f"new pod {number} reads Couchbase", pod, served, prompt))
    with PROGRESS.step("checking answers, documents and rights"):
        check_answers(turns, prompt.fact, chunks * chunk_tokens)
        facts = check_documents(resource, new_keys, chunks, bucket.probe(workload, new_keys))
        transports = {pod: read_transport(workload.kube, workload.namespace, pod) for pod in new_pods}
        if set(transports.values()) != {"direct"}:
            raise DemoError(f"the pods do not use the direct transport: {transports}")
    print_table(turns)
    write_result(folder, turns, {"chunkTokens": chunk_tokens, "chunks": chunks, "transport": "direct", "bucket": facts})
    return turns


def check_answers(turns: list[Turn], fact: str, storable_tokens: int) -> None:
    """Raise DemoError unless all turns agree, know the fact, and all but the first came from Couchbase."""
    first = turns[0]
    faults = [f"{first.label}: {first.cached_tokens} tokens came from the cache"] if first.cached_tokens else []
    for turn in turns:
        if turn.answer.text != first.answer.text or fact not in turn.answer.text:
            faults.append(f"{turn.label}: answered {turn.answer.text!r}; the fact is {fact}")
        if abs(turn.answer.first_logprob - first.answer.first_logprob) > _LOGPROB_TOLERANCE:
            faults.append(f"{turn.label}: first token's log-probability {turn.answer.first_logprob:.3f}")
    for turn in turns[1:]:
        if turn.cached_tokens < _LEAST_CACHED_SHARE * storable_tokens:
            faults.append(f"{turn.label}: {turn.cached_tokens} of {storable_tokens} tokens came from the cache")
        if turn.growth.l2_hit_tokens <= 0:
            faults.append(f"{turn.label}: LMCache reports no hit in Couchbase")
    if faults:
        raise DemoError("the journey did not go as it has to:\n" + "\n".join(faults))


def _start_node(kube: Kube) -> record.Made:
    """Start the local node unless it runs, and return its record, which says who started it."""
    if not lifecycle.is_healthy():
        record.mark_node_start()
    lifecycle.up()
    made = record.of_cluster(kube, is_local=True)
    made.started_node = made.started_node or record.is_node_start_marked()
    made.save()
    record.clear_node_start()
    return made


def down() -> None:
    """Remove exactly what ``up`` made, on every cluster that has a record.

    Raises:
        DemoError: something could not be removed or reached; its record stays for the next try.
    """
    faults = []
    if records := record.all_records():
        binaries.ensure(_USER_TOOLS)
    for made in records:
        try:
            _remove(made)
        except DemoError as error:
            faults.append(str(error))
    if record.is_node_start_marked():
        lifecycle.down()
        record.clear_node_start()
    if faults:
        raise DemoError("\n".join(faults))


def _remove(made: record.Made) -> None:
    kube = reach(made)
    if kube is not None:
        stack.take_down(kube, stack.PLACE, made)
        if kept := stack.leftovers(kube, stack.PLACE):
            raise DemoError(f"still there: {', '.join(kept)}")
        if made.crd_uid:
            return
    if made.started_node and (kube is not None or not lifecycle.is_healthy()):
        lifecycle.down()
    made.forget()


def reach(made: record.Made) -> Kube | None:
    """Return a way to the cluster of a record, or None when it was a local node that is gone with all it held.

    Raises:
        DemoError: neither the recorded kubeconfig nor KUBECONFIG leads to that very cluster.
    """
    faults = []
    for path in dict.fromkeys((made.kubeconfig, os.environ.get("KUBECONFIG", ""))):
        if not path or not Path(path).is_file():
            continue
        kube = Kube(Path(path))
        try:
            if (found := record.identity(kube)) == made.cluster:
                return kube
            faults.append(f"{path} leads to the cluster {found}")
        except DemoError as error:
            faults.append(f"{path}: {error}")
    if made.is_local:
        return None
    raise DemoError(
        f"cannot reach the cluster {made.cluster} ({'; '.join(faults) or f'{made.kubeconfig} does not exist'}): "
        f"let KUBECONFIG name a kubeconfig of it and run this again; what the demo made there is in {made.file}"
    )


def main() -> int:
    """Parse the command line and turn expected failures into one message."""
    parser = argparse.ArgumentParser(prog="python -m e2e.demo", description=__doc__)
    parser.add_argument("what", choices=["up", "down"])
    parser.add_argument("--cluster", choices=["local", "external"], default="local")
    parser.add_argument("--image-registry", default="", help="where an external cluster pulls our images from")
    arguments = parser.parse_args()
    try:
        down() if arguments.what == "down" else up(arguments.cluster, arguments.image_registry)
    except (DemoError, ClusterError) as error:
        print(f"demo failed: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
