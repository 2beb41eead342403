"""Every rewrite for every row of the layer tables: it says why not,
or has the loss and the gradient of the plain pass.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from asking import Asking
from hypothesis import given
from hypothesis import strategies as st
from layer_rows import ROWS
from tries import tries

from mnemoscope.core.errors import UserError
from mnemoscope.models import ModelConfig, parameter_shapes
from mnemoscope.models.activations import ACTIVATIONS
from mnemoscope.models.rewrites.choose import REWRITES
from mnemoscope.tasks import Example
from mnemoscope.training import loss

# two sequences a chunk
BY_NAME = {
    rewrite.name: replace(rewrite, tokens_at_once=rewrite.tokens_at_once and 2 * 5)
    for rewrite in REWRITES
}
# small models that a rewrite is for, and what they are asked
SMALL = {"d_model": 6, "n_heads": 2, "n_layers": 1, "d_mlp": 3}
FOR = {
    "token counts": {"positions": "none"},
    "pair tables": {},
    "score tables": {"n_heads": 1},
}
TASKS = {
    "token counts": Asking(length=5, read=(4,), asks_by=2),
    "pair tables": Asking(length=5, read=(1, 3, 4)),
    "score tables": Asking(length=5),
    "token rows": Asking(length=5),
}
TAKES_EVERYTHING = "token rows"


def config_for(name, row):
    """A model with the fields of a row that the rewrite is for otherwise; None: there is none."""
    layers = [*(row.get("attn_layers") or ()), *(row.get("mlp_layers") or ())]
    # one layer compiles in half the time of two
    two = {"n_layers": 2} if layers and name != "token counts" else {}
    try:
        return ModelConfig(**{**SMALL, **two, **FOR.get(name, {}), **row})
    except UserError:
        return None


def both(name, config, seed=0):
    """Loss and gradient by the rewrite, as training has them, and by the plain pass, in float64."""
    rewrite = BY_NAME[name]
    task = TASKS[name]
    rng = np.random.default_rng(seed)
    n = task.length
    tokens = rng.integers(0, task.d_vocab, (4, n))
    if task.asks_by is not None:
        tokens[:, -1] = task.asks_by
    weights = np.zeros((4, n))
    weights[:, task.loss_positions] = rng.uniform(0.5, 1, (4, len(task.loss_positions)))
    targets = rng.integers(0, task.d_vocab, (4, n))
    shapes = parameter_shapes(config, task.d_vocab, n)

    def routes(params):
        found = []
        for taken in (rewrite, None):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(loss, "choose_rewrite", lambda *_, taken=taken: taken)
                found.append(loss.loss_and_gradient(task, config, params, {}, batch))
        return found

    with jax.enable_x64(True):
        params = {
            key: jnp.asarray(float(key.endswith(".w")) + 0.5 * rng.normal(size=shape), np.float64)
            for key, shape in shapes.items()
        }
        batch = Example(jnp.asarray(tokens), jnp.asarray(targets), jnp.asarray(weights))
        lazily = {"xla_backend_optimization_level": 0}
        return jax.jit(routes, compiler_options=lazily)(params)


def assert_same(quick, plain):
    assert float(quick[0]) == pytest.approx(float(plain[0]), rel=1e-12)
    assert quick[1].keys() == plain[1].keys()
    for name, exact in plain[1].items():
        np.testing.assert_allclose(quick[1][name], exact, rtol=1e-9, atol=1e-12, err_msg=name)


def rows_of(name):
    """The rows that a rewrite computes, each model once, and those that it refuses."""
    taken = {}
    refused = {}
    for row, fields in ROWS.items():
        config = config_for(name, fields)
        if config is None:
            continue
        why_not = BY_NAME[name].why_not(config, TASKS[name])
        if why_not is not None:
            refused[row] = why_not
        elif config not in taken.values():
            taken[row] = config
    return taken, refused


# each compiles a program of its own: in `make test` those that go ways of their own, and a new
# activation, which takes the same way as those of the table
IN_SHORT = {
    "token counts": "attention linear",
    "pair tables": "epsilon",
    "token rows": "positions rotary",
}
TAKEN = [
    pytest.param(name, row, marks=() if IN_SHORT.get(name) == row else pytest.mark.long)
    for name in BY_NAME
    for row in rows_of(name)[0]
]


@pytest.mark.parametrize(("name", "row"), TAKEN)
def test_a_row_that_is_taken_has_the_loss_and_gradient_of_the_plain_pass(name, row):
    assert_same(*both(name, rows_of(name)[0][row]))


@pytest.mark.parametrize("name", BY_NAME)
def test_every_other_row_is_refused_in_one_line_that_names_a_field(name):
    taken, refused = rows_of(name)
    assert taken
    assert bool(refused) == (name != TAKES_EVERYTHING)
    for row, why_not in refused.items():
        assert "\n" not in why_not
        assert any(f"{field}=" in why_not for field in {**ROWS[row], "n_heads": 2}), (row, why_not)


@pytest.mark.parametrize("name", BY_NAME)
def test_a_new_activation_has_the_gradient_of_the_plain_pass(name, monkeypatch):
    monkeypatch.setitem(ACTIVATIONS, "cubic", lambda x: x**3)
    config = config_for(name, {"act": "cubic"})
    assert BY_NAME[name].why_not(config, TASKS[name]) is None
    assert_same(*both(name, config))


def test_the_comparison_can_fail():
    plain = (np.float64(1), {"embed.W_E": np.ones(3)})
    assert_same(plain, plain)
    for off in ((plain[0] + 1e-11, plain[1]), (plain[0], {"embed.W_E": np.ones(3) + 1e-8})):
        with pytest.raises(AssertionError):
            assert_same(off, plain)


supported = st.fixed_dictionaries(
    {
        "act": st.sampled_from(sorted(ACTIVATIONS)),
        "norm": st.sampled_from(["none", "pre", "post"]),
        "norm_eps": st.sampled_from([1e-5, 0.3]),
        "bias": st.booleans(),
        "unembed_bias": st.booleans(),
        "tied": st.booleans(),
        "causal": st.booleans(),
        "attention": st.sampled_from(["softmax", "linear"]),
        "attn_residual": st.booleans(),
        "mlp_layers": st.sampled_from([None, (), (0,)]),
    }
)


@pytest.mark.long
@pytest.mark.parametrize("name", BY_NAME)
@tries(3)
@given(supported, st.integers(0, 99))
def test_every_field_together(name, fields, seed):
    """Of what is drawn, each rewrite gets what it says that it computes."""
    rewrite = BY_NAME[name]
    kept = {}
    for field, value in fields.items():
        config = config_for(name, {**kept, field: value})
        if rewrite.why_not(config, TASKS[name]) is None:
            kept[field] = value
    assert {"act", "bias", "tied", "unembed_bias", "mlp_layers"} <= kept.keys()
    assert_same(*both(name, config_for(name, kept), seed))
