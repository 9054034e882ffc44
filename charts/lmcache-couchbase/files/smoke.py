"""`helm test`: the operator is well, its resources are served, and every instance of the release answers.

Arguments: the operator's base URL, then NAMESPACE/NAME of each instance. Standard library only; ends with
status 1 and one sentence when something is wrong.
"""

import json
import ssl
import sys
import urllib.error
import urllib.request
from pathlib import Path

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
GROUP = "/apis/lmcache-couchbase.io/v1alpha1"


def call(url, *, headers=None, body=None, context=None, timeout_seconds=10):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers={"Content-Type": "application/json", **(headers or {})})
    try:
        with urllib.request.urlopen(request, timeout=timeout_seconds, context=context) as response:
            return response.read().decode()
    except urllib.error.HTTPError as error:
        sys.exit(f"failed: {url} answered {error.code}: {error.read(500).decode(errors='replace')}")
    except OSError as error:
        sys.exit(f"failed: {url} does not answer: {error}")


def kubernetes(path):
    token = (ACCOUNT / "token").read_text()
    context = ssl.create_default_context(cafile=ACCOUNT / "ca.crt")
    url = f"https://kubernetes.default.svc{path}"
    return json.loads(call(url, headers={"Authorization": f"Bearer {token}"}, context=context))


def check_instance(namespace, name):
    resource = kubernetes(f"{GROUP}/namespaces/{namespace}/lmcachecouchbases/{name}")
    status = resource.get("status", {})
    ready = next((each for each in status.get("conditions", []) if each["type"] == "Ready"), {})
    if ready.get("status") != "True":
        sys.exit(f"failed: {namespace}/{name} is not Ready: {ready.get('reason')}: {ready.get('message')}")
    url = status["workload"]["url"].rstrip("/")
    (model, *_) = json.loads(call(f"{url}/v1/models"))["data"]
    question = {"model": model["id"], "prompt": "Once upon a time", "max_tokens": 8}
    answer = json.loads(call(f"{url}/v1/completions", body=question, timeout_seconds=120))
    print(f"{namespace}/{name} answered: {answer['choices'][0]['text']!r}", flush=True)


def main(operator_url, *instances):
    call(f"{operator_url}/healthz")
    print(f"{operator_url} is well", flush=True)
    served = [each["name"] for each in kubernetes(GROUP)["resources"]]
    if "lmcachecouchbases" not in served:
        sys.exit(f"failed: the API server does not serve lmcachecouchbases under {GROUP}")
    print("LMCacheCouchbase resources are served", flush=True)
    for instance in instances:
        check_instance(*instance.split("/"))


if __name__ == "__main__":
    main(*sys.argv[1:])
