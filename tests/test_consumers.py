"""What consumers of models say to rows of the layer tables that they do not have."""

import re
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from asking import Asking
from layer_rows import N_CTX, PROMPT, ROWS, TEXT, model_of
from numpy_pass import numpy_logits

from mnemoscope.core.errors import UserError
from mnemoscope.exchange import lens
from mnemoscope.explorer import pack
from mnemoscope.models import (
    ModelConfig,
    Transformer,
    forward,
    init,
    parameter_shapes,
    replace_site,
)
from mnemoscope.models.activations import ACTIVATIONS
from mnemoscope.models.attention_kinds import ATTENTION
from mnemoscope.models.consumer_support import Support
from mnemoscope.models.norms import NORMS
from mnemoscope.models.positions import POSITIONS, PositionKind
from mnemoscope.models.rewrites import pair_tables, score_tables, token_counts
from mnemoscope.models.rewrites.choose import REWRITES
from mnemoscope.probes import distraction, walk, weight_memories
from mnemoscope.probes.attention import mean_pattern
from mnemoscope.tasks import Permutation
from mnemoscope.theory import gradients
from mnemoscope.training.metrics import metrics_of
from mnemoscope.training.spec import Spec


def consumers():
    """Everybody who reads models in a way of their own, by what they say that they support."""
    found = {support.consumer: support for support in (walk.SUPPORT, pack.SUPPORT, lens.SUPPORT)}
    assert all(isinstance(support, Support) for support in found.values())
    return found


def test_a_new_activation_is_computed_or_refused_by_everybody(monkeypatch):
    """What is added to the table is at once in the forward pass.
    Rewrites and the walk use the table and are right; consumers with a table of their own refuse
    it by name.
    """
    monkeypatch.setitem(ACTIVATIONS, "cubic", lambda x: x**3)
    task = Permutation(n_symbols=3)
    fields = {"d_model": 8, "n_heads": 1, "d_mlp": 7, "act": "cubic"}
    config = ModelConfig(**fields)
    params = init(config, task.d_vocab, task.n_ctx, key=jax.random.key(0))
    tokens = jnp.array([[1, 2, 3, 1, 2], [3, 3, 1, 2, 1]])[:, : task.n_ctx]
    plain = jax.vmap(lambda row: forward(config, params, row)[0])(tokens)
    relu = forward(ModelConfig(**fields | {"act": "relu"}), params, tokens[0])[0]
    assert np.abs(plain[0] - relu).max() > 1e-2
    bag = ModelConfig(**fields | {"positions": "none"})
    bag_params = init(bag, task.d_vocab, task.n_ctx, key=jax.random.key(0))
    for rewrite in REWRITES:
        if rewrite.name == "token counts":
            ends = tokens.at[:, -1].set(2)
            task_at_end = Asking(length=tokens.shape[1], read=(tokens.shape[1] - 1,), asks_by=2)
            assert rewrite.why_not(bag, task_at_end) is None
            found = jax.jit(rewrite.logits, static_argnums=(0, 3))(
                bag, bag_params, ends, task_at_end
            )[:, 0]
            exact = jax.vmap(lambda row: forward(bag, bag_params, row)[0][-1])(ends)
        else:
            found = jax.jit(rewrite.logits, static_argnums=(0, 3))(config, params, tokens, task)
            found = found.transpose(2, 1, 0) if rewrite.vocab_axis == 0 else found
            exact = plain[:, np.array(task.loss_positions)]
        np.testing.assert_allclose(found, exact, rtol=1e-4, atol=1e-5, err_msg=rewrite.name)
    prompt = [int(token) for token in tokens[0]]
    # the walk writes it by its name and has the pass's own numbers, the others have it not
    lines = [
        line
        for step in walk.walk(Transformer(config, params), prompt, ("", "A", "B", "C")).steps
        for line in step.lines
    ]
    (hidden,) = (line for line in lines if "cubic(" in line.formula)
    trace = forward(config, params, tokens[0])[1]
    np.testing.assert_allclose(
        np.asarray(hidden.values), trace["blocks.0.mlp.hook_post"], rtol=1e-5, atol=1e-6
    )
    others = consumers()
    del others["the walk"]
    assert len(others) == 2
    for name, support in others.items():
        assert "act='cubic'" in (support.why_not(config) or ""), name
        with pytest.raises(UserError, match=f"{name} has no act='cubic'"):
            support.require(config)


def test_new_positions_are_computed_or_refused_by_everybody(monkeypatch):
    """What a row says to add and to turn is added and turned, has its sites and parameters,
    and everybody else refuses it by name.
    """
    learned, rotary = POSITIONS["learned"], POSITIONS["rotary"]
    rows = {
        "both": PositionKind(added=learned.added, turned=rotary.turned, has_table=True),
        "mirrored": PositionKind(turned=lambda config, x: x[..., ::-1] * jnp.ones((1, 1, 1))),
    }
    for name, row in rows.items():
        monkeypatch.setitem(POSITIONS, name, row)
    both = model_of({"positions": "both"})
    assert both.params["pos_embed.W_pos"].shape == (N_CTX, 16)
    assert {"hook_pos_embed", "blocks.1.attn.hook_rot_q"} <= set(both.config.sites())
    # rotary positions alone, of embeddings to which the table was added by hand
    rotary_model = Transformer(ModelConfig(**_fields("rotary")), both.params)
    embedded = both.W_E[jnp.array(PROMPT)] + both.W_pos[: len(PROMPT)]
    by_hand = rotary_model(PROMPT, replace_site("hook_embed", embedded))
    np.testing.assert_allclose(both(PROMPT), by_hand, rtol=1e-5, atol=1e-5)
    assert not np.allclose(both(PROMPT), rotary_model(PROMPT), atol=1e-2)
    with pytest.raises(UserError, match="stand in the stream and turn what heads read of it"):
        both.after(1)
    # queries and keys both mirrored: their products stay
    mirrored = model_of({"positions": "mirrored"})
    none = Transformer(ModelConfig(**_fields("none")), mirrored.params)
    logits, cache = mirrored.run_with_cache(PROMPT)
    np.testing.assert_allclose(logits, none(PROMPT), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(cache["rot_q", 0], cache["q", 0][..., ::-1])
    assert mirrored.after(1).config.positions == "mirrored"
    for model in (both, mirrored):
        with pytest.raises(NotImplementedError, match="no positions"):
            numpy_logits(model.config, model.params, PROMPT)
        assert_refused_by_all(model.config, f"positions={model.config.positions!r}")


def _fields(positions):
    return {"d_model": 16, "n_heads": 4, "n_layers": 2, "d_mlp": 5, "positions": positions}


@pytest.mark.parametrize(("table", "field"), [(NORMS, "norm_type"), (ATTENTION, "attention")])
def test_a_new_row_is_refused_by_whoever_does_not_take_it_from_the_table(table, field, monkeypatch):
    monkeypatch.setitem(table, "odd", next(iter(table.values())))
    model = model_of({field: "odd", "norm": "pre"})
    plain = model_of({"norm": "pre"})
    np.testing.assert_array_equal(model(PROMPT), plain(PROMPT))
    with pytest.raises(NotImplementedError, match="odd"):
        numpy_logits(model.config, model.params, PROMPT)
    # the walk writes attention by its name, whichever it is
    by_name = ["the walk"] if field == "attention" else []
    assert_refused_by_all(model.config, f"{field}='odd'", but=by_name)


def assert_refused_by_all(config, what, but=()):
    for name, support in consumers().items():
        if name in but:
            assert support.why_not(config) is None
            continue
        with pytest.raises(UserError, match=what) as error:
            support.require(config)
        assert "\n" not in str(error.value)


SUPPORTS = {
    **consumers(),
    **{
        part.SUPPORT.consumer: part.SUPPORT
        for part in (token_counts, pair_tables, score_tables, weight_memories, distraction)
    },
    gradients.GRADIENTS.consumer: gradients.GRADIENTS,
    gradients.STEPS.consumer: gradients.STEPS,
}


class Later(ModelConfig):
    """What a later version may have besides."""

    kind: Literal["later"] = "later"
    computed_as: ClassVar[str] = "transformer"
    soft_cap: float = 0.0


@pytest.mark.parametrize("name", SUPPORTS)
def test_a_field_that_nobody_listed_is_refused(name):
    """Every consumer takes what it lists and refuses the rest by field and value,
    and so a field that is added later.
    """
    support = SUPPORTS[name]
    n_refused = 0
    for row in ROWS.values():
        config = model_of(row).config
        why_not = support.why_not(config) or ""
        for field, value in row.items():
            default = ModelConfig.model_fields[field].default
            # None stands for every value
            allowed = support.values.get(field, (default,))
            is_refused = allowed is not None and value not in allowed
            n_refused += is_refused
            assert (f"{field}={value!r} (allowed: " in why_not) == is_refused, (field, why_not)
    assert n_refused or name in ("the walk", "the explorer")
    # what the consumer computes otherwise
    plain = {field: allowed[0] for field, allowed in support.values.items() if allowed}
    assert support.why_not(Later(**plain)) is None
    later = Later(**plain, soft_cap=5.0)
    assert support.why_not(later) == "soft_cap=5.0 (allowed: 0.0)"
    with pytest.raises(UserError, match=f"{name} has no soft_cap=5.0"):
        support.require(later)


# ---- readers of weights and of traces, which a Spec may name

READERS = {
    "memories": (
        weight_memories.require_memories,
        lambda model: [
            weight_memories.output_memory(model),
            weight_memories.second_keys(model, (1, 2)),
            weight_memories.first_keys(model),
            weight_memories.bigram_memory(model, TEXT.text.bigrams) if model.config.d_mlp else 0.0,
        ],
    ),
    "heads": (
        weight_memories.require_two_heads,
        lambda model: weight_memories.head_scores(
            model, jnp.array([PROMPT]), jnp.ones((1, len(PROMPT)))
        ),
    ),
    "noise": (distraction.require_parts, lambda model: distraction.distraction(TEXT, model, 2)),
    "sampled gradient": (
        gradients.GRADIENTS.require,
        lambda model: gradients.sampled_gradient(
            TEXT, model.config, model.params, "blocks.0.attn.W_V", 1, 2, key=jax.random.key(0)
        ),
    ),
    "three steps": (
        gradients.STEPS.require,
        lambda model: gradients.three_steps(
            TEXT, model.config, model.params, 1, 2, key=jax.random.key(0)
        ),
    ),
}


@pytest.mark.parametrize("reader", READERS)
def test_readers_read_every_row_or_refuse_it_in_one_line(reader):
    """No row of the tables is read raw, or as if it were another."""
    require, read = READERS[reader]
    read = jax.jit(read) if reader != "three steps" else read
    read_some = 0
    for name, fields in ROWS.items():
        one_head = {key: value for key, value in fields.items() if key != "n_key_value_heads"}
        for bias in (True, False):
            model = text_model({"bias": bias} | one_head)
            why_not = refusal(require, model.config)
            if why_not:
                assert "\n" not in why_not
                with pytest.raises(UserError, match=re.escape(why_not)):
                    jax.eval_shape(read, model)
                continue
            found = jax.eval_shape(read, model)
            assert jax.tree.leaves(found), name
            read_some += 1
    assert read_some >= 2


def refusal(require, config):
    """What a reader says to a model; None if it reads it."""
    try:
        require(config)
    except UserError as refused:
        return str(refused)
    return None


@pytest.mark.parametrize("metrics", ["bigrams", "noise"])
def test_a_spec_says_at_once_what_its_metrics_cannot_read(metrics):
    for fields in ({}, {"norm": "pre"}, {"attn_layers": (0,)}, {"positions": "rotary"}):
        config = text_model(fields).config
        spec = Spec(task=TEXT, model=config, metrics=metrics)
        reads_it = metrics == "noise" and fields in ({}, {"positions": "rotary"})
        if reads_it:
            jax.eval_shape(metrics_of(spec), text_model(fields), ())
            continue
        with pytest.raises(UserError, match=r"memories in weights|the reader of noise|attn_layers"):
            metrics_of(spec)
    # models of other shapes have no memories that could be read
    four = ModelConfig(d_model=8, n_heads=4, n_layers=2, d_mlp=5, norm="pre")
    if metrics == "bigrams":
        assert metrics_of(Spec(task=TEXT, model=four, metrics=metrics)) is not None


def text_model(fields):
    """A model of a small text whose layers have one head each."""
    config = ModelConfig(**{"d_model": 8, "n_heads": 1, "n_layers": 2, "d_mlp": 5} | fields)
    rng = np.random.default_rng(0)
    shapes = parameter_shapes(config, TEXT.d_vocab, TEXT.n_ctx)
    params = {name: jnp.asarray(rng.normal(size=shape), "f4") for name, shape in shapes.items()}
    return Transformer(config, params)


def test_memories_of_tied_models_are_those_of_the_same_weights_untied():
    tied = text_model({"bias": False, "tied": True})
    loose = tied.config.model_copy(update={"tied": False})
    untied = Transformer(loose, tied.params | {"unembed.W_U": tied.W_E.T})
    for reader in ("memories", "noise"):
        _, read = READERS[reader]
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6),
            jax.jit(read)(tied),
            jax.jit(read)(untied),
        )


def test_attention_of_a_layer_that_has_none_is_one_line():
    task = Permutation(n_symbols=3)
    model = model_of(ROWS["attention in layer 1 alone"])
    tokens = jnp.ones((2, task.n_ctx), int)
    assert mean_pattern(task, model, tokens, layer=1).shape == (4, task.n_ctx, task.n_ctx)
    with pytest.raises(UserError, match=r"layer 0 has no attention; allowed: one of attn_layers"):
        mean_pattern(task, model, tokens)


def test_fields_of_parts_that_a_model_does_not_have_do_not_matter():
    nothing = Support("nobody", {})
    assert nothing.why_not(ModelConfig(d_mlp=0, act="gelu", gated_mlp=True)) is None
    assert nothing.why_not(ModelConfig(norm_type="rms")) is None
    assert nothing.why_not(ModelConfig(rotary_base=5.0)) is None
    assert nothing.why_not(ModelConfig(d_model=8, n_heads=2, d_head=4)) is None
    assert nothing.why_not(ModelConfig(act="gelu")) == "act='gelu' (allowed: 'relu')"
