"""How few bits a snapshot's weights may have: as few as leave its answers what they are.

The page says how far its answers are from Python's, and calls more than 1e-4 of a probability
wrong. Rounded weights may use up half of that, at any snapshot that the page can open, whole or
with a part knocked out.
"""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array, Float, Params
from mnemoscope.explorer.ablated_answers import answer_ablated
from mnemoscope.explorer.weight_bytes import GRID_BITS, Blocks, round_block
from mnemoscope.models import Model

TOLERANCE = 5e-5  # of a probability; a test holds that it is half of that in static/parity.js
BITS = (12, 14, 16, 18, 20, 22, GRID_BITS)  # in this order they are tried
SMALL = 2**17  # so few numbers are carried as they are
AT_ONCE = 16  # models whose values on the way must fit the memory together

Answer = Callable[[Params, Array], Float[Array, "snap pos vocab"]]


def choose_bits(
    config: Model, seeds: Sequence[Blocks], prompts: Sequence[list[int]]
) -> list[list[int]] | None:
    """How many bits the numbers of each seed and snapshot have; None leaves them as they are.

    Args:
        config: The model.
        seeds: The weights of each, with a row for each of its snapshots.
        prompts: What every model is asked.

    """
    n_numbers = sum(block.size for blocks in seeds for block in blocks.values())
    if n_numbers <= SMALL:
        return None
    ask = _compile(config)
    exact = _ask_all(ask, seeds, prompts)
    bits = np.zeros(len(exact[0]), int)
    for tried in BITS:
        rounded = _ask_all(ask, [_round_all(blocks, tried) for blocks in seeds], prompts)
        off = [np.abs(a - b).max(axis=(1, 2, 3)) for a, b in zip(exact, rounded, strict=True)]
        bits[(bits == 0) & (np.max(off, axis=0) <= TOLERANCE)] = tried
        if bits.all():
            break
    if not bits.all():
        return None
    ends = np.cumsum([len(next(iter(blocks.values()))) for blocks in seeds])
    return [part.tolist() for part in np.split(bits, ends[:-1])]


def _compile(config: Model) -> Answer:
    """Answers to one prompt for many models."""

    @jax.jit
    def answer(params: Params, tokens: Array) -> Array:
        return jax.lax.map(
            lambda params: answer_ablated(config, params, tokens), params, batch_size=AT_ONCE
        )

    return answer


def _ask_all(
    ask: Answer, seeds: Sequence[Blocks], prompts: Sequence[list[int]]
) -> list[Float[np.ndarray, "snap case pos vocab"]]:
    """The probabilities of every prompt, for the snapshots of all seeds one after another."""
    params: Params = {
        name: jnp.asarray(np.concatenate([blocks[name] for blocks in seeds])) for name in seeds[0]
    }
    return [np.asarray(ask(params, jnp.array(tokens))) for tokens in prompts]


def _round_all(blocks: Blocks, bits: int) -> Blocks:
    """A seed's weights as they come back."""
    return {name: round_block(block, bits) for name, block in blocks.items()}
