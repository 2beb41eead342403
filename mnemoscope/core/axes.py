"""The axes of Mnemoscope, by name, and the array types built from them.

    seed      independent runs of one Spec; always the leading axis when present
    snap      stored moments of a training run, earliest first
    batch     sequences
    pos       positions of a sequence, as queries where attention is concerned
    key_pos   positions of a sequence, as keys
    head      attention heads
    d_model   the residual stream
    d_head    one head's queries, keys and values
    d_mlp     hidden units of the feed-forward layer
    vocab     tokens
    step      what a task asks one after another (for permutations: the pair number)
    mapping   hidden functions that a task may have drawn

Code is written for one sequence and one seed; `vmap` adds the axes in front.
"""

import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, Shaped, UInt

Tokens = Int[Array, "pos"]
Logits = Float[Array, "pos vocab"]
Params = dict[str, Array | np.ndarray]

__all__ = [
    "Array",
    "Bool",
    "Float",
    "Int",
    "Key",
    "Logits",
    "PRNGKeyArray",
    "Params",
    "Shaped",
    "Tokens",
    "UInt",
]
