"""In-memory emulator of the parts of Couchbase Server that this product uses: a development and test tool.

`Emulator` is an asynchronous context manager, `running_emulator` the same in a thread for synchronous code;
`python -m e2e.couchbase_emulator` runs it alone. Its word is never taken alone: `e2e/conformance` runs against it
and against a real cluster.
"""

from e2e.couchbase_emulator.emulator import Emulator
from e2e.couchbase_emulator.faults import FOREVER, Faults
from e2e.couchbase_emulator.model.documents import Document
from e2e.couchbase_emulator.options import EmulatorOptions
from e2e.couchbase_emulator.running import RunningEmulator, running_emulator

__all__ = ["FOREVER", "Document", "Emulator", "EmulatorOptions", "Faults", "RunningEmulator", "running_emulator"]
