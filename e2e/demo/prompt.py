"""A long prompt that nobody has seen before, with one fact in it that the answer must contain."""

from __future__ import annotations

import random
from dataclasses import dataclass

_PLACES = ("harbour", "orchard", "mill", "library", "station", "market", "bakery", "bridge", "garden", "workshop")
_PEOPLE = ("the keeper", "a carpenter", "the clerk", "a painter", "the gardener", "a sailor", "the baker", "a teacher")
_DEEDS = (
    "swept the yard before noon and left the gate open for the carts",
    "counted the barrels twice and wrote the sum on a slate",
    "mended a window that the wind had broken the week before",
    "carried three baskets of apples up the hill and rested there",
    "talked about the rain and went home along the river",
    "lit the lamps early because the fog came in from the sea",
)
_TOKENS_PER_SENTENCE = 21.8


@dataclass(frozen=True)
class Prompt:
    """A prompt, and the fact that an answer to it must contain."""

    text: str
    fact: str


def new_prompt(tokens: int = 3000, fact_at: float = 0.8) -> Prompt:
    """Return a prompt of about ``tokens`` tokens whose fact stands at the share ``fact_at`` of it.

    The first words are random, so that no chunk of it can be in any cache: chunk keys are hashes of all
    tokens up to the chunk's end.
    """
    chance = random.Random()
    code = f"{chance.randrange(1000, 10000)}"
    sentences = [_sentence(chance) for _ in range(round(tokens / _TOKENS_PER_SENTENCE))]
    sentences.insert(round(len(sentences) * fact_at), f"The secret code of the lighthouse is {code}. Remember it.")
    head = f"Notebook {chance.getrandbits(64):x}. "
    question = "\n\nQuestion: What is the secret code of the lighthouse? Answer with the number only."
    return Prompt(text=head + " ".join(sentences) + question, fact=code)


def _sentence(chance: random.Random) -> str:
    place, other = chance.sample(_PLACES, 2)
    return f"At the {place}, {chance.choice(_PEOPLE)} from the {other} {chance.choice(_DEEDS)}."
