"""The faster forms of the loss: the same loss and the same gradient."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from asking import Asking
from hypothesis import example, given
from hypothesis import strategies as st
from model_shapes import D_VOCAB, N_CTX, config_of, shaken, shapes, unusual
from tries import tries

from mnemoscope.models import (
    ModelConfig,
    parameter_shapes,
)
from mnemoscope.models.rewrites import gpu_kernel, token_counts
from mnemoscope.models.rewrites.choose import REWRITES, choose_rewrite
from mnemoscope.tasks import Example
from mnemoscope.training.loss import batch_loss

TOKEN_COUNTS, PAIR_TABLES, *_ = REWRITES


@tries(4)
@given(shapes, unusual, st.integers(0, 99))
def test_a_bag_of_tokens_has_the_same_loss_and_gradient(shape, other, seed):
    """Asked at the end of every sequence by the same token, in float64."""
    config = config_of(
        shape | other | {"n_layers": 1, "norm": "none", "positions": "none", "mlp_on": None}
    )
    task = Asking(read=(N_CTX - 1,), asks_by=2)
    assert choose_rewrite(config, task).name == "token counts"
    assert token_counts.why_not(config, Asking(read=(N_CTX - 1,))) is not None
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, D_VOCAB, (5, N_CTX))
    tokens[:, -1] = 2
    with jax.enable_x64(True):
        params = {
            name: jnp.array(0.5 * rng.normal(size=size))
            for name, size in parameter_shapes(config, D_VOCAB, N_CTX).items()
        }
        weights = jnp.zeros((5, N_CTX)).at[:, -1].set(jnp.array(rng.uniform(0.5, 1, 5)))
        batch = Example(jnp.array(tokens), jnp.array(rng.integers(0, D_VOCAB, (5, N_CTX))), weights)

        def route(p, plain):
            return jax.value_and_grad(
                lambda p: batch_loss(task, config, p, batch, None if plain else TOKEN_COUNTS)
            )(p)

        both = jax.jit(
            lambda p: (route(p, False), route(p, True)),
            compiler_options={"xla_backend_optimization_level": 0},
        )
        quick, plain = both(params)
    assert float(quick[0]) == pytest.approx(float(plain[0]), rel=1e-12)
    for name, exact in plain[1].items():
        np.testing.assert_allclose(quick[1][name], exact, rtol=1e-10, atol=1e-12, err_msg=name)


@pytest.mark.parametrize(("apart", "exact"), [(70.0, True), (400.0, False)])
def test_a_bag_of_tokens_whose_scores_lie_far_apart(apart, exact):
    """Token 0 has by far the best score and is in the first sequence alone;
    the others must not be lost beside it.
    """
    config = ModelConfig(
        d_model=3, n_heads=1, d_mlp=0, bias=False, positions="none", attn_residual=False, tied=True
    )
    rng = np.random.default_rng(0)
    params = {
        name: jnp.asarray(rng.normal(size=size), float)
        for name, size in parameter_shapes(config, 4, 3).items()
    }
    params |= {"embed.W_E": jnp.asarray([[1.0, 0, 1], [0, 0.5, 1], [0, -0.5, 1], [0.0, 0, 1]])}
    # q . k / sqrt(3) = 3^.5 apart x_0 3^-.5 = apart for token 0 and 0 for token 3,
    # from which is asked
    keys = jnp.zeros((1, 3, 3)).at[0, 0, 2].set(3**0.5 * apart).at[0, 1, 2].set(1.0)
    params |= {"blocks.0.attn.W_Q": jnp.eye(3)[None], "blocks.0.attn.W_K": keys}
    tokens = jnp.array([[0, 1, 3], [1, 2, 3]])
    batch = Example(tokens, jnp.full((2, 3), 1), jnp.zeros((2, 3)).at[:, -1].set(1.0))
    task = Asking(length=3, read=(2,), asks_by=3)

    def route(p, plain):
        return jax.value_and_grad(
            lambda p: batch_loss(task, config, p, batch, None if plain else TOKEN_COUNTS)
        )(p)

    quick, plain = jax.jit(lambda p: (route(p, False), route(p, True)))(params)
    assert all(jnp.isfinite(x).all() for x in jax.tree.leaves(quick)), "never lost altogether"
    if exact:
        assert float(quick[0]) == pytest.approx(float(plain[0]), rel=1e-5)
        for name in plain[1]:
            np.testing.assert_allclose(
                quick[1][name], plain[1][name], rtol=1e-4, atol=1e-5, err_msg=name
            )


def loss_and_gradient(config, params, example, read, still, routes, dtype):
    """Of the same numbers in float32 or float64, by each route:
    the loss, and the gradient of what is not frozen as one vector.
    """
    with jax.enable_x64(dtype is np.float64):
        params = {name: jnp.asarray(value, dtype) for name, value in params.items()}
        batch = Example(*map(jnp.array, example[:2]), jnp.array(example[2], dtype))
        held = {name: value for name, value in params.items() if name in still}
        free = {name: value for name, value in params.items() if name not in still}
        task = Asking(read=tuple(read))

        def every(p):
            return [
                jax.value_and_grad(
                    lambda p, plain=plain: batch_loss(
                        task, config, held | p, batch, None if plain else PAIR_TABLES
                    )
                )(p)
                for plain in routes
            ]

        found = jax.jit(every, compiler_options={"xla_backend_optimization_level": 0})(free)
        assert all(loss.dtype == dtype for loss, _ in found)
        return [
            (np.array([float(x)]), np.concatenate([np.ravel(g) for g in gradient.values()]))
            for x, gradient in found
        ]


NARROW = {
    "width": 1,
    "n_heads": 2,
    "n_layers": 1,
    "norm": "pre",
    "d_mlp": 0,
    "mlp_on": (),
    "act": "relu",
}
# more sequences than tokens, read from the first position on
BY_TOKEN = NARROW | {
    "width": 3,
    "d_mlp": 7,
    "mlp_on": None,
    "bias": True,
    "unembed_bias": True,
    "tied": False,
}


@tries(1)
@example(NARROW | {"bias": True, "unembed_bias": True, "tied": True}, 9, {3}, True, 5)
@example(BY_TOKEN | {"norm": "none"}, 1, {0, 2, 7}, False, 9)
@example(BY_TOKEN | {"norm": "post"}, 2, {0, 8}, False, 9)
@example(
    BY_TOKEN | {"n_layers": 2, "bias": False, "act": "linear", "mlp_on": (0,)}, 3, {1, 5}, True, 5
)
@given(
    shapes,
    st.integers(0, 99),
    st.sets(st.integers(0, N_CTX - 1), min_size=1),
    st.booleans(),
    st.sampled_from([5, 9]),
)
def test_the_fast_rewrite_has_the_same_loss_and_gradient(shape, seed, read, freeze, batch):
    """1e-12 relative in float64 and 1e-6 in float32: the rewrite is exact,
    what is left is rounding.

    A norm over two or three units near zero loses digits in float32 on any route; there the two may
    lie apart by sixteen times what rounding the parameters to float32 once more would do to the
    float64 value: a pass rounds every stream a few dozen times. The most that was seen is seven.
    """
    config, read = config_of(shape), tuple(sorted(read))
    assert choose_rewrite(config, Asking(read=tuple(read))).name == "pair tables"
    rng = np.random.default_rng(seed)
    drawn = (
        *rng.integers(0, D_VOCAB, (2, batch, N_CTX)),
        rng.uniform(0.5, 1, (batch, N_CTX)).astype(np.float32),
    )
    still = {"embed.W_E", "blocks.0.attn.W_V"} if freeze else set()

    def by(routes, dtype, nudges=None):
        params = shaken(config, seed)
        if nudges is not None:  # by half of a float32's last digit
            params = {
                n: np.asarray(x, float) * (1 + 2.0**-24 * nudges.choice([-1, 1], x.shape))
                for n, x in params.items()
            }
        return loss_and_gradient(config, params, drawn, read, still, routes, dtype)

    routes = (*by((True, False), np.float64), *by((True, False), np.float32))
    for i, (exact, fast64, plain32, fast32) in enumerate(zip(*routes, strict=True)):
        size, apart = np.linalg.norm(exact), np.linalg.norm(fast32 - plain32)
        assert np.linalg.norm(fast64 - exact) <= 1e-12 * size, ("loss", "gradient")[i]
        if apart > 1e-6 * size:
            moved = [
                by((True,), np.float64, np.random.default_rng(k))[0][i] - exact for k in range(4)
            ]
            assert apart <= 16 * max(map(np.linalg.norm, moved)), ("loss", "gradient")[i]


@pytest.mark.parametrize("shape", [(16, 2, "none", 1), (24, 3, "post", 1), (6, 1, "pre", 2)])
def test_the_gpu_kernel_has_the_same_loss_and_gradient(shape, monkeypatch):
    """Interpreted, without a GPU; the sizes of the second and third have to be padded for Triton.

    It computes in float32 alone: from float64's plain pass it may be
    four times as far as float32's plain pass is.
    """
    d_model, n_heads, norm, n_layers = shape
    config = ModelConfig(d_model=d_model, n_heads=n_heads, norm=norm, n_layers=n_layers, d_mlp=8)
    rng, read, params, used = np.random.default_rng(0), (0, 3, 8), shaken(config), []
    drawn = (
        *rng.integers(0, D_VOCAB, (2, 2 * gpu_kernel.CHUNK, N_CTX)),
        np.ones((2 * gpu_kernel.CHUNK, N_CTX)),
    )
    monkeypatch.setattr(gpu_kernel, "applies", lambda *_: used.append(True) or True)
    monkeypatch.setattr(
        gpu_kernel, "table_attention", partial(gpu_kernel.table_attention, interpret=True)
    )
    (exact,) = loss_and_gradient(config, params, drawn, read, set(), (True,), np.float64)
    assert not used
    quick, plain = loss_and_gradient(config, params, drawn, read, set(), (False, True), np.float32)
    assert used
    for i, what in enumerate(("loss", "gradient")):
        off, plain_off = (
            np.linalg.norm(route[i] - exact[i]) / np.linalg.norm(exact[i])
            for route in (quick, plain)
        )
        assert off <= max(1e-6, 4 * plain_off), what
        assert plain_off < 1e-5, "rounding, and not more, is what is allowed"


def test_the_gpu_kernel_leaves_what_it_cannot_hold_to_the_plain_route(monkeypatch):
    """Tables of too many pairs, heads too wide for the memory that a program shares,
    broken chunks.
    """
    fits = {"n_pairs": 54, "d_head": 16, "batch": gpu_kernel.CHUNK}
    assert not gpu_kernel.applies(**fits), "no GPU"
    monkeypatch.setattr(gpu_kernel.jax, "default_backend", lambda: "gpu")
    assert gpu_kernel.applies(**fits)
    assert gpu_kernel.applies(**fits | {"d_head": gpu_kernel.WIDEST_HEAD})
    for change in ({"n_pairs": 65}, {"d_head": 4096}, {"batch": gpu_kernel.CHUNK + 1}):
        assert not gpu_kernel.applies(**fits | change), change
