r"""A transformer that composes k functions in log2 k + 1 layers, written down: one head a layer, no
training.

The stream holds one-hot codes side by side: the place (a, b), the value shown there, and a register
for what each layer finds.

    layer 0   (a, b)                looks at (a, pi_a(b))      and finds sigma_a(pi_a(b)):  1 hop
    layer i   (a, b) with value w   looks at (a + 2^(i-1), w)  and finds what is there:     2^i hops

Both are scores of two parts, [the key's index is the wanted one] + [the key's value is the wanted
one], so that the right key is ahead of every other by at least `STRENGTH`. The hidden permutations
stand in the queries of layer 0 alone. Layer i writes its find into register i, and the read-out
weighs register i by 2^i, more than all before it together: whatever layer one stops after, it reads
the newest. The width is N k + N (log2 k + 2).
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array, Int, Params
from mnemoscope.models import ModelConfig
from mnemoscope.tasks import Hops

STRENGTH = 40.0  # nats between the right key and the next best


def hop_model(task: Hops) -> ModelConfig:
    """The shape of the hand-built model."""
    return ModelConfig(
        d_model=task.n * task.k + task.n * (task.levels + 1),
        n_heads=1,
        d_head=task.n + task.k,
        n_layers=task.levels,
        d_mlp=0,
        bias=False,
        causal=False,
    )


def write_hops(task: Hops, hidden: Int[Array, "k n"]) -> Params:
    """The weights that follow these hidden permutations."""
    n = task.n
    k = task.k
    config = hop_model(task)
    d = config.d_model
    d_head = config.d_head
    places = np.arange(n * k)
    index, value = np.divmod(places, n)  # a and b of every position
    digits = np.arange(n)

    def register(layer: int) -> np.ndarray:
        """Where a layer writes; what is shown stands in front of the first."""
        return n * k + n * (layer + 1) + digits

    params: dict[str, Any] = {
        "embed.W_E": np.zeros((n, d)),
        "pos_embed.W_pos": np.eye(n * k, d),
        "unembed.W_U": np.zeros((d, n)),
    }
    params["embed.W_E"][digits, register(-1)] = 1
    for layer in range(config.n_layers):
        # a head's own axis is an index of k followed by a value of n
        w_q = np.zeros((1, d, d_head))
        w_k = np.zeros((1, d, d_head))
        w_v = np.zeros((1, d, d_head))
        w_o = np.zeros((1, d_head, d))
        w_k[0, places, index] = 1
        w_k[0, places, k + value] = 1
        ahead = 0 if layer == 0 else 2 ** (layer - 1)
        w_q[0, places, (index + ahead) % k] = 1
        if layer == 0:
            w_q = jnp.asarray(w_q).at[0, places, k + hidden.reshape(-1)].set(1)
        else:
            w_q[0, register(layer - 1), k + digits] = 1
        w_v[0, register(layer - 1), digits] = 1
        w_o[0, digits, register(layer)] = 1
        params["unembed.W_U"][register(layer), digits] = 2.0**layer
        attn = f"blocks.{layer}.attn"
        params[f"{attn}.W_Q"] = STRENGTH * d_head**0.5 * w_q
        params[f"{attn}.W_K"] = w_k
        params[f"{attn}.W_V"] = w_v
        params[f"{attn}.W_O"] = w_o
    return {name: jnp.asarray(x, float) for name, x in params.items()}
