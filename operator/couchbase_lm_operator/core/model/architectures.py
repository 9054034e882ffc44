"""Whether ``architectures`` names the class that was compared for a model type. Pure.

vLLM builds the class that ``architectures`` names, whatever ``model_type`` says: a class of another kind, such as
one that runs its layers in loops, may keep other caches under a type that is known.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from couchbase_lm_operator.core.model.config_fields import ConfigFields

# what follows the model's name in a class's name: ForCausalLM, ForConditionalGeneration, LMHeadModel
_TASK = re.compile(r"(For[A-Z]|LMHead|Model$).*")
# types that are served by the class of another
_CLASS_OF = {"kimi_k2": "deepseek_v3"}


def another_class(config: dict[str, Any]) -> str | None:
    """Return the first of ``architectures`` that is not a class of ``model_type``, None when all are or none is told.

    Names are compared without their task, without case and punctuation: ``Qwen3_5MoeForCausalLM`` is a class of
    ``qwen3_5_moe_text``.
    """
    names, model_type = config.get("architectures"), config.get("model_type")
    if not isinstance(names, list) or not isinstance(model_type, str):
        return None
    own = _plain(_CLASS_OF.get(model_type, model_type).removesuffix("_text"))
    return next((str(name) for name in names if _plain(_TASK.sub("", str(name))) != own), None)


def check_architectures(config: dict[str, Any], fields: ConfigFields) -> None:
    """Refuse a configuration whose class is not its type's.

    Raises:
        RefusedError: naming the class.
    """
    other = another_class(config)
    if other is not None:
        told = f"architectures has {other[:64]!r}, which is not the class of model_type {config['model_type']!r}."
        raise fields.unsupported(told)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
