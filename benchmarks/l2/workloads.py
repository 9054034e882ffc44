"""What every contender has to store, look up and load."""

from dataclasses import dataclass

KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class Workload:
    """Objects of one size, all in one task per round; every round has objects of its own.

    Attributes:
        rounds: measured rounds of one run.
        warmup_rounds: rounds before those; their time is not counted, their peak of memory is.
        is_lookup_only: only its lookups are reported; storing and loading come with them.
    """

    objects: int
    object_bytes: int
    rounds: int
    warmup_rounds: int
    is_lookup_only: bool = False

    @property
    def size_text(self) -> str:
        """Size of one object, for people."""
        return size_text(self.object_bytes)

    @property
    def title(self) -> str:
        """The workload in a few words."""
        return f"{self.objects} x {self.size_text}"

    @property
    def total_rounds(self) -> int:
        """Rounds of one run, warm-up included."""
        return self.rounds + self.warmup_rounds


# Chunks of 36 MiB are those of an 8B model with 256 tokens; the smallest are a small model's.
WORKLOADS = (
    Workload(16, 36 * MIB, rounds=3, warmup_rounds=1),
    Workload(64, MIB, rounds=10, warmup_rounds=2),
    Workload(256, 64 * KIB, rounds=20, warmup_rounds=2),
    # Whether an object exists does not depend on its size; small ones allow many rounds.
    Workload(40, 64 * KIB, rounds=200, warmup_rounds=20, is_lookup_only=True),
)
LARGE, LOOKUP = WORKLOADS[0], WORKLOADS[-1]


def size_text(size_bytes: int) -> str:
    """Write a size in whole MiB or KiB."""
    return f"{size_bytes // MIB} MiB" if size_bytes >= MIB else f"{size_bytes // KIB} KiB"
