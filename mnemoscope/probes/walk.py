r"""A forward pass as a list of small equations with their numbers, in the order of the computation.

Every matrix is a `Line`: a name, the formula that made it from lines before it, and its values
(rows are positions or tokens). Values are the model's own, read from its trace; formulas are exact
and are written so that a reader, or a test, can work each line out again from the lines above:

    X = E + P    QKV = X @ W_QKV + b_QKV    S = Q @ K^T / sqrt(d_head)    A = softmax(mask(S))   ...

A step ends with one sentence on what it did to the prediction. What the residual stream would say
if it were read out at once (through the final norm where there is one) is the prediction so far.

`mnemoscope.probes.walk_lines` says what formulas are made of, `mnemoscope.probes.logit_attribution`
how the logits are split into what each part wrote.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mnemoscope.core.axes import Float
from mnemoscope.core.errors import UserError
from mnemoscope.models import HookedModel
from mnemoscope.models.consumer_support import ANY, Support
from mnemoscope.probes.walk_attention import walk_attention
from mnemoscope.probes.walk_lines import Line, Rows, Step, Writer
from mnemoscope.probes.walk_steps import walk_embedding, walk_feed_forward, walk_read_out

__all__ = ["SUPPORT", "Line", "Step", "Walk", "walk"]

SUPPORT = Support(
    "the walk",
    {
        "norm": ANY,
        "norm_type": ("layer", "rms"),
        "norm_eps": ANY,
        "bias": ANY,
        "unembed_bias": ANY,
        "tied": ANY,
        # activations and attention are written by their names, whichever are in the tables
        "act": ANY,
        "attention": ANY,
        "gated_mlp": ANY,
        "parallel_attn_mlp": ANY,
        "attn_layers": ANY,
        "mlp_layers": ANY,
        "custom_layers": ((),),
        "attn_residual": ANY,
        "causal": ANY,
        "d_head": ANY,
        "n_key_value_heads": ANY,
        "positions": ("learned", "none", "sinusoidal", "rotary"),
        "rotary_dim": ANY,
        "rotary_base": ANY,
        "rotary_adjacent_pairs": ANY,
    },
)


@dataclass(frozen=True)
class Walk:
    """The whole pass for one prompt."""

    prompt: tuple[str, ...]
    """Its tokens, as they are written."""
    token_names: tuple[str, ...]
    """How every token is written."""
    steps: tuple[Step, ...]
    """In the order of the computation."""
    stream: dict[str, Rows]
    """The residual stream after each step that changed it."""
    components: dict[str, Float[np.ndarray, "pos vocab"]]
    """What each part of the model adds to the logits."""
    logits: Float[np.ndarray, "pos vocab"]
    """What the model says."""
    read_out: tuple[Float[np.ndarray, "d_model vocab"], Float[np.ndarray, "vocab"]]
    """The matrix and the bias that make logits of the stream."""

    @property
    def probabilities(self) -> Float[np.ndarray, "pos vocab"]:
        """softmax of the logits, by position."""
        return _softmax(self.logits)

    def contributions(self, position: int) -> dict[str, Float[np.ndarray, "vocab"]]:
        """What each part added to the logits at one position, and last their sum."""
        parts = {name: part[position] for name, part in self.components.items()}
        return parts | {"sum, the logits": np.sum(list(parts.values()), axis=0)}


def walk(model: HookedModel, tokens: Sequence[int], token_names: tuple[str, ...]) -> Walk:
    """Walk one prompt through a model.

    Args:
        model: A plain transformer.
        tokens: The prompt.
        token_names: How the tokens are written.
    """
    config = model.config
    SUPPORT.require(config)
    if not config.tied and model.params["unembed.W_U"].shape[1] != len(token_names):
        raise UserError(
            "a walk is written for models whose answers are their tokens; "
            "this model has answers of its own"
        )
    writer = Writer(model, model.check(tokens), token_names)
    walk_embedding(writer)
    for layer in range(config.n_layers):
        if config.has_attn(layer):
            walk_attention(writer, layer)
        if config.has_mlp(layer):
            walk_feed_forward(writer, layer)
    walk_read_out(writer, _softmax(writer.logits))
    return Walk(
        prompt=writer.prompt,
        token_names=writer.token_names,
        steps=tuple(writer.steps),
        stream=writer.stream,
        components=writer.components,
        logits=writer.logits,
        read_out=writer.reading,
    )


def _softmax(x: Float[np.ndarray, "pos vocab"]) -> Float[np.ndarray, "pos vocab"]:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)
