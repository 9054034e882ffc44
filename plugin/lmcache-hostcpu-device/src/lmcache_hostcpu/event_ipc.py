"""Events between worker and server: what orders the transfers of LMCache-driven mode."""

from __future__ import annotations

from lmcache_hostcpu.torch_module import Event, Stream


class HostEventIPCBackend:
    """LMCache's ``EventIPCBackend`` over :class:`lmcache_hostcpu.torch_module.Event`.

    Nothing has to be kept alive after an export: a handle stands for work that is already done.
    """

    device_type = "cpu"

    def check_event_support(self, device: object) -> None:
        """Refuse devices whose work the host cannot see.

        Raises:
            RuntimeError: ``device`` is not the host CPU. An index is: LMCache gives one for the active device.
        """
        kind = getattr(device, "type", None) or (self.device_type if isinstance(device, int) else str(device))
        if str(kind).partition(":")[0] != self.device_type:
            raise RuntimeError(
                f"backend 'hostcpu' has no events for device {device}: it orders work of the host CPU only; "
                f"choose the backend of that device with LMCACHE_DEVICE_BACKEND"
            )

    def create_event(self, device: object) -> Event:
        """Return a new event that other processes can wait for."""
        self.check_event_support(device)
        return Event(interprocess=True)

    def export_event(self, event: Event, device: object) -> bytes:  # noqa: ARG002
        """Return the handle of a recorded event.

        Raises:
            RuntimeError: the event was not recorded.
        """
        return event.ipc_handle()

    def import_event(self, handle: bytes, device: object) -> Event:
        """Return the event of a handle from another process.

        Raises:
            RuntimeError: the handle comes from another kind of device.
        """
        return Event.from_ipc_handle(device, handle)

    def record_event(self, event: Event, stream: Stream) -> None:
        """Record ``event`` after what ``stream`` has been given."""
        event.record(stream)

    def wait_event(self, event: Event, stream: Stream) -> None:
        """Let ``stream`` go on after ``event``."""
        event.wait(stream)

    def query_event(self, event: Event) -> bool:
        """Return at once whether ``event`` is complete."""
        return event.query()

    def synchronize_event(self, event: Event, device: object) -> None:  # noqa: ARG002
        """Return when ``event`` is complete."""
        event.synchronize()
