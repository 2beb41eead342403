"""In which precision a pass computes: that of the parameters that it is handed.

    default    float32; products as the device multiplies by default (TF32 on some GPUs)
    highest    float32; products of floats as they are
    bfloat16   activations and products in bfloat16; parameters that are kept, norms, softmax and
               loss in float32

For bfloat16 the matrices, biases and embeddings are rounded before a pass (`lowered`); whatever
has to be wide asks for it (`wide`), and float32 and float64 go through as they are. The gradient
comes back in the precision of the parameters that were rounded.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Final, Literal

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array, Params, Shaped

Precision = Literal["default", "highest", "bfloat16"]
# precisions in which a pass computes as it is written
OF_FLOAT32: Final[tuple[Precision, ...]] = ("default", "highest")
EVERY: Final[tuple[Precision, ...]] = ("default", "highest", "bfloat16")


def lowered(params: Params, precision: Precision) -> Params:
    """Parameters as a pass of this precision takes them; scales and shifts of norms stay wide.

    Args:
        params: Parameters by name.
        precision: In what the pass computes.
    """
    if precision != "bfloat16":
        return params

    def of_pass(name: str, x: Array | np.ndarray) -> Array | np.ndarray:
        is_of_norm = name.split(".")[-1] in ("w", "b")
        return x if is_of_norm else jnp.asarray(x).astype(jnp.bfloat16)

    return {name: of_pass(name, x) for name, x in params.items()}


def wide(x: Shaped[Array, "*axes"]) -> Shaped[Array, "*axes"]:
    """x in float32 where it is bfloat16; anything else as it is."""
    return x.astype(jnp.float32) if x.dtype == jnp.bfloat16 else x


def products(precision: Precision) -> AbstractContextManager[object]:
    """Inside, products are traced with what a precision asks of them."""
    if precision == "highest":
        return jax.default_matmul_precision("highest")
    return nullcontext()
