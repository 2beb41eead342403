"""Every row of the layer tables against plain NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from layer_rows import PROMPT, ROWS, model_of
from numpy_pass import numpy_logits

from mnemoscope.core.errors import UserError
from mnemoscope.models import (
    ModelConfig,
    early_logits,
    forward,
    patch_site,
    recorded_sites,
    replace_site,
    site_axes,
    unembed,
)


@pytest.mark.parametrize("name", ROWS)
def test_every_row_of_the_tables_equals_plain_numpy(name):
    model = model_of(ROWS[name])
    order = []

    @jax.jit
    def run(params):
        logits, trace = forward(model.config, params, jnp.array(PROMPT))
        order.extend(trace)  # once, while it is compiled; what comes out is sorted by name
        return logits, trace

    logits, trace = run(model.params)
    exact = numpy_logits(model.config, model.params, PROMPT)
    np.testing.assert_allclose(logits, exact, rtol=2e-4, atol=2e-5)
    assert tuple(order) == recorded_sites(model.config), "sites are in the order of the computation"
    for site, axes in site_axes(model.config).items():
        if site in trace:
            assert trace[site].ndim == len(axes.split()), site
    last = trace[f"blocks.{model.config.n_layers - 1}.hook_resid_post"]
    np.testing.assert_allclose(unembed(model.config, model.params, last), logits, atol=1e-5)


def test_the_comparison_can_fail():
    """Rows differ from each other by far more than the comparison allows."""
    exact = {
        name: numpy_logits(model_of(row).config, model_of(row).params, PROMPT)
        for name, row in ROWS.items()
    }
    plain = exact["act relu"]
    for name, logits in exact.items():
        if name not in ("act relu", "attention softmax", "positions learned"):
            assert np.abs(logits - plain).max() > 1e-2, name


@pytest.mark.parametrize(
    "name", ["Llama", "GPT-NeoX", "post rms", "parallel, a part in each layer"]
)
def test_every_site_can_be_edited_and_its_own_value_changes_no_bit(name):
    model = model_of(ROWS[name])
    logits, cache = model.run_with_cache(PROMPT)
    for site, axes in site_axes(model.config).items():
        if site in cache.trace:
            own = cache[site]
        else:  # copies of the stream, one for each head
            stream = cache[site.split(".hook_")[0] + ".hook_resid_pre"]
            heads = (
                model.config.n_heads
                if axes.split()[1] == "head"
                else model.config.n_key_value_heads
            )
            own = jnp.repeat(stream[:, None], heads, axis=1)
        same, _ = model.run_with_cache(PROMPT, [replace_site(site, own)])
        np.testing.assert_array_equal(same, logits, err_msg=site)
        finite = jnp.where(jnp.isfinite(own), own, 0)
        shifted = finite + jnp.linspace(0.5, 1.5, finite.size).reshape(finite.shape)
        other, trace = model.run_with_cache(PROMPT, [replace_site(site, shifted)])
        assert not np.array_equal(other, logits), site
        np.testing.assert_array_equal(trace[site], shifted, err_msg=site)


def test_one_head_reads_another_stream():
    """hook_k_input: head 1 reads its keys from what layer 0 saw, and head 0 goes on as before."""
    model = model_of({"norm": "pre", "n_heads": 2})
    config = model.config
    _, cache = model.run_with_cache(PROMPT)
    old = jnp.repeat(cache["resid_pre", 0][:, None], 2, axis=1)
    mask = jnp.array([False, True])[None, :, None]
    edit = replace_site("blocks.1.hook_k_input", old, mask)
    _, edited = model.run_with_cache(PROMPT, [edit])
    np.testing.assert_array_equal(edited["k", 1][:, 0], cache["k", 1][:, 0])
    p = {name: np.asarray(value, np.float64) for name, value in model.params.items()}
    x = np.asarray(cache["resid_pre", 0], np.float64)
    centered = x - x.mean(axis=1, keepdims=True)
    standard = centered / np.sqrt((centered**2).mean(axis=1, keepdims=True) + config.norm_eps)
    seen = standard * p["blocks.1.ln1.w"] + p["blocks.1.ln1.b"]
    expected = seen @ p["blocks.1.attn.W_K"][1] + p["blocks.1.attn.b_K"][1]
    np.testing.assert_allclose(edited["k", 1][:, 1], expected, rtol=1e-4, atol=1e-5)


def test_the_layers_from_one_on_are_a_model_of_their_own():
    for name in ("Llama", "post layer", "positions sinusoidal", "attention in layer 1 alone"):
        model = model_of(ROWS[name])
        logits, cache = model.run_with_cache(PROMPT)
        tail = model.after(1)
        stream = replace_site("hook_embed", cache["resid_pre", 1])
        np.testing.assert_allclose(tail(jnp.array(PROMPT), [stream]), logits, rtol=1e-5, atol=1e-5)


def test_early_readout_is_what_a_shorter_model_would_say():
    model = model_of(ROWS["Llama"])
    early = early_logits(model.config, model.params, jnp.array(PROMPT))
    short = model.config.model_copy(update={"n_layers": 1})
    np.testing.assert_allclose(
        early[0], forward(short, model.params, jnp.array(PROMPT))[0], rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"act": "gelo"}, "unknown activation 'gelo' (did you mean 'gelu'?)"),
        ({"attention": "hard"}, "unknown attention 'hard'; allowed: softmax, linear, relu"),
        ({"norm_type": "rmsnorm"}, "unknown norm_type 'rmsnorm' (did you mean 'rms'?)"),
        ({"positions": "rotar"}, "unknown positions 'rotar' (did you mean 'rotary'?)"),
        (
            {"n_key_value_heads": 3},
            "n_key_value_heads=3 does not divide n_heads=4; allowed: [1, 2, 4]",
        ),
        (
            {"positions": "rotary", "rotary_dim": 3},
            "rotary_dim=3; allowed: even numbers up to d_head=4",
        ),
        (
            {"positions": "rotary", "d_head": 5},
            "rotary_dim=5; allowed: even numbers up to d_head=5",
        ),
        ({"parallel_attn_mlp": True, "norm": "post"}, "allowed: norm 'none' or 'pre'"),
        ({"attn_layers": (2,)}, "attn_layers=[2] with 2 layers; allowed: layers from 0 to 1"),
        ({"head_dim": 3}, "unknown key of ModelConfig 'head_dim' (did you mean 'd_head'?)"),
        ({"scaled": ()}, "unknown key of ModelConfig 'scaled' (did you mean 'init.scale'?)"),
    ],
)
def test_what_no_table_has_is_refused(fields, message):
    with pytest.raises(UserError) as error:
        model_of(fields)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_sizes_that_are_left_out_follow_the_others():
    config = ModelConfig(d_model=24, n_heads=4)
    assert (config.d_head, config.n_key_value_heads, config.rotary_dim) == (6, 4, 6)
    wider = config.model_copy(update={"d_model": 32})
    assert wider.d_head == 8
    assert "d_head" not in wider.canonical_json()
    assert config.model_copy(update={"d_head": 3}).model_copy(update={"d_model": 32}).d_head == 3


def test_patching_from_a_trace_takes_new_sites_too():
    model = model_of(ROWS["Llama"])
    _, cache = model.run_with_cache(PROMPT)
    other = [5, 4, 3, 2, 1, 2, 3]
    logits, _ = model.run_with_cache(other, [patch_site("blocks.1.hook_resid_post", cache)])
    np.testing.assert_array_equal(logits, model.run_with_cache(PROMPT)[0])
