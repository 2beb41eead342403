"""The walk is worked out again from its own printed numbers, line by line,
for every kind of model.
"""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tries import tries
from walked import (
    NAMES,
    ROWS,
    config_of,
    follow,
    model_of,
    parsed,
    printed_of,
    walk_of,
    whole_passes,
    worked_out,
)

from mnemoscope.core.errors import UserError
from mnemoscope.models import ModelConfig, Transformer
from mnemoscope.models.activations import ACTIVATIONS
from mnemoscope.models.attention_kinds import ATTENTION, AttentionKind
from mnemoscope.models.norms import NORMS, NormKind
from mnemoscope.models.positions import POSITIONS
from mnemoscope.probes import logit_attribution
from mnemoscope.probes.logit_attribution import decompose_logits
from mnemoscope.probes.walk import SUPPORT, walk

DIGITS = 4


@st.composite
def combinations(draw):
    """Changes that may stand together in one model."""
    norm = draw(st.sampled_from(["none", "pre", "post"]))
    n_heads = draw(st.sampled_from([1, 2, 4]))
    d_head = draw(st.sampled_from([2, 3, 4]))
    even = [p for p in POSITIONS if p != "rotary" or d_head != 3]
    d_mlp = draw(st.sampled_from([0, 3]))
    layers = st.sampled_from([None, (), (0,), (1,)])
    changes = {
        "n_heads": n_heads,
        "n_key_value_heads": draw(st.sampled_from([n for n in (1, 2, 4) if n <= n_heads])),
        "d_model": draw(st.sampled_from([2, 4, 5])),
        "d_head": d_head,
        "d_mlp": d_mlp,
        "n_layers": 2,
        "norm": norm,
        "norm_type": draw(st.sampled_from(list(NORMS))),
        "norm_eps": draw(st.sampled_from([1e-5, 0.3])),
        "act": draw(st.sampled_from(list(ACTIVATIONS))),
        "attention": draw(st.sampled_from(list(ATTENTION))),
        "positions": draw(st.sampled_from(even)),
        "attn_layers": draw(layers),
        "mlp_layers": draw(layers) if d_mlp else None,
    }
    for flag in ("bias", "tied", "unembed_bias", "causal", "gated_mlp", "rotary_adjacent_pairs"):
        changes[flag] = draw(st.booleans())
    if norm != "post" and draw(st.booleans()):
        return changes | {"parallel_attn_mlp": True}
    return changes | {"attn_residual": draw(st.booleans())}


def sums_to_logits(model, found, prompt):
    """Whether the parts sum to what the model itself says."""
    logits = np.asarray(model(jnp.array(prompt)))
    for place, row in enumerate(logits):
        parts = found.contributions(place)
        allowed = 1e-5 * max(1, np.abs(list(parts.values())).max())
        np.testing.assert_allclose(parts.pop("sum, the logits"), row, atol=allowed)
        np.testing.assert_allclose(sum(parts.values()), row, atol=allowed)


@pytest.mark.parametrize("row", ROWS)
def test_every_printed_line_follows_from_the_lines_above_it(row):
    model, found = walk_of(row)
    known = follow(printed_of(found, DIGITS), DIGITS)
    assert list(known)[-2:] == ["L", "Pr"]
    half = 0.5 * 10.0**-DIGITS
    np.testing.assert_allclose(known["L"], model(jnp.array([1, 0, 3, 2])), atol=half + 1e-5)
    np.testing.assert_allclose(known["Pr"].sum(axis=1), 1, atol=len(NAMES) * half)


@tries(6)
@given(
    combinations(),
    st.integers(0, 99),
    st.lists(st.integers(0, 3), min_size=1, max_size=5),
    st.sampled_from([3, 5]),
)
def test_any_combination_follows_and_sums_to_the_logits(changes, seed, prompt, digits):
    model = model_of(ModelConfig(**changes), seed)
    with whole_passes():
        found = walk(model, prompt, NAMES)
        sums_to_logits(model, found, prompt)
        probabilities = jax.nn.softmax(model(jnp.array(prompt)))
    np.testing.assert_allclose(found.probabilities, probabilities, atol=1e-5)
    assert list(follow(printed_of(found, digits), digits))[-2:] == ["L", "Pr"]


def test_the_rows_are_all_there_is():
    """Every row of every table, and every field that the walk says it computes."""
    configs = [config_of(changes) for changes in ROWS.values()]
    for field, table in (
        ("act", ACTIVATIONS),
        ("attention", ATTENTION),
        ("norm_type", NORMS),
        ("positions", POSITIONS),
    ):
        assert {getattr(config, field) for config in configs} == set(table)
    foreign = {"custom_layers"}  # what somebody else's layer computes nobody here can say
    assert set(SUPPORT.values) == set(ModelConfig.model_fields) - ModelConfig.sizes
    assert set(SUPPORT.values) - foreign <= set().union(*ROWS.values())


@pytest.mark.parametrize(
    ("row", "old", "new"),
    [
        ("as it is", "X = E + P", "X = E - P"),
        ("as it is", "mask(S_h0)", "mask(S_h0, 0)"),
        ("as it is", "softmax(M_h1)", "softmax(S_h1)"),
        ("as it is", "P = W_pos[0:4]", "P = W_pos[1:5]"),
        ("act relu", "relu(H)", "H"),
        ("act gelu", "gelu(H)", "gelu_new(H)"),
        ("act gelu_new", "gelu_new(H)", "gelu(H)"),
        ("act silu", "silu(H)", "gelu(H)"),
        ("act linear", "G = H", "G = relu(H)"),
        ("norm pre layer", "layer_norm(X", "rms_norm(X"),
        ("norm pre rms", "rms_norm(X", "layer_norm(X"),
        ("norm post layer", " + b_N_R", ""),
        ("norm post rms", " * w_N_R", ""),
        ("norm_eps", "(X, 0.3)", "(X, 0.31)"),
        ("norm_eps of rms", "(R, 0.3)", "(R, 1e-05)"),
        ("attention softmax causal False", "softmax(S_h0)", "softmax(mask(S_h0))"),
        ("attention linear causal True", "A_h0 = mask(S_h0, 0)", "A_h0 = S_h0"),
        ("attention linear causal False", "A_h0 = S_h0", "A_h0 = mask(S_h0, 0)"),
        ("attention linear causal True", "@ K_h0^T", "@ K_h0^T / sqrt(2)"),
        ("attention relu causal True", "relu(M_h0)", "M_h0"),
        ("attention relu causal False", "relu(S_h1)", "relu(mask(S_h1, 0))"),
        ("sinusoidal", "sin(Phi), cos(Phi)", "cos(Phi), sin(Phi)"),
        ("sinusoidal", "angles(4, 4, 10000)", "angles(4, 4, 9000)"),
        ("sinusoidal in odd dimensions", "[:, 0:5]", "[:, 1:6]"),
        ("rotary", "Q_rot_h0 = rotate(Q_h0, Phi)", "Q_rot_h0 = Q_h0"),
        ("rotary", "S_h0 = Q_rot_h0", "S_h0 = Q_h0"),
        ("rotary base", "angles(4, 4, 7.5)", "angles(4, 4, 8.5)"),
        ("rotary in part, halves", "0,2     1,3", "0,1     2,3"),
        ("rotary in part, adjacent", "0,1     2,3", "0,2     1,3"),
        ("gated", "silu(H_gate) * H_in", "H_gate * silu(H_in)"),
        ("gated", " * H_in + b_in", " * H_in"),
        ("gated", "H_in = R", "H_in = X"),
        ("groups of heads", "S_h1 = Q_h1 @ K_g0^T", "S_h1 = Q_h1 @ K_g1^T"),
        ("groups of heads", "Z_h2 = A_h2 @ V_g1", "Z_h2 = A_h2 @ V_g0"),
        ("one key-value head", "V = QKV[:, 10:12]", "V = QKV[:, 8:10]"),
        ("parallel", "Y = X + O + F", "Y = X + F"),
        ("parallel", "H = X @ W_in", "H = O @ W_in"),
        ("no residual", "Y = O + F", "Y = X + O + F"),
        ("no residual, norm post", "layer_norm(O", "layer_norm(X"),
        ("wide heads", "/ sqrt(3)", "/ sqrt(2)"),
        ("tied", "W_U = W_E^T", "W_U = W_E"),
    ],
)
def test_the_line_test_can_fail(row, old, new):
    """A formula or a layout that is another one is noticed."""
    printed = printed_of(walk_of(row)[1], DIGITS)
    assert printed.count(old) >= 1
    follow(printed, DIGITS)
    with pytest.raises(AssertionError):
        follow(printed.replace(old, new, 1), DIGITS)


def test_a_wrong_number_is_noticed():
    lines = {
        name: (formula, values)
        for name, formula, values, _ in parsed(printed_of(walk_of("as it is")[1], 4))
    }
    known = {name: values for name, (_, values) in lines.items()}
    half = 0.5e-4
    again, moved = worked_out("E + P", known, half, {})
    np.testing.assert_allclose(moved, 2 * half)  # two addends
    assert np.abs(again - known["X"]).max() <= half + 1.1 * 2 * half
    assert np.abs(worked_out("E - P", known, half, {})[0] - known["X"]).max() > 0.01
    assert np.abs(again - (known["X"] + 0.001)).max() > half + 1.1 * 2 * half + 2e-5


@pytest.mark.parametrize("row", ROWS)
def test_components_add_up_to_the_logits(row):
    model, found = walk_of(row)
    sums_to_logits(model, found, [1, 0, 3, 2])


def test_a_cache_is_decomposed_like_a_walk():
    model, found = walk_of("Llama")
    _, seen = model.run_with_cache([1, 0, 3, 2])
    parts = decompose_logits(model, seen)
    assert list(parts) == list(found.components)
    for name, part in parts.items():
        np.testing.assert_array_equal(part, found.components[name])


@pytest.mark.parametrize(
    "row", ["norm pre layer", "norm pre rms", "norm post layer", "norm post rms"]
)
def test_the_sum_test_can_fail(row, monkeypatch):
    """Parts of an RMS norm that lose their means, and of a layer norm that keep them,
    sum to something else.
    """
    model, found = walk_of(row)
    other = {"layer": NORMS["rms"], "rms": NORMS["layer"]}
    monkeypatch.setattr(logit_attribution, "NORMS", other)
    wrong = walk(model, [1, 0, 3, 2], NAMES)
    with pytest.raises(AssertionError):
        sums_to_logits(model, wrong, [1, 0, 3, 2])
    assert wrong.components.keys() == found.components.keys()


@pytest.mark.parametrize(
    ("row", "names"),
    [
        (
            "as it is",
            [
                "embedding",
                "position",
                "head 0",
                "head 1",
                "attention's bias",
                "feed-forward",
                "read-out's bias",
            ],
        ),
        (
            "Llama",
            [
                "embedding",
                *(f"head {i} of layer 0" for i in range(4)),
                "feed-forward of layer 0",
                *(f"head {i} of layer 1" for i in range(4)),
                "feed-forward of layer 1",
            ],
        ),
        (
            "no residual",
            ["head 0", "head 1", "attention's bias", "feed-forward", "read-out's bias"],
        ),
        ("no attention", ["embedding", "feed-forward", "read-out's bias"]),
    ],
)
def test_parts_are_those_that_the_model_has(row, names):
    assert list(walk_of(row)[1].components) == names


# rows that somebody adds -------------------------------------------------------------------------


def test_an_activation_that_is_added_is_written_by_its_name(monkeypatch):
    monkeypatch.setitem(ACTIVATIONS, "tanh", jnp.tanh)
    printed = printed_of(walk(model_of(config_of({"act": "tanh"})), [1, 0, 3], NAMES), DIGITS)
    assert "G = tanh(H)" in printed
    follow(printed, DIGITS, {"tanh": np.tanh})


def test_an_attention_that_is_added_is_written_by_its_name(monkeypatch):
    added = AttentionKind(True, -np.inf, jax.nn.sigmoid)
    monkeypatch.setitem(ATTENTION, "sigmoid", added)
    model = model_of(config_of({"attention": "sigmoid"}))
    printed = printed_of(walk(model, [1, 0, 3], NAMES), DIGITS)
    assert "A_h0 = sigmoid(M_h0)" in printed
    follow(printed, DIGITS, {"sigmoid": lambda x: 1 / (1 + np.exp(-x))})


def test_norms_and_positions_that_are_added_are_refused_by_name(monkeypatch):
    monkeypatch.setitem(NORMS, "scale", NormKind(False, True))
    model = model_of(config_of({"norm": "pre", "norm_type": "scale"}))
    with pytest.raises(
        UserError, match=r"^the walk has no norm_type='scale' \(allowed: 'layer', 'rms'\)$"
    ):
        walk(model, [1, 0, 3], NAMES)
    config = config_of({})
    config.__dict__["positions"] = "alibi"  # no other way past the check of its table
    allowed = "'learned', 'none', 'sinusoidal', 'rotary'"
    with pytest.raises(
        UserError, match=re.escape(f"the walk has no positions='alibi' (allowed: {allowed})")
    ):
        walk(Transformer(config, {}), [1, 0, 3], NAMES)


# sentences ---------------------------------------------------------------------------------------


def sentences(row):
    """Title and sentence of every step."""
    return {step.title: step.sentence for step in walk_of(row)[1].steps}


def test_sentences_say_what_changed():
    """A model whose position decides at first and whose attention turns the answer round."""
    config = ModelConfig(d_model=2, n_heads=1, d_mlp=0, bias=False)
    zero = np.zeros((1, 2, 2))
    params = {
        "embed.W_E": np.eye(2),
        "pos_embed.W_pos": np.zeros((2, 2)),
        "unembed.W_U": np.eye(2),
        "blocks.0.attn.W_Q": zero,
        "blocks.0.attn.W_K": zero,
        "blocks.0.attn.W_V": np.eye(2)[None],
        "blocks.0.attn.W_O": np.array([[[-2.0, 2.0], [2.0, -2.0]]]),
    }
    model = Transformer(config, {k: jnp.asarray(v, jnp.float32) for k, v in params.items()})
    steps = walk(model, [0], ("A", "B")).steps
    assert (
        steps[0].sentence
        == "Each position starts as its token plus its place; read out now, the answers would be A."
    )
    # the head sees A alone and carries (1, 0); W_O turns it into (-2, 2),
    # and A + (-2, 2) = (-1, 2) is read as B
    assert steps[-2].sentence == (
        "Attention pushes towards B after A (+2.00); read out now, "
        "the answers would be B (after A from A to B)."
    )
    assert steps[-1].sentence == "The model says: after A comes B (95.3%)."
    assert 1 / (1 + np.exp(-3)) == pytest.approx(0.953, abs=5e-4)


def test_sentences_say_what_is_unusual():
    shared = sentences("groups of heads")["Q, K, V: queries, keys and values"]
    assert "; heads 0, 1 share keys and values g0, heads 2, 3 share keys and values g1; " in shared
    shared = sentences("one key-value head")["Q, K, V: queries, keys and values"]
    assert "; heads 0, 1, 2, 3 share keys and values; " in shared
    turned = sentences("rotary in part, halves")["Turn queries and keys by their positions"]
    assert "; the last 2 of 6 dimensions stay. " in turned
    assert sentences("rotary")["Look up the tokens"].startswith(
        "Each position starts as its token; "
    )
    told = sentences("parallel")
    assert "it waits for the feed-forward layer" in told["What attention found"]
    assert "what attention found is added with it" in told["Feed forward, each position by itself"]
    assert "Put what attention found in the stream's place" in sentences("no residual")
    assert "Turn queries and keys by their positions" not in sentences("no attention")


def test_weights_that_are_no_shares_are_told_as_they_are():
    """Of scores 0 and relu nothing is seen; a negative weight may be the largest."""
    config = ModelConfig(
        d_model=2, n_heads=1, d_mlp=0, bias=False, attention="relu", positions="none"
    )
    zero = jnp.zeros((1, 2, 2))
    one = jnp.eye(2)
    params = {
        "embed.W_E": one,
        "unembed.W_U": one,
        **{f"blocks.0.attn.W_{n}": zero for n in "QKVO"},
    }
    steps = walk(Transformer(config, params), [0, 1], ("A", "B")).steps
    assert steps[2].sentence.startswith("The head looks, from the last position, at nothing; ")
    config = config.model_copy(update={"attention": "linear"})
    params |= {
        "blocks.0.attn.W_Q": one[None],
        "blocks.0.attn.W_K": -jnp.diag(jnp.array([1.0, 3.0]))[None],
    }
    steps = walk(Transformer(config, params), [0, 1], ("A", "B")).steps
    # the score of B for itself is 1 * -3
    assert steps[2].sentence.startswith(
        "The head looks, from the last position, most at 1 B (-3.00); "
    )
