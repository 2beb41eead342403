"""Mnemoscope: grow memory in tiny transformers, look inside while it forms, test what papers say about it.

Names are loaded when first used, so that `import mnemoscope` and `mnemoscope --help` do not wait for JAX.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0.dev0"

if TYPE_CHECKING:
    from mnemoscope.core.errors import UserError
    from mnemoscope.models import (
        Edit,
        ModelConfig,
        Transformer,
        force_pattern,
        knock_out_head,
        knock_out_mlp,
        patch,
        replace,
    )
    from mnemoscope.tasks import Bigrams, Cycle, Facts, Permutation, read_corpus
    from mnemoscope.training.loop import fit
    from mnemoscope.training.optimizers import SGD, Adam
    from mnemoscope.training.run import Run
    from mnemoscope.training.spec import Spec

_HOME = {
    "mnemoscope.core.errors": ["UserError"],
    "mnemoscope.models": [
        "Edit", "ModelConfig", "Transformer", "force_pattern", "knock_out_head", "knock_out_mlp", "patch", "replace",
    ],
    "mnemoscope.training.optimizers": ["SGD", "Adam"],
    "mnemoscope.training.spec": ["Spec"],
    "mnemoscope.tasks": ["Bigrams", "Cycle", "Facts", "Permutation", "read_corpus"],
    "mnemoscope.training.run": ["Run"],
    "mnemoscope.training.loop": ["fit"],
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
