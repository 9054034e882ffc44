"""The package as a wheel, installed next to an LMCache that has never heard of it."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pytest
from conftest import BUCKET, PASSWORD, USERNAME, Place

from e2e import bootstrap

pytestmark = [pytest.mark.engine_cli, pytest.mark.timeout(400)]

PACKAGE = Path(__file__).parents[1]
README = (PACKAGE / "README.md").read_text()
LMCACHE = "import sys; from lmcache.cli.main import main; sys.exit(main())"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter whose environment holds LMCache's packages and the installed wheel."""
    folder = tmp_path_factory.mktemp("alone")
    uv = str(bootstrap.uv())
    interpreter = folder / "env" / "bin" / "python"
    # Debian's bundle holds what the host trusts; uv brings its own otherwise.
    environment = os.environ | {"SSL_CERT_FILE": "/etc/ssl/certs/ca-certificates.crt"}
    for command in (
        [uv, "build", "-q", "--wheel", "-o", str(folder / "dist"), str(PACKAGE)],
        [uv, "venv", "-q", "--python", sys.executable, str(folder / "env")],
    ):
        subprocess.run(command, env=environment, check=True, timeout=120)
    (wheel,) = (folder / "dist").glob("*.whl")
    subprocess.run(
        [uv, "pip", "install", "-q", "--python", str(interpreter), str(wheel)], env=environment, check=True, timeout=120
    )
    packages = subprocess.check_output(
        [interpreter, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True
    ).strip()
    Path(packages, "lmcache-environment.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return interpreter


def environment(place: Place) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return kept | {
        "LMCACHE_COUCHBASE_CONNSTR": place.emulator.connection_string,
        "LMCACHE_COUCHBASE_USERNAME": USERNAME,
        "LMCACHE_COUCHBASE_PASSWORD": PASSWORD,
        "LMCACHE_COUCHBASE_BUCKET": BUCKET,
        "LMCACHE_COUCHBASE_SCOPE": place.params["scope_name"],
        "LMCACHE_COUCHBASE_COLLECTION": place.collection,
        "LMCACHE_TRACK_USAGE": "false",
    }


def test_the_wheel_brings_what_the_smoke_test_needs(python: Path, place: Place) -> None:
    script = PACKAGE / "examples" / "store_smoke.py"
    done = subprocess.run(
        [python, script], env=environment(place), cwd="/", check=False, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "Couchbase LMCache store smoke test passed\n"), done.stderr


def test_the_server_of_the_readme_starts(python: Path, place: Place, tmp_path: Path) -> None:
    """Word for word, but for ports and the size of L1, which must fit a small machine."""
    written = re.search(
        r"lmcache server --port 6555 .*? --l1-size-gb 16 --eviction-policy LRU .*? '(\{.*?\})'\n", README, re.DOTALL
    )
    assert written, "the README's command has changed"
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        port, http_port = (str(bound.getsockname()[1]) for bound in (one, other))
    log = tmp_path / "server.log"
    command = [python, "-c", LMCACHE, "server", "--port", port, "--http-port", http_port, "--l1-size-gb", "0.25"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--eviction-policy", "LRU", "--l2-adapter", written[1]],
            env=environment(place),
            cwd="/",
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        deadline = time.monotonic() + 180
        while "Couchbase L2 adapter ready" not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        assert PASSWORD not in log.read_text()
    finally:
        process.terminate()
        process.wait(60)
