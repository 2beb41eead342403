"""What can stand in the feed-forward layer, by the names that `ModelConfig.act` has for it.

    post = act(pre)

To add one, add it here. The forward pass then has it, and so has whatever takes it from this table:
the walk, every rewrite. Whatever computes it in a way of its own, such as the explorer's JavaScript
or TransformerLens (`mnemoscope.models.consumer_support`), refuses it by name until it says that it
can.
"""

from collections.abc import Callable

import jax

from mnemoscope.core.axes import Array

Activation = Callable[[Array], Array]

ACTIVATIONS: dict[str, Activation] = {
    "relu": jax.nn.relu,
    "linear": lambda x: x,
    "gelu": lambda x: jax.nn.gelu(x, approximate=False),
    "gelu_new": lambda x: jax.nn.gelu(x, approximate=True),
    "silu": jax.nn.silu,
}
