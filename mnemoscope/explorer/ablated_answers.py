"""What a model answers, whole and with each of its parts ablated."""

from typing import Any

import jax

from mnemoscope.core.axes import Array, Float, Params, Tokens
from mnemoscope.models import Model, bind
from mnemoscope.probes.ablation import build_edits, list_cases


def answer_ablated(config: Model, params: Params, tokens: Tokens) -> Float[Array, "case pos vocab"]:
    """Probabilities after every token, for each of `list_cases`.

    Args:
        config: The model.
        params: Its parameters by name.
        tokens: The prompt.
    """
    model = bind(config, params)

    def ablated(knock_out: Any) -> Array:
        return jax.nn.softmax(model(tokens, knock_out), axis=-1)

    # without any part to ablate there are no edits to count the cases by
    return jax.vmap(ablated, axis_size=len(list_cases(config)))(build_edits(config))
