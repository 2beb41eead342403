"""The forward pass by other routes: plain NumPy, itself under edits, PyTorch."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_shapes import D_VOCAB, N_CTX, config_of, shaken, shapes, unusual
from numpy_pass import numpy_logits
from tries import tries

from mnemoscope.core.errors import UserError
from mnemoscope.models import (
    Edit,
    Init,
    ModelConfig,
    Transformer,
    edits,
    force_pattern,
    forward,
    init,
    knock_out_head,
    knock_out_mlp,
    parameter_shapes,
    patch_site,
    recorded_sites,
    replace_site,
    site_axes,
)
from mnemoscope.models.rewrites import pair_tables, score_tables

PROMPT = [2, 4, 5, 3, 4, 5, 3, 2, 2]


@tries(10)
@given(
    shapes, st.lists(st.integers(0, D_VOCAB - 1), min_size=1, max_size=N_CTX), st.integers(0, 99)
)
def test_forward_equals_plain_numpy(shape, tokens, seed):
    config = config_of(shape)
    params = shaken(config, seed)
    logits, trace = jax.jit(forward, static_argnums=0)(config, params, jnp.array(tokens))
    np.testing.assert_allclose(logits, numpy_logits(config, params, tokens), rtol=1e-4, atol=1e-5)
    assert set(trace) == set(recorded_sites(config)), (
        "the table of sites lists what the forward pass visits"
    )
    assert {n: v.shape for n, v in params.items()} == parameter_shapes(config, D_VOCAB, N_CTX)


@tries(10)
@given(
    shapes,
    unusual,
    st.integers(2, 7),
    st.lists(st.integers(0, D_VOCAB - 1), min_size=1, max_size=N_CTX),
)
def test_other_kinds_of_attention_equal_plain_numpy(shape, other, n_answers, tokens):
    config = config_of(shape | other | {"tied": False})
    rng, shapes_of = np.random.default_rng(0), parameter_shapes(config, D_VOCAB, N_CTX, n_answers)
    params = {
        name: jnp.asarray(0.5 * rng.normal(size=size), float) for name, size in shapes_of.items()
    }
    drawn = jax.eval_shape(partial(init, config, D_VOCAB, N_CTX, n_answers), key=jax.random.key(0))
    assert {n: v.shape for n, v in drawn.items()} == shapes_of
    logits, trace = jax.jit(forward, static_argnums=0)(config, params, jnp.array(tokens))
    assert logits.shape == (len(tokens), n_answers)
    np.testing.assert_allclose(logits, numpy_logits(config, params, tokens), rtol=1e-4, atol=1e-4)
    assert set(trace) == set(recorded_sites(config))
    if any(value != ModelConfig.model_fields[name].default for name, value in other.items()):
        assert pair_tables.SUPPORT.why_not(config)
        assert score_tables.SUPPORT.why_not(config)


def test_parameters_start_as_the_configuration_says():
    config = ModelConfig(
        d_model=6,
        n_heads=1,
        d_mlp=0,
        bias=False,
        positions="none",
        init=Init(embeddings="unit", identity=("embed.W_E", "*.W_Q"), constant=(("*.W_K", 1e-5),)),
    )
    params = init(config, 6, 9, 2000, key=jax.random.key(0))
    np.testing.assert_array_equal(params["embed.W_E"], np.eye(6))
    np.testing.assert_array_equal(params["blocks.0.attn.W_K"], np.full((1, 6, 6), 1e-5, np.float32))
    assert "pos_embed.W_pos" not in params
    assert float(jnp.square(params["unembed.W_U"]).sum(axis=0).mean()) == pytest.approx(1, abs=0.05)
    with pytest.raises(
        UserError, match=r"init.identity names 'embed.W_E', which is no square matrix here: 7 x 6"
    ):
        init(config, 7, 9, key=jax.random.key(0))
    with pytest.raises(
        UserError,
        match="tied=True reads out with the embedding of 6 tokens, but there are 4 answers",
    ):
        init(ModelConfig(tied=True), 6, 9, 4, key=jax.random.key(0))


@tries(8)
@given(shapes)
def test_no_position_sees_the_future(shape):
    config = config_of(shape)
    params = shaken(config)

    def logits_of(embedded):
        return forward(config, params, jnp.array(PROMPT), [replace_site("hook_embed", embedded)])[0]

    start = params["embed.W_E"][jnp.array(PROMPT)]
    # output position, input position
    jacobian = jnp.abs(jax.jit(jax.jacrev(logits_of))(start)).sum(axis=(1, 3))
    future = np.triu(np.ones((N_CTX, N_CTX), bool), 1)
    assert (np.asarray(jacobian)[future] == 0).all()
    # with a norm over one dimension nothing depends on anything, which is right and no leak
    if config.d_model > 2:
        assert (np.diag(jacobian) > 0).all(), "each position sees itself"


@pytest.mark.parametrize("norm", ["none", "pre", "post"])
def test_patching_a_site_with_its_own_value_changes_no_bit_and_with_another_value_does(norm):
    config = ModelConfig(d_model=8, n_heads=2, n_layers=2, d_mlp=6, norm=norm)
    model = Transformer(config, shaken(config))
    logits, cache = model.run_with_cache(PROMPT)
    for site in site_axes(config):
        same, _ = model.run_with_cache(PROMPT, [patch_site(site, cache)])
        np.testing.assert_array_equal(same, logits, err_msg=site)
        finite = jnp.where(jnp.isfinite(cache[site]), cache[site], 0)
        # a shift that no softmax or norm cancels
        shifted = finite + jnp.linspace(0.5, 1.5, finite.size).reshape(finite.shape)
        other, _ = model.run_with_cache(PROMPT, [replace_site(site, shifted)])
        assert not np.array_equal(other, logits), site


def test_patching_from_another_prompt_moves_the_answer_to_that_prompt():
    config = ModelConfig(d_model=8, n_heads=2, d_mlp=6)
    model = Transformer(config, shaken(config))
    _, other = model.run_with_cache([1, 2, 3])
    patched, _ = model.run_with_cache([3, 2, 1], [patch_site("blocks.0.hook_resid_post", other)])
    np.testing.assert_array_equal(patched, model(jnp.array([1, 2, 3])))


def test_knocking_out_a_head_is_the_same_as_zero_output_weights():
    config = ModelConfig(d_model=8, n_heads=2, d_mlp=6)
    params = shaken(config)
    silent = params | {"blocks.0.attn.W_O": params["blocks.0.attn.W_O"].at[1].set(0)}
    out = Transformer(config, params)(jnp.array(PROMPT), [knock_out_head(config, 0, 1)])
    np.testing.assert_allclose(out, Transformer(config, silent)(jnp.array(PROMPT)), atol=1e-6)
    no_mlp = ModelConfig(d_model=8, n_heads=2, d_mlp=0)
    rest = {name: value for name, value in params.items() if ".mlp." not in name}
    out = Transformer(config, params)(jnp.array(PROMPT), [knock_out_mlp(0)])
    np.testing.assert_allclose(out, Transformer(no_mlp, rest)(jnp.array(PROMPT)), atol=1e-6)


def test_a_forced_pattern_is_what_the_head_then_uses():
    config = ModelConfig(d_model=8, n_heads=2, d_mlp=6)
    model = Transformer(config, shaken(config))
    _, before = model.run_with_cache(PROMPT)
    rows = jnp.arange(N_CTX) == 8
    first = jnp.zeros((N_CTX, N_CTX)).at[:, 0].set(1.0)
    _, after = model.run_with_cache(PROMPT, [force_pattern(config, 0, 1, first, rows)])
    np.testing.assert_array_equal(after["pattern", 0][0], before["pattern", 0][0])
    np.testing.assert_array_equal(after["pattern", 0][1, :8], before["pattern", 0][1, :8])
    np.testing.assert_allclose(after["z", 0][8, 1], before["v", 0][0, 1], rtol=1e-6)


def test_every_head_in_turn_is_one_vmap():
    config = ModelConfig(d_model=8, n_heads=4, d_mlp=6)
    model = Transformer(config, shaken(config))
    masks = jnp.eye(4, dtype=bool)[:, None, :, None]
    edits = Edit("blocks.0.attn.hook_z", masks, jnp.zeros((4, 1, 1, 1)))
    together = jax.vmap(lambda edit: model(jnp.array(PROMPT), [edit]))(edits)
    for head in range(4):
        alone = model(jnp.array(PROMPT), [knock_out_head(config, 0, head)])
        np.testing.assert_allclose(together[head], alone, atol=1e-6)


def test_names_that_match_nothing_raise():
    config = ModelConfig(d_model=8, n_heads=2, d_mlp=6)
    model = Transformer(config, shaken(config))
    with pytest.raises(
        UserError,
        match=r"unknown site 'blocks.0.attn.hook_patern' "
        r"\(did you mean 'blocks.0.attn.hook_pattern'",
    ):
        model.run_with_cache(
            PROMPT, [replace_site("blocks.0.attn.hook_patern", jnp.zeros((2, 9, 9)))]
        )
    _, cache = model.run_with_cache(PROMPT)
    with pytest.raises(UserError, match=r"unknown site .*allowed: hook_embed"):
        cache["patern", 0]
    np.testing.assert_array_equal(cache["pattern", 0], cache["pattern", -1])
    np.testing.assert_array_equal(cache["embed"], cache["hook_embed"])
    with pytest.raises(
        UserError,
        match=r"mask of an edit .* has shape \(9,\); allowed: \(9, 2, 4\) with any axis 1",
    ):
        model.run_with_cache(
            PROMPT, [Edit("blocks.0.attn.hook_z", jnp.ones(9, bool), jnp.zeros((1, 1, 1)))]
        )
    with pytest.raises(UserError, match="unknown head 2; allowed: 0 to 1"):
        knock_out_head(config, 0, 2)
    for prompt in ([], [1] * 10, [6], [-1]):
        with pytest.raises(UserError, match=r"a prompt is one row of 1 to 9|tokens are 0 to 5"):
            model.run_with_cache(prompt)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"d_model": 10, "n_heads": 3},
            "n_heads=3 does not divide d_model=10; allowed: [1, 2, 5, 10]",
        ),
        ({"d_model": -4}, "greater than or equal to 1"),
        (
            {"frozen": ("embed.W_F",)},
            "unknown parameter in frozen 'embed.W_F' (did you mean 'embed.W_E'?)",
        ),
        ({"init": Init(constant=(("*.W_X", 0.0),))}, "unknown parameter in init.constant '*.W_X'"),
        ({"n_head": 2}, "unknown key of ModelConfig 'n_head' (did you mean 'n_heads'?)"),
    ],
)
def test_impossible_shapes_say_what_is_allowed(fields, message):
    with pytest.raises(UserError) as error:
        ModelConfig(**fields)
    assert "\n" not in str(error.value)
    assert message in str(error.value)


@pytest.mark.interop
@pytest.mark.parametrize("heads", [1, 2])
def test_attention_agrees_with_pytorch(heads):
    torch = pytest.importorskip("torch", reason="PyTorch is the optional extra 'interop'")
    config = ModelConfig(d_model=8, n_heads=heads, d_mlp=0)
    params = shaken(config)
    _, trace = forward(config, params, jnp.array(PROMPT))
    theirs = torch.nn.MultiheadAttention(8, heads, batch_first=True)
    at = "blocks.0.attn"

    def packed(kind):
        return [np.asarray(params[f"{at}.{kind}_{n}"]) for n in "QKV"]

    with torch.no_grad():
        # ours is (head, d_model, d_head); theirs is (3 d_model, d_model), outputs first,
        # heads within
        theirs.in_proj_weight.copy_(
            torch.tensor(np.concatenate([w.transpose(0, 2, 1).reshape(8, 8) for w in packed("W")]))
        )
        theirs.in_proj_bias.copy_(torch.tensor(np.concatenate([b.reshape(8) for b in packed("b")])))
        theirs.out_proj.weight.copy_(
            torch.tensor(np.asarray(params[f"{at}.W_O"]).reshape(8, 8).T.copy())
        )
        theirs.out_proj.bias.copy_(torch.tensor(np.asarray(params[f"{at}.b_O"])))
        x = torch.tensor(np.asarray(trace["blocks.0.hook_resid_pre"]))[None]
        mask = torch.triu(torch.ones(N_CTX, N_CTX, dtype=torch.bool), 1)
        out, weights = theirs(x, x, x, attn_mask=mask, average_attn_weights=False)
    np.testing.assert_allclose(trace["blocks.0.hook_attn_out"], out[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(trace[f"{at}.hook_pattern"], weights[0], rtol=1e-4, atol=1e-5)


def test_the_feed_forward_layer_stands_where_it_is_asked_for():
    config = ModelConfig(
        d_model=4,
        n_heads=1,
        n_layers=2,
        d_mlp=4,
        mlp_layers=(1,),
        act="linear",
        init=Init(identity=("*.W_Q", "*.W_in")),
    )
    names = parameter_shapes(config, 3, 3)
    assert "blocks.1.mlp.W_in" in names
    assert "blocks.0.mlp.W_in" not in names
    params = init(config, 3, 3, key=jax.random.key(0))
    for name in ("blocks.0.attn.W_Q", "blocks.1.attn.W_Q"):
        np.testing.assert_array_equal(params[name], np.eye(4)[None])
    np.testing.assert_array_equal(params["blocks.1.mlp.W_in"], np.eye(4))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"n_layers": 2, "mlp_layers": (2,)}, r"mlp_layers=\[2\] .* allowed: layers from 0 to 1"),
        ({"d_mlp": 0, "mlp_layers": (0,)}, "and a d_mlp above 0"),
        ({"init": Init(identity=("*.W_X",))}, r"unknown parameter in init.identity '\*\.W_X'"),
        (
            {"n_heads": 2, "init": Init(identity=("*.W_Q",))},
            "which is no square matrix in this model",
        ),
        (
            {"n_heads": 1, "d_mlp": 5, "init": Init(identity=("*.W_in",))},
            "which is no square matrix in this model",
        ),
    ],
)
def test_parts_that_cannot_be_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        ModelConfig(d_model=4, **({"n_heads": 1} | fields))


def test_what_an_edit_puts_at_a_site_must_be_numbers():
    """`_edit`, since the tests' own check of types stands before what is public."""
    with pytest.raises(UserError, match="at the site 'hook_embed' must be numbers, got 'nothing'"):
        edits._edit("hook_embed", "nothing", None, adds=False)
