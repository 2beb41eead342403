"""A layer of somebody's own in a transformer's stack: what it computes, by NumPy; its parameters,
sites and draws; and who refuses it.
"""

import json
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mnemoscope as ms
from mnemoscope.core.errors import UserError
from mnemoscope.exchange.lens import write_transformer_lens
from mnemoscope.explorer.pack import SUPPORT as EXPLORER
from mnemoscope.models.rewrites.choose import REWRITES, choose_rewrite
from mnemoscope.probes.walk import walk
from mnemoscope.training.step import trained_shapes

DECAY = 0.5


class Leaky(ms.Layer):
    """Adds a map of a leaky mean of the stream: m_t = decay m_(t-1) + (1 - decay) x_t."""

    kind: Literal["leaky"] = "leaky"
    gain: float = 1.0

    def parameter_shapes(self, config, n_ctx):
        return {"leaky.W": (config.d_model, config.d_model), "leaky.b": (config.d_model,)}

    def sites(self, config):
        return {"leaky.hook_mean": "pos d_model", "leaky.hook_out": "pos d_model"}

    def forward(self, config, params, x, site):
        def step(mean, x):
            mean = DECAY * mean + (1 - DECAY) * x
            return mean, mean

        mean = site("leaky.hook_mean", jax.lax.scan(step, jnp.zeros(config.d_model), x)[1])
        out = self.gain * (mean @ params["leaky.W"]) + params["leaky.b"][None]
        return x + site("leaky.hook_out", out)


CONFIG = ms.ModelConfig(
    d_model=4, n_heads=1, n_layers=2, d_mlp=3, bias=False, custom_layers=((0, Leaky(gain=2.0)),)
)
SPEC = ms.Spec(task=ms.Cycle(), model=CONFIG, steps=2, batch=2)
PROMPT = [1, 0, 2]


@pytest.fixture(scope="module")
def model():
    params = CONFIG.draw_parameters(3, 3, key=jax.random.key(0))
    return ms.bind(CONFIG, params | {"blocks.0.leaky.b": jnp.arange(4.0)})


def by_numpy(params, x):
    """The stream after the layer."""
    mean = np.zeros(4)
    after = []
    for row in x:
        mean = 0.5 * mean + 0.5 * row
        after.append(row + 2 * mean @ params["blocks.0.leaky.W"] + params["blocks.0.leaky.b"])
    return np.array(after)


def test_it_computes_what_numpy_does(model):
    params = {name: np.asarray(x, np.float64) for name, x in model.params.items()}
    x = params["embed.W_E"][PROMPT] + params["pos_embed.W_pos"]
    _, cache = model.run_with_cache(PROMPT)
    np.testing.assert_allclose(cache["resid_post", 0], by_numpy(params, x), atol=1e-5)
    np.testing.assert_array_equal(cache["resid_pre", 1], cache["resid_post", 0])
    np.testing.assert_allclose(cache["blocks.0.leaky.hook_mean"][1], x[0] / 4 + x[1] / 2, atol=1e-5)
    np.testing.assert_allclose(
        model.blocks[0](x.astype(np.float32)), by_numpy(params, x), atol=1e-5
    )


def test_the_rest_of_the_model_is_the_transformers(model):
    """What comes after the layer is the second layer alone, on the stream that the layer left."""
    logits, cache = model.run_with_cache(PROMPT)
    rest = model.after(1)
    assert rest.config.custom_layers == ()
    stream = ms.replace_site("hook_embed", cache["resid_post", 0])
    np.testing.assert_allclose(rest(PROMPT, stream), logits, atol=1e-5)
    assert model.after(0).config.custom_layers == CONFIG.custom_layers


def test_an_edit_in_it_changes_what_it_should(model):
    params = model.params
    silent = ms.replace_site("blocks.0.leaky.hook_out", np.zeros((1, 1)))
    _, cache = model.run_with_cache(PROMPT, silent)
    np.testing.assert_array_equal(cache["resid_post", 0], cache["resid_pre", 0])
    ones = ms.replace_site("blocks.0.leaky.hook_mean", np.ones((1, 1)))
    _, cache = model.run_with_cache(PROMPT, ones)
    out = 2 * np.asarray(params["blocks.0.leaky.W"]).sum(axis=0) + np.arange(4)
    np.testing.assert_allclose(
        cache["resid_post", 0] - cache["resid_pre", 0], np.tile(out, (3, 1)), atol=1e-5
    )


def test_names_and_draws():
    shapes = trained_shapes(SPEC)
    assert list(shapes)[:4] == [
        "embed.W_E",
        "pos_embed.W_pos",
        "blocks.0.leaky.W",
        "blocks.0.leaky.b",
    ]
    assert not any(name.startswith(("blocks.0.attn", "blocks.0.mlp")) for name in shapes)
    drawn = CONFIG.draw_parameters(3, 3, key=jax.random.key(1))
    assert {name: x.shape for name, x in drawn.items()} == shapes
    assert np.abs(drawn["blocks.0.leaky.W"]).max() <= 4**-0.5
    assert not np.asarray(drawn["blocks.0.leaky.b"]).any()
    two = CONFIG.model_copy(update={"custom_layers": ((0, Leaky()), (1, Leaky()))})
    both = two.draw_parameters(3, 3, key=jax.random.key(1))
    assert not np.array_equal(both["blocks.0.leaky.W"], both["blocks.1.leaky.W"])
    start = {"custom_layers": ((0, Leaky()),), "frozen": ("*.leaky.b",)}
    still = CONFIG.model_copy(update={**start, "init": ms.Init(constant=(("*.leaky.W", 0.5),))})
    assert "blocks.0.leaky.b" in still.frozen_names()
    assert (still.draw_parameters(3, 3, key=jax.random.key(1))["blocks.0.leaky.W"] == 0.5).all()


def test_it_trains_and_is_found_again(store):
    run = ms.fit(SPEC, [0])
    moved = run.snapshots["blocks.0.leaky.W"][0, 1] - run.snapshots["blocks.0.leaky.W"][0, 0]
    assert np.abs(moved).max() > 0
    store.save(run, 1.0, "a machine")
    again = store.load(store.rows()[0])
    assert again.spec == SPEC
    np.testing.assert_array_equal(again.model(0)(PROMPT), run.model(0)(PROMPT))


def test_its_identity_is_what_it_does(monkeypatch):
    layers = json.loads(SPEC.canonical_json())["model"]["custom_layers"]
    assert layers == [[0, {"kind": "leaky", "code": Leaky.code(), "gain": 2.0}]]
    assert ms.Spec.model_validate_json(SPEC.canonical_json()) == SPEC
    assert "custom_layers" not in ms.ModelConfig().canonical_json()
    digest, key = SPEC.digest(), SPEC.compile_key()
    monkeypatch.setitem(globals(), "DECAY", 0.25)
    assert SPEC.digest() != digest
    assert SPEC.compile_key() != key


def test_who_reads_layers_in_a_way_of_its_own_refuses_it(model, tmp_path):
    wanted = r"custom_layers=\(\(0, Leaky\(kind='leaky', gain=2.0\)\),\) \(allowed: \(\)\)"
    assert choose_rewrite(CONFIG, SPEC.task) is None
    tables = {each.name: each.why_not(CONFIG, SPEC.task) for each in REWRITES}
    assert "custom_layers=" in tables["pair tables"]
    assert "custom_layers=" in EXPLORER.why_not(CONFIG)
    for message, ask in {
        f"the walk has no {wanted}": lambda: walk(model, PROMPT, tuple("abc")),
        f"TransformerLens has no {wanted}": lambda: write_transformer_lens(model, tmp_path / "x"),
        "W_Q stacks all layers, but layer 0 of 2 has no attention": lambda: model.W_Q,
        "parts of a stream are those of attention and feed-forward": lambda: model.run_with_cache(
            PROMPT
        )[1].decompose_resid(),
        "allowed: a model without custom_layers": lambda: model.accumulated_bias(1),
    }.items():
        with pytest.raises(UserError, match=message):
            ask()


class Shrinks(Leaky):
    """Returns another shape."""

    kind: Literal["shrinks"] = "shrinks"

    def forward(self, config, params, x, site):
        return x[:1]


def test_a_layer_leaves_the_streams_shape(model):
    config = CONFIG.model_copy(update={"custom_layers": ((0, Shrinks()),)})
    with pytest.raises(UserError, match=r"the layer 'shrinks' made shape \(1, 4\) of the stream"):
        ms.bind(config, model.params)(PROMPT)


@pytest.mark.parametrize(
    "fields",
    [
        {"custom_layers": ((2, Leaky()),)},
        {"custom_layers": ((0, Leaky()), (0, Leaky()))},
        {"custom_layers": ((0, Leaky()),), "attn_layers": (0, 1)},
    ],
)
def test_where_it_may_stand(fields):
    with pytest.raises(UserError, match=r"custom_layers at \[.*\] of 2 layers; allowed: each of"):
        ms.ModelConfig(n_layers=2, **fields)
