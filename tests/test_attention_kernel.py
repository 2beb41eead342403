"""Attention in one kernel: interpreted, without a GPU, the loss and gradient of the plain pass at
sizes that are padded for Triton and sizes that are not, in one block of rows and in several.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from asking import Asking

from mnemoscope.models import ModelConfig, parameter_shapes
from mnemoscope.models.precision import lowered
from mnemoscope.models.rewrites import attention_kernel
from mnemoscope.models.rewrites.attention_kernel import Sizes
from mnemoscope.models.rewrites.choose import FUSED_ATTENTION
from mnemoscope.tasks import Bigrams, Example, Hops
from mnemoscope.training.loss import batch_loss

D_VOCAB, BATCH = 7, 3
FUSED = FUSED_ATTENTION
SMALL = Sizes(forward_rows=16, backward_rows=16)  # rows of a block


@pytest.fixture
def interpreted(monkeypatch):
    """The kernel runs here, in small blocks; how often it was called."""
    called = []
    attend = partial(attention_kernel.attend, sizes=SMALL, interpret=True)

    def counted(*given):
        called.append(given)
        return attend(*given)

    monkeypatch.setattr(attention_kernel, "attend", counted)
    return called


def drawn(config, length, seed=0):
    rng = np.random.default_rng(seed)
    params = {
        name: float(name.endswith(".w")) + 0.5 * rng.normal(size=size)
        for name, size in parameter_shapes(config, D_VOCAB, length).items()
    }
    tokens, targets = rng.integers(0, D_VOCAB, (2, BATCH, length))
    return params, (tokens, targets, rng.uniform(0.5, 1, (BATCH, length)))


def by(config, params, example, task, dtype, rewrite, precision="default"):
    """Loss and gradient, as vectors."""
    with jax.enable_x64(dtype is np.float64):
        params = {name: jnp.asarray(value, dtype) for name, value in params.items()}
        batch = Example(jnp.array(example[0]), jnp.array(example[1]), jnp.array(example[2], dtype))

        def loss(p):
            return batch_loss(task, config, lowered(p, precision), batch, rewrite)

        value, gradient = jax.jit(jax.value_and_grad(loss))(params)
        return np.array([float(value)]), np.concatenate([np.ravel(gradient[n]) for n in params])


@pytest.mark.parametrize(
    ("length", "fields"),
    [
        (32, {"d_model": 32, "n_heads": 2}),  # nothing is padded, two blocks of rows
        (11, {"d_model": 12, "n_heads": 3, "norm": "post"}),
        (16, {"d_model": 8, "n_heads": 4, "n_key_value_heads": 2, "positions": "rotary"}),
        (17, {"d_model": 8, "n_heads": 2, "d_head": 5, "causal": False, "norm": "pre"}),
    ],
)
def test_the_kernel_has_the_loss_and_gradient_of_the_plain_pass(length, fields, interpreted):
    """It computes in float32 alone: from float64's plain pass it may be four times as far as
    float32's plain pass is.
    """
    config = ModelConfig(**{"n_layers": 2, "d_mlp": 8} | fields)
    params, example = drawn(config, length)
    task = Asking(tokens=D_VOCAB, length=length)
    exact = by(config, params, example, task, np.float64, None)
    plain = by(config, params, example, task, np.float32, None)
    assert not interpreted
    quick = by(config, params, example, task, np.float32, FUSED)
    assert len(interpreted) == 2, "one call a layer"
    for i, what in enumerate(("loss", "gradient")):
        size, off = np.linalg.norm(exact[i]), np.linalg.norm(plain[i] - exact[i])
        assert np.linalg.norm(quick[i] - exact[i]) <= max(1e-6 * size, 4 * off), what


def test_a_last_layer_that_is_read_here_and_there_goes_without_the_kernel(interpreted):
    config = ModelConfig(d_model=8, n_heads=2, n_layers=2, d_mlp=8)
    params, example = drawn(config, 11)
    task = Asking(tokens=D_VOCAB, length=11, read=(0, 5, 10))
    exact = by(config, params, example, task, np.float64, None)
    quick = by(config, params, example, task, np.float32, FUSED)
    assert len(interpreted) == 1
    for i in (0, 1):
        assert np.linalg.norm(quick[i] - exact[i]) <= 1e-5 * np.linalg.norm(exact[i])


def test_the_kernel_in_bfloat16_is_near_float32(interpreted):
    config = ModelConfig(d_model=16, n_heads=2, n_layers=2, d_mlp=8, norm="pre")
    params, example = drawn(config, 16)
    task = Asking(tokens=D_VOCAB, length=16)
    exact = by(config, params, example, task, np.float32, None)
    low = by(config, params, example, task, np.float32, FUSED, "bfloat16")
    assert interpreted[0][0].dtype == jnp.bfloat16
    assert 0 < abs(low[0] - exact[0]) < 0.02 * exact[0]
    assert np.linalg.norm(low[1] - exact[1]) < 0.1 * np.linalg.norm(exact[1])


def test_many_seeds_go_through_one_call(interpreted):
    """Under `vmap` over seeds, each has what it has alone."""
    rng = np.random.default_rng(0)
    qkv = jnp.asarray(rng.normal(size=(3, 2, 16, 6, 16)), jnp.float32)

    def z(qkv):
        return attention_kernel.attend(qkv, 2, True)

    together = jax.jit(jax.vmap(z))(qkv)
    for seed in range(3):
        np.testing.assert_allclose(together[seed], z(qkv[seed]), rtol=1e-6, atol=1e-6)


def test_the_comparison_can_fail(interpreted, monkeypatch):
    monkeypatch.setattr(attention_kernel, "HIDDEN", -3.0)
    config = ModelConfig(d_model=8, n_heads=2, d_mlp=8)
    params, example = drawn(config, 16)
    task = Asking(tokens=D_VOCAB, length=16)
    exact = by(config, params, example, task, np.float64, None)
    quick = by(config, params, example, task, np.float32, FUSED)
    assert np.linalg.norm(quick[1] - exact[1]) > 1e-3 * np.linalg.norm(exact[1])


def test_when_attention_is_fused(monkeypatch):
    task = Bigrams(length=256, loss="all")
    config = ModelConfig(d_model=128, n_heads=4)
    assert FUSED.why_not(config, task) == "its kernel runs on a GPU alone"
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert FUSED.why_not(config, task) is None
    assert FUSED.why_not(config, task, "bfloat16") is None
    long = Bigrams(length=257, loss="all")
    assert FUSED.why_not(config, long) == "257 positions (allowed: up to 256)"
    wide = ModelConfig(d_model=512, n_heads=2)
    assert FUSED.why_not(wide, task) == "d_head=256 (allowed: up to 128)"
    relu = ModelConfig(d_model=128, n_heads=4, attention="relu")
    assert FUSED.why_not(relu, task) == "attention='relu' (allowed: 'softmax')"
    assert "read after earlier layers" in FUSED.why_not(config, Hops(n=3, k=2))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_both_kernels_are_written_for_triton(dtype):
    """Made for a GPU as far as that goes without one: Triton's own compiler is not asked."""
    qkv = jnp.zeros((2, 256, 12, 32), dtype)

    def both(qkv, dz):
        return jax.vjp(lambda x: attention_kernel.attend(x, 4, True), qkv)[1](dz)

    traced = jax.jit(both).trace(qkv, jnp.zeros((2, 256, 4, 32), dtype))
    text = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert "attention_backward" in text
    assert "triton" in text.lower()
