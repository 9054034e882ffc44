"""What long steps tell the person who waits: a line when they start, a sign of life, a line when they end."""

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

_SIGN_OF_LIFE_SECONDS = 15.0


@dataclass(frozen=True)
class Progress:
    """Progress lines of one area, as `area | text`, written at once also into a pipe."""

    area: str

    def say(self, text: str) -> None:
        """Print one line."""
        print(f"{self.area:<8} | {text}", flush=True)

    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Announce a step, repeat every 15 s that it goes on, and say how long it took."""
        started = time.monotonic()
        finished = threading.Event()

        def remind() -> None:
            while not finished.wait(_SIGN_OF_LIFE_SECONDS):
                self.say(f"… {title}: {time.monotonic() - started:.0f} s so far")

        self.say(title)
        reminder = threading.Thread(target=remind, daemon=True)
        reminder.start()
        try:
            yield
        finally:
            finished.set()
            reminder.join()
        self.say(f"{title}: done in {time.monotonic() - started:.1f} s")


CLUSTER = Progress("cluster")
