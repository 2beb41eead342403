"""Mnemoscope: grow memory in tiny transformers, look inside while it forms, test what papers say about it.

Names are loaded when first used, so that `import mnemoscope` and `mnemoscope --help` do not wait for JAX.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0.dev0"

if TYPE_CHECKING:
    from mnemoscope.config import UserError
    from mnemoscope.model import (
        Edit,
        ModelConfig,
        Transformer,
        force_pattern,
        knock_out_head,
        knock_out_mlp,
        patch,
        replace,
    )  # fmt: skip
    from mnemoscope.spec import SGD, Adam, Spec
    from mnemoscope.tasks import Bigrams, Cycle, Facts, Permutation, read_corpus
    from mnemoscope.train import Run, fit

_HOME = {
    "mnemoscope.config": ["UserError"],
    "mnemoscope.model": [
        "Edit", "ModelConfig", "Transformer", "force_pattern", "knock_out_head", "knock_out_mlp", "patch", "replace",
    ],
    "mnemoscope.spec": ["SGD", "Adam", "Spec"],
    "mnemoscope.tasks": ["Bigrams", "Cycle", "Facts", "Permutation", "read_corpus"],
    "mnemoscope.train": ["Run", "fit"],
}  # fmt: skip

__all__ = [
    "SGD", "Adam", "Bigrams", "Cycle", "Edit", "Facts", "ModelConfig", "Permutation", "Run", "Spec", "Transformer", "UserError",
    "fit", "force_pattern", "knock_out_head", "knock_out_mlp", "patch", "read_corpus", "replace",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    for home, names in _HOME.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'mnemoscope' has no attribute {name!r}; it has: {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
