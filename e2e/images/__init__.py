"""The images of this repository: what they are called, what they are made of, how they are built.

``python -m e2e.images build`` makes OCI archives; ``archive(name)`` in ``e2e.images.store`` finds them.
"""

from typing import Final

OPERATOR_IMAGE: Final = "localhost/lmcache-couchbase/operator:dev"
ENGINE_IMAGE: Final = "localhost/lmcache-couchbase/engine:dev"
ENGINE_CPU_IMAGE: Final = "localhost/lmcache-couchbase/engine-cpu:dev"
EMULATOR_IMAGE: Final = "localhost/lmcache-couchbase/emulator:dev"
