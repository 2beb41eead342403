"""Exchange with other tools: models from elsewhere; models in TransformerLens's format, both ways;
runs and ledgers as tables.

Nothing here is a pickle: what is read cannot run code. Names are loaded when first used, as in
`mnemoscope` itself.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mnemoscope.exchange.lens import read_transformer_lens, write_transformer_lens

__all__ = ["read_transformer_lens", "write_transformer_lens"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("mnemoscope.exchange.lens"), name)
    raise AttributeError(
        f"module 'mnemoscope.exchange' has no attribute {name!r}; it has: {', '.join(__all__)}"
    )
