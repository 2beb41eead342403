"""Weights under TransformerLens's names, circuits, scores and `cfg`,
against the parameters themselves.
"""

import copy
import pickle

import jax.numpy as jnp
import numpy as np
import pytest
from models_at_hand import BATCH, CONFIGS, CTX, VOCAB, drawn, on_paper

from mnemoscope.core.errors import UserError
from mnemoscope.models import ModelConfig


def test_layers_are_stacked():
    model = drawn(CONFIGS["plain"])
    for part, names in {
        "attn": ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O"),
        "mlp": ("W_in", "W_out", "b_in", "b_out"),
    }.items():
        for name in names:
            stacked = getattr(model, name)
            assert len(stacked) == 2
            for layer in range(2):
                full = f"blocks.{layer}.{part}.{name}"
                np.testing.assert_array_equal(stacked[layer], model.params[full])
                here = getattr(getattr(model.blocks[layer], part), name)
                np.testing.assert_array_equal(here, model.params[full])
    for name, full in {
        "W_E": "embed.W_E",
        "W_pos": "pos_embed.W_pos",
        "W_U": "unembed.W_U",
        "b_U": "unembed.b_U",
    }.items():
        np.testing.assert_array_equal(getattr(model, name), model.params[full])
    assert dict(model.named_parameters()).keys() == model.state_dict().keys() == model.params.keys()


def test_shared_keys_stand_once_for_each_head_and_missing_biases_are_zero():
    model = drawn(CONFIGS["llama"])
    for name in ("W_K", "W_V"):
        stacked = getattr(model, name)
        own = model.params[f"blocks.1.attn.{name}"]
        assert stacked.shape == (2, 4, 8, 2)
        assert own.shape == (2, 8, 2)
        for head in range(4):
            np.testing.assert_array_equal(stacked[1, head], own[head // 2])
        np.testing.assert_array_equal(getattr(model.blocks[1].attn, name), stacked[1])
    shapes = {
        "b_Q": (2, 4, 2),
        "b_K": (2, 4, 2),
        "b_O": (2, 8),
        "b_in": (2, 3),
        "b_out": (2, 8),
        "b_U": (VOCAB,),
    }
    for name, shape in shapes.items():
        np.testing.assert_array_equal(getattr(model, name), np.zeros(shape))
    np.testing.assert_array_equal(model.blocks[0].attn.b_V, np.zeros((4, 2)))
    np.testing.assert_array_equal(model.W_gate[1], model.params["blocks.1.mlp.W_gate"])
    assert not model.accumulated_bias(2).any()
    tied = drawn(CONFIGS["layer norm"])
    np.testing.assert_array_equal(tied.W_U, tied.params["embed.W_E"].T)
    np.testing.assert_array_equal(tied.ln_final.w, tied.params["ln_final.w"])


def test_circuits_by_hand():
    model = on_paper()
    np.testing.assert_array_equal(model.OV.AB, [[[[2, 0], [0, 3]]]])
    np.testing.assert_array_equal(model.QK.AB, np.zeros((1, 1, 2, 2)))
    assert sorted(np.asarray(model.OV.eigenvalues[0, 0]).real.tolist()) == pytest.approx([2, 3])
    directions = model.tokens_to_residual_directions([[2, 0], [1, 1]])
    np.testing.assert_array_equal(directions, [[[1, -1], [1, 0]], [[0, 1], [0, 1]]])
    np.testing.assert_array_equal(model.tokens_to_residual_directions(2), [1, -1])


@pytest.mark.parametrize("kind", ["plain", "layer norm", "llama"])
@pytest.mark.parametrize("mode", "QKV")
def test_composition_by_loops(kind, mode):
    model = drawn(CONFIGS[kind])
    scores = model.all_composition_scores(mode)
    p = {name: np.asarray(x, float) for name, x in model.params.items()}
    config = model.config
    group = config.n_heads // config.n_key_value_heads
    for first in np.ndindex(2, config.n_heads):
        for second in np.ndindex(2, config.n_heads):
            expected = 0.0
            if first[0] < second[0]:
                ov, other_ov, qk = ([], [], [])
                for into, (layer, head) in ((ov, first), (other_ov, second)):
                    at = f"blocks.{layer}.attn"
                    into.append(p[f"{at}.W_V"][head // group] @ p[f"{at}.W_O"][head])
                at = f"blocks.{second[0]}.attn"
                qk.append(p[f"{at}.W_Q"][second[1]] @ p[f"{at}.W_K"][second[1] // group].T)
                read = {"Q": qk[0], "K": qk[0].T, "V": other_ov[0]}[mode]
                norms = np.linalg.norm(ov[0]) * np.linalg.norm(read)
                expected = np.linalg.norm(ov[0] @ read) / norms
            assert scores[first + second] == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_biases_add_up():
    model = drawn(CONFIGS["parts"])
    p = model.params
    attn = [p["blocks.0.attn.b_O"], 0, p["blocks.2.attn.b_O"]]
    mlp = [0, p["blocks.1.mlp.b_out"], p["blocks.2.mlp.b_out"]]
    for layer in range(4):
        np.testing.assert_allclose(
            model.accumulated_bias(layer),
            sum(attn[:layer]) + sum(mlp[:layer]) + np.zeros(6),
            rtol=1e-6,
        )
        alone = model.accumulated_bias(layer, include_mlp_biases=False)
        np.testing.assert_allclose(alone, sum(attn[:layer]) + np.zeros(6), rtol=1e-6)
    np.testing.assert_allclose(
        model.accumulated_bias(2, mlp_input=True), sum(attn) + mlp[1], rtol=1e-6
    )
    for layer, mlp_input in ((4, False), (3, True), (-2, False), (-1, True)):
        with pytest.raises(UserError, match="allowed: 0 to "):
            model.accumulated_bias(layer, mlp_input)
    assert model.all_head_labels() == ["L0H0", "L2H0"]


def test_cfg_has_both_names():
    cfg = drawn(CONFIGS["llama"]).cfg
    assert (cfg.d_vocab, cfg.d_vocab_out, cfg.n_ctx, cfg.d_head) == (VOCAB, VOCAB, CTX, 2)
    assert (cfg.act_fn, cfg.normalization_type, cfg.norm) == ("silu", "RMS", "pre")
    assert (cfg.positional_embedding_type, cfg.attn_only) == ("rotary", False)
    assert cfg.to_dict()["n_key_value_heads"] == 2
    other = drawn(ModelConfig(d_model=4, n_heads=1, d_mlp=0, causal=False)).cfg
    assert (other.act_fn, other.normalization_type, other.attn_only) == (None, None, True)
    assert (other.positional_embedding_type, other.attention_dir) == ("standard", "bidirectional")
    assert not hasattr(cfg, "n_head")
    with pytest.raises(
        UserError, match=r"unknown name in cfg 'n_head' \(did you mean 'n_heads'\?\)"
    ):
        _ = cfg.n_head
    with pytest.raises(UserError, match=r"cfg\.use_attn_result cannot be set"):
        cfg.use_attn_result = True
    assert "d_vocab=5" in repr(cfg)
    assert "act_fn" in dir(cfg)
    assert copy.deepcopy(cfg).to_dict() == pickle.loads(pickle.dumps(cfg)).to_dict()


@pytest.mark.parametrize(
    ("kind", "asked", "message"),
    [
        ("parts", lambda m: m.W_Q, "W_Q stacks all layers, but layer 1 of 3 has no attention"),
        (
            "parts",
            lambda m: m.W_in,
            r"layer 0 of 3 has no feed-forward part; allowed: model\.blocks",
        ),
        ("parts", lambda m: m.OV, "W_V stacks all layers"),
        ("parts", lambda m: m.W_pos, "positions='sinusoidal' has no W_pos"),
        ("plain", lambda m: m.W_gate, "no W_gate; allowed: gated_mlp=True"),
        ("plain", lambda m: m.all_composition_scores("q"), "unknown mode of composition 'q'"),
        (
            "plain",
            lambda m: m.tokens_to_residual_directions(5),
            "answers are whole numbers from 0 to 4, got 5",
        ),
        (
            "plain",
            lambda m: m.tokens_to_residual_directions("a"),
            "answers are whole numbers from 0 to 4",
        ),
        ("plain", lambda m: m.blocks[0].attn.W_X, "unknown parameter 'blocks.0.attn.W_X"),
        ("parts", lambda m: m.blocks[0].mlp, "unknown parameter 'blocks.0.mlp"),
        ("parts", lambda m: m.blocks[1].attn.b_Q, "unknown parameter 'blocks.1.attn"),
    ],
)
def test_what_is_not_there_is_one_line(kind, asked, message):
    with pytest.raises(UserError, match=message) as error:
        asked(drawn(CONFIGS[kind]))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "name",
    [
        "to_tokens",
        "tokenizer",
        "add_hook",
        "hooks",
        "cuda",
        "train",
        "set_use_attn_in",
        "load_state_dict",
    ],
)
def test_what_stands_elsewhere_says_where(name):
    model = drawn(CONFIGS["plain"])
    assert not hasattr(model, name)
    with pytest.raises(UserError, match=f"no '{name}' here: "):
        getattr(model, name)
    with pytest.raises(AttributeError, match="has no attribute 'W_q'"):
        _ = model.W_q


def test_parts_show_what_they_have():
    model = drawn(CONFIGS["plain"])
    assert repr(model.embed) == "<embed: W_E>"
    assert "attn" in dir(model.blocks[0])
    assert "ln1" not in dir(model.blocks[0])
    assert not hasattr(model.blocks[0], "ln3")
    np.testing.assert_array_equal(model.unembed.b_U, model.b_U)
    assert jnp.asarray(model(BATCH)).shape == (3, 4, VOCAB)
