"""The KV caches that are transferred: geometry of real models, in each layout that LMCache passes for them."""

from dataclasses import dataclass

CHUNK_TOKENS = 256

IMPLEMENTATIONS = ("native", "torch", "copy")
DIRECTIONS = ("store", "load")


@dataclass(frozen=True)
class Layout:
    """How a layer lies in memory: LMCache's name of the format, and how many tokens a block has."""

    title: str
    format: str
    block_tokens: int


NHD = Layout("NHD, blocks of 16", "NL_X_TWO_NB_BS_NH_HS", 16)
HND = Layout("HND, blocks of 16", "NL_X_TWO_NB_NH_BS_HS", 16)
FUSED = Layout("fused HND, blocks of 16", "NL_X_NB_NH_BS_CS", 16)
FUSED_CPU = Layout("fused HND, blocks of 128", "NL_X_NB_NH_BS_CS", 128)
MLA = Layout("MLA, blocks of 16", "NL_X_NB_BS_HS", 16)
HEAD_MAJOR = (HND, FUSED, FUSED_CPU)


@dataclass(frozen=True)
class Workload:
    """A model's cache of 16-bit elements in one layout.

    ``chunks`` move in one call: twice the last-level cache of usual machines or more, but only for milliseconds, so
    that a call finds a moment in which nobody else wants the cores.
    """

    shape: str
    layout: Layout
    layers: int
    heads: int
    head_elements: int
    chunks: int
    element_bytes: int = 2

    @property
    def is_mla(self) -> bool:
        """Whether K and V share one latent plane."""
        return self.layout is MLA

    @property
    def token_bytes(self) -> int:
        """Bytes of one token in all layers."""
        return self.layers * self.heads * self.head_elements * self.element_bytes * (1 if self.is_mla else 2)

    @property
    def payload_bytes(self) -> int:
        """Bytes that one call moves."""
        return self.chunks * CHUNK_TOKENS * self.token_bytes


_MODELS = (("Llama-3.1-8B", 32, 8, 128, 2), ("Qwen3-8B", 36, 8, 128, 2), ("SmolLM2-135M", 30, 3, 64, 12))
WORKLOADS = (
    *(Workload(shape, layout, *sizes) for shape, *sizes in _MODELS for layout in (NHD, HND, FUSED, FUSED_CPU)),
    Workload("DeepSeek-V3 (MLA)", MLA, layers=61, heads=1, head_elements=576, chunks=4),
)
