"""Ask pod after pod and gather the evidence of who computed and who read from Couchbase."""

from __future__ import annotations

import time
from dataclasses import dataclass

from couchbase_lm_operator import names
from e2e.cluster.progress import Progress
from e2e.demo.chat import Answer, ask
from e2e.demo.kube import DemoError, Kube
from e2e.demo.metrics import PodCounters, read_counters
from e2e.demo.prompt import Prompt, new_prompt

SERVING_PORT = 8000
PROGRESS = Progress("demo")
_READY_SECONDS = 600


@dataclass(frozen=True)
class Turn:
    """One prompt answered by one pod, and by how much the pod's counters grew meanwhile."""

    label: str
    pod: str
    answer: Answer
    before: PodCounters
    growth: PodCounters

    @property
    def cached_tokens(self) -> int:
        """Return the tokens that vLLM took from outside instead of computing them."""
        return int(self.growth.external_hit_tokens)


@dataclass(frozen=True)
class Workload:
    """The pods of one resource."""

    kube: Kube
    namespace: str
    name: str

    def pods(self) -> list[str]:
        """Return the names of the pods that are not on their way out, oldest first."""
        selector = ",".join(f"{key}={value}" for key, value in names.selector_labels(self.name).items())
        listed = self.kube.get("pods", "-n", self.namespace, "-l", selector, "--sort-by=.metadata.creationTimestamp")
        items = (listed or {}).get("items", [])
        return [item["metadata"]["name"] for item in items if not item["metadata"].get("deletionTimestamp")]

    def resource(self) -> dict[str, object]:
        """Return the live resource."""
        found = self.kube.get(names.SHORT_NAME, self.name, "-n", self.namespace)
        if found is None:
            raise DemoError(f"{names.KIND} {self.namespace}/{self.name} does not exist")
        return found

    def ask(self, label: str, pod: str, model: str, prompt: Prompt) -> Turn:
        """Send the prompt to one pod and read its counters before and after."""
        with PROGRESS.step(f"{label}: {pod}"), self.kube.forward(self.namespace, f"pod/{pod}", SERVING_PORT) as url:
            before = read_counters(self.kube, self.namespace, pod, url)
            answer = ask(url, model, prompt.text)
            after = self._settled(pod, url, before)
        turn = Turn(label, pod, answer, before, after.since(before))
        PROGRESS.say(
            f"{answer.first_token_seconds:.2f} s to the first token; {turn.cached_tokens} tokens from Couchbase"
        )
        return turn

    def warm_up(self, pods: list[str], model: str) -> None:
        """Let each pod answer once: its first answer compiles kernels, which is no matter of the cache.

        The prompt is shorter than a chunk and so stays out of every cache.
        """
        with PROGRESS.step(f"warming up {len(pods)} pods"):
            for pod in pods:
                with self.kube.forward(self.namespace, f"pod/{pod}", SERVING_PORT) as url:
                    ask(url, model, new_prompt(tokens=150).text)

    def _settled(self, pod: str, url: str, before: PodCounters) -> PodCounters:
        # LMCache exports its counters from an event bus, a moment after the request has ended.
        deadline = time.monotonic() + 10
        while True:
            after = read_counters(self.kube, self.namespace, pod, url)
            growth = after.since(before)
            is_told = not growth.external_hit_tokens or growth.l2_hit_tokens >= growth.external_hit_tokens
            if is_told or time.monotonic() > deadline:
                return after
            time.sleep(0.5)

    def wait_until_stored(self, turn: Turn, chunks: int, timeout_seconds: float = 90) -> None:
        """Wait until the pod's LMCache has written the turn's ``chunks`` to Couchbase."""
        with (
            PROGRESS.step(f"{turn.pod} writes {chunks} chunks to Couchbase"),
            self.kube.forward(self.namespace, f"pod/{turn.pod}", SERVING_PORT) as url,
        ):
            deadline = time.monotonic() + timeout_seconds
            while True:
                stored = read_counters(self.kube, self.namespace, turn.pod, url).since(turn.before).l2_stored_chunks
                if stored >= chunks:
                    return
                if time.monotonic() > deadline:
                    raise DemoError(f"{turn.pod} stored {stored:.0f} of {chunks} chunks in {timeout_seconds:.0f} s")
                time.sleep(1)

    def wait_until_sized(self, timeout_seconds: int = 180) -> None:
        """Wait until the operator has seen that pods store objects of the sizes in status."""
        with PROGRESS.step("the operator compares the stored sizes with the predicted ones"):
            resource = f"{names.SHORT_NAME}/{self.name}"
            self.kube.wait_until_ready(resource, self.namespace, timeout_seconds, condition="SizingVerified")

    def replace_pods(self) -> list[str]:
        """Delete all pods and return the new ones once they are ready."""
        old = self.pods()
        with PROGRESS.step(f"deleting {len(old)} pods and waiting for new ones"):
            self.kube.kubectl("delete", "pod", "-n", self.namespace, *old, "--wait=true", timeout_seconds=300)
            deadline = time.monotonic() + _READY_SECONDS
            while len(new := [pod for pod in self.pods() if pod not in old]) < len(old):
                if time.monotonic() > deadline:
                    raise DemoError(f"{len(old)} pods were deleted and only {len(new)} came back")
                time.sleep(1)
            ready = ["wait", "--for=condition=Ready", "-n", self.namespace, f"--timeout={_READY_SECONDS}s"]
            self.kube.kubectl(*ready, *(f"pod/{pod}" for pod in new), timeout_seconds=_READY_SECONDS + 15)
        return new
