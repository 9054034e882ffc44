"""Before an uninstall: delete the release's instances while the operator is there to clean up after them.

Helm deletes custom resources last, after the operator: their users would stay in Couchbase, and an instance with
`reclaimPolicy: Delete` would wait for ever for its bucket to be removed.
Arguments: NAMESPACE/NAME of each instance. Standard library only. An instance that is not gone in time is named, and
does not stop the uninstall.
"""

import ssl
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
GROUP = "/apis/lmcache-couchbase.io/v1alpha1"
WAIT_SECONDS = 180
# Without a finalizer a resource is gone at once; the operator removes its user a moment later.
GRACE_SECONDS = 5


def request(method, instance):
    namespace, name = instance.split("/")
    url = f"https://kubernetes.default.svc{GROUP}/namespaces/{namespace}/lmcachecouchbases/{name}"
    headers = {"Authorization": f"Bearer {(ACCOUNT / 'token').read_text()}"}
    context = ssl.create_default_context(cafile=ACCOUNT / "ca.crt")
    try:
        call = urllib.request.Request(url, method=method, headers=headers)
        with urllib.request.urlopen(call, timeout=10, context=context):
            return True
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return False
        raise


def main(*instances):
    waiting = [each for each in instances if request("DELETE", each)]
    deadline = time.monotonic() + WAIT_SECONDS
    while waiting and time.monotonic() < deadline:
        time.sleep(1)
        waiting = [each for each in waiting if request("GET", each)]
    time.sleep(GRACE_SECONDS)
    for each in waiting:
        print(f"{each} is still being deleted after {WAIT_SECONDS} s: see its conditions", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
