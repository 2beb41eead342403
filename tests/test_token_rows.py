"""Token rows: the loss and gradient of the plain pass for any row of the tables of layers, in
float64 to rounding, in float32 no worse than the plain pass rounds; and the shape of the work.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from asking import Asking
from hypothesis import assume, example, given
from hypothesis import strategies as st
from tries import tries

from mnemoscope.core.errors import UserError
from mnemoscope.models import ModelConfig, parameter_shapes
from mnemoscope.models.rewrites import row_attention, token_rows
from mnemoscope.models.rewrites.choose import REWRITES, choose_rewrite
from mnemoscope.tasks import Bigrams, Example, Hops
from mnemoscope.training.loss import batch_loss, loss_and_gradient

D_VOCAB, LENGTH, BATCH = 7, 11, 6
(TOKEN_ROWS,) = (each for each in REWRITES if each.name == "token rows")
# two sequences at a time
CHUNKS = dataclasses.replace(TOKEN_ROWS, tokens_at_once=2 * LENGTH)

shapes = st.fixed_dictionaries(
    {
        "d_model": st.sampled_from([4, 6]),
        "n_heads": st.sampled_from([1, 2]),
        "n_layers": st.integers(1, 3),
        "d_mlp": st.sampled_from([0, 5]),
        "norm": st.sampled_from(["none", "pre", "post"]),
        "norm_type": st.sampled_from(["layer", "rms"]),
        "bias": st.booleans(),
        "unembed_bias": st.booleans(),
        "tied": st.booleans(),
        "act": st.sampled_from(["relu", "gelu", "silu"]),
        "gated_mlp": st.booleans(),
        "attention": st.sampled_from(["softmax", "softmax", "linear", "relu"]),
        "causal": st.booleans(),
        "attn_residual": st.booleans(),
        "positions": st.sampled_from(["learned", "none", "rotary", "sinusoidal"]),
        "rotary_adjacent_pairs": st.booleans(),
    }
)
reads = st.sampled_from([tuple(range(LENGTH)), (0, 2, 4, 6, 8, 10), (LENGTH - 1,), (1, 2, 7)])
PLAIN = {"d_model": 4, "n_heads": 2, "n_layers": 2, "d_mlp": 5}
GROUPS = PLAIN | {"n_heads": 4, "n_key_value_heads": 2, "d_head": 2, "norm": "pre"}
PARALLEL = PLAIN | {"norm": "pre", "parallel_attn_mlp": True, "positions": "rotary"}
LLAMA = GROUPS | {"norm_type": "rms", "gated_mlp": True, "act": "silu", "positions": "rotary"}
SOME_LAYERS = PLAIN | {"n_layers": 3, "attn_layers": (1,), "mlp_layers": (0, 2)}
EVERY = tuple(range(LENGTH))


@pytest.fixture(scope="module", autouse=True)
def small_blocks():
    """Attention in several blocks of rows, the last one not full."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_attention, "ROWS", 4)
        yield


def routes(config, read, seed, dtype, rewrite=CHUNKS, sharpness=0.5):
    """Loss and gradient by token rows in chunks and by the plain pass, as vectors."""
    rng = np.random.default_rng(seed)
    sizes = parameter_shapes(config, D_VOCAB, LENGTH)
    drawn = {
        name: float(name.endswith(".w")) + sharpness * rng.normal(size=size)
        for name, size in sizes.items()
    }
    tokens, targets = rng.integers(0, D_VOCAB, (2, BATCH, LENGTH))
    weights = rng.uniform(0.5, 1, (BATCH, LENGTH))
    task = Asking(length=LENGTH, read=read)
    with jax.enable_x64(dtype is np.float64):
        params = {name: jnp.asarray(value, dtype) for name, value in drawn.items()}
        batch = Example(jnp.array(tokens), jnp.array(targets), jnp.array(weights, dtype))

        def by(rewrite):
            return jax.value_and_grad(lambda p: batch_loss(task, config, p, batch, rewrite))

        found = jax.jit(lambda p: [by(each)(p) for each in (rewrite, None)])(params)
        return [
            (np.array([float(x)]), np.concatenate([np.ravel(gradient[n]) for n in drawn]))
            for x, gradient in found
        ]


@tries(6)
@example(GROUPS, EVERY, 0)
@example(PARALLEL, (1, 2, 7), 1)
@example(LLAMA, EVERY, 2)
@example(SOME_LAYERS, (LENGTH - 1,), 3)
@example(PLAIN | {"causal": False, "norm": "post"}, EVERY, 4)
@given(shapes, reads, st.integers(0, 99))
def test_token_rows_have_the_loss_and_gradient_of_the_plain_pass(shape, read, seed):
    try:
        config = ModelConfig(**shape)
    except UserError:  # heads too narrow to rotate
        assume(False)
    assert token_rows.SUPPORT.why_not(config) is None
    quick, exact = routes(config, read, seed, np.float64)
    for what in (0, 1):  # the loss, the gradient
        assert np.linalg.norm(quick[what] - exact[what]) <= 1e-12 * np.linalg.norm(exact[what])


@pytest.mark.parametrize("shape", [LLAMA, PLAIN | {"norm": "pre", "act": "gelu"}])
def test_in_float32_token_rows_round_no_worse_than_the_plain_pass(shape):
    config = ModelConfig(**shape)
    _, exact = routes(config, EVERY, 1, np.float64)
    quick, plain = routes(config, EVERY, 1, np.float32)
    for what in (0, 1):
        size, off = np.linalg.norm(exact[what]), np.linalg.norm(plain[what] - exact[what])
        assert np.linalg.norm(quick[what] - exact[what]) <= max(1e-6 * size, 4 * off)


def test_a_large_vocabulary_is_looked_up(monkeypatch):
    monkeypatch.setattr(token_rows, "MOST_TOKENS", D_VOCAB - 1)
    quick, exact = routes(ModelConfig(**PLAIN), EVERY, 0, np.float64)
    for what in (0, 1):
        assert np.linalg.norm(quick[what] - exact[what]) <= 1e-12 * np.linalg.norm(exact[what])


def test_scores_of_any_size_have_a_softmax():
    """Far from zero a score's exponential is no float; relative to the row's highest it is."""
    config = ModelConfig(**PLAIN)
    quick, exact = routes(config, EVERY, 0, np.float64, sharpness=8)
    assert np.isfinite(quick[1]).all()
    assert np.linalg.norm(quick[1] - exact[1]) <= 1e-10 * np.linalg.norm(exact[1])


def test_the_comparison_can_fail(monkeypatch):
    monkeypatch.setattr(row_attention, "HIDDEN", -4.0)
    quick, exact = routes(ModelConfig(**PLAIN), EVERY, 0, np.float64)
    assert np.linalg.norm(quick[1] - exact[1]) > 1e-6 * np.linalg.norm(exact[1])


def test_blocks_of_rows_see_no_key_after_them():
    """The products of attention have as many keys as the block's last row sees."""
    heads = jnp.zeros((2, 3, LENGTH, 5))
    text = str(
        jax.make_jaxpr(lambda q: row_attention.attend(jnp.array(True), True, q, q, q))(heads)
    )
    for rows, keys in ((4, 4), (4, 8), (3, 11)):
        assert f"f32[2,3,{rows},{keys}] = dot_general" in text
    assert "f32[2,3,11,11]" not in text


def test_which_trainings_take_token_rows():
    two_heads = ModelConfig(d_model=8, n_heads=2)
    assert choose_rewrite(two_heads, Bigrams(length=16)).name == "token rows"
    assert choose_rewrite(ModelConfig(d_model=8, n_heads=1), Bigrams(length=16)).name == (
        "score tables"
    )
    hops = Hops(n=3, k=2)
    assert TOKEN_ROWS.why_not(two_heads, hops) == "answers are read after earlier layers too"


def test_on_another_device_they_say_that_they_do_not_pay(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    why_not = TOKEN_ROWS.why_not(ModelConfig(d_model=8, n_heads=2), Bigrams(length=16))
    assert why_not == "it pays on a CPU alone"


def test_what_is_frozen_has_no_gradient():
    config = ModelConfig(d_model=4, n_heads=2)
    task = Asking(tokens=65, length=LENGTH)
    assert choose_rewrite(config, task).name == "token rows"
    params = {
        name: jnp.full(size, 0.1) for name, size in parameter_shapes(config, 65, LENGTH).items()
    }
    frozen = {"embed.W_E": params.pop("embed.W_E")}
    batch = Example(*jnp.zeros((2, 4, LENGTH), int), jnp.ones((4, LENGTH)))
    _, gradient = jax.jit(lambda p: loss_and_gradient(task, config, p, frozen, batch))(params)
    assert set(gradient) == set(params)
