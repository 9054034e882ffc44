"""Runs LMCache's server or a worker of the check kit, whose transfers stop half-way when they are told to.

``python stalling.py FOLDER MODULE ARGUMENTS``: a file ``stop-D2H`` or ``stop-H2D`` in the folder stops the next
transfer of that direction after half of its blocks; it is renamed to ``stopped`` when that has happened, and the
transfer goes on once there is a file ``go``, or fails once there is a file ``leave``.
"""

import functools
import runpy
import sys
import time
from pathlib import Path


def main() -> None:
    folder, module, *arguments = sys.argv[1:]
    stop_transfers(Path(folder))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def stop_transfers(folder: Path) -> None:
    from lmcache import device_ops, lmcache_native

    transfer = device_ops.multi_layer_block_kv_transfer

    @functools.wraps(transfer)
    def stopping(layers, objects, block_ids, device, direction, *more) -> None:
        request = folder / ("stop-D2H" if direction == lmcache_native.TransferDirection.D2H else "stop-H2D")
        if not request.exists():
            transfer(layers, objects, block_ids, device, direction, *more)
            return
        half = max(1, len(objects) // 2)
        if half < len(objects):
            transfer(
                layers, objects[:half], block_ids[: half * len(block_ids) // len(objects)], device, direction, *more
            )
        request.rename(folder / "stopped")
        while not (folder / "go").exists():
            if (folder / "leave").exists():
                raise RuntimeError("the worker leaves")
            time.sleep(0.01)
        transfer(layers, objects, block_ids, device, direction, *more)

    device_ops.multi_layer_block_kv_transfer = stopping


if __name__ == "__main__":
    main()
