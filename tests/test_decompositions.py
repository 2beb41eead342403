"""What a stream is made of: on paper, as sums, and by loops over components in NumPy."""

import jax.numpy as jnp
import numpy as np
import pytest
from compiled import early_logits
from models_at_hand import BATCH, CONFIGS, VOCAB, drawn, on_paper

from mnemoscope.core.errors import UserError
from mnemoscope.models import ModelConfig, Transformer
from mnemoscope.models.activation_cache import Cache


@pytest.fixture(params=CONFIGS, scope="module")
def ran(request):
    """A model, its logits after a batch, and what it saw."""
    model = drawn(CONFIGS[request.param])
    logits, cache = model.run_with_cache(BATCH)
    return model, np.asarray(logits), cache


def numbers(labeled):
    """A stack in NumPy, and its labels."""
    return np.asarray(labeled[0]), labeled[1]


def close(ours, theirs, atol=1e-5):
    assert np.shape(ours) == np.shape(theirs)
    np.testing.assert_allclose(ours, theirs, atol=atol, rtol=1e-4)


def test_on_paper():
    logits, cache = on_paper().run_with_cache([0, 1])
    close(logits[-1], [2.75, 0.75, 2.0])
    stack, labels = cache.decompose_resid(pos_slice=-1, return_labels=True)
    assert labels == ["embed", "0_attn_out", "0_mlp_out"]
    close(stack, [[0, 1], [1, 1.5], [1.75, -1.75]])
    close(cache.logit_attrs(stack, 2, pos_slice=-1), [-1, -0.5, 3.5])
    close(cache.logit_attrs(stack, 2, 0, pos_slice=-1), [-1, -1.5, 1.75])
    close(cache.stack_head_results(pos_slice=-1), [[1, 1.5]])
    close(cache.get_neuron_results(0, pos_slice=-1), [[1.75, -1.75]])
    close(cache.accumulated_resid(pos_slice=-1, incl_mid=True), [[0, 1], [1, 2.5], [2.75, 0.75]])
    full, labels = cache.get_full_resid_decomposition(pos_slice=-1, return_labels=True)
    assert labels == ["L0H0", "L0N0", "embed", "bias"]
    close(full, [[1, 1.5], [1.75, -1.75], [0, 1], [0, 0]])
    rest, labels = cache.stack_head_results(pos_slice=-1, incl_remainder=True, return_labels=True)
    assert labels == ["L0H0", "remainder"]
    close(rest[1], [1.75, -0.75])
    # the norm of what the head reads does nothing where there is none
    close(cache.apply_ln_to_stack(full), full)


def streams(model, cache):
    """What every part of every layer receives, and the unembedding, with how it is asked for."""
    config = model.config
    for layer in range(config.n_layers):
        yield {"layer": layer}, cache["resid_pre", layer]
        if config.has_mlp(layer):
            name = "resid_pre" if config.parallel_attn_mlp else "resid_mid"
            yield {"layer": layer, "mlp_input": True}, cache[name, layer]
    yield {"layer": -1}, cache["resid_post", -1]


def test_every_decomposition_adds_up_to_the_stream(ran):
    model, _, cache = ran
    for asked, stream in streams(model, cache):
        for stack in (
            cache.decompose_resid(**asked),
            cache.get_full_resid_decomposition(**asked),
            cache.get_full_resid_decomposition(**asked, expand_neurons=False),
            cache.stack_neuron_results(**asked, incl_remainder=True),
        ):
            close(stack.sum(axis=0), stream)
        if "mlp_input" not in asked:
            close(cache.stack_head_results(**asked, incl_remainder=True).sum(axis=0), stream)


def test_parts_of_parts_add_up(ran):
    model, _, cache = ran
    config = model.config
    heads, head_labels = numbers(cache.stack_head_results(return_labels=True))
    neurons, neuron_labels = numbers(cache.stack_neuron_results(return_labels=True))
    for layer in range(config.n_layers):
        if config.has_attn(layer):
            of_layer = [
                x
                for x, label in zip(heads, head_labels, strict=True)
                if label.startswith(f"L{layer}H")
            ]
            assert len(of_layer) == config.n_heads
            close(
                sum(of_layer) + np.asarray(model.blocks[layer].attn.b_O), cache["attn_out", layer]
            )
        if config.has_mlp(layer):
            of_layer = [
                x
                for x, label in zip(neurons, neuron_labels, strict=True)
                if label.startswith(f"L{layer}N")
            ]
            assert len(of_layer) == config.d_mlp
            close(
                sum(of_layer) + np.asarray(model.blocks[layer].mlp.b_out), cache["mlp_out", layer]
            )
            close(np.moveaxis(cache.get_neuron_results(layer), -2, 0), np.stack(of_layer))
    both, labels = cache.stack_neuron_results(neuron_slice=[2, 0], return_labels=True)
    assert labels[:2] == [label for label in neuron_labels if label in (labels[0], labels[1])][::-1]
    close(both[0], neurons[neuron_labels.index(labels[0])])


def test_labels_say_what_stands_there(ran):
    model, _, cache = ran
    parts, labels = cache.decompose_resid(return_labels=True)
    for part, label in zip(parts, labels, strict=True):
        site = label if "embed" in label else (label[2:], int(label[0]))
        np.testing.assert_array_equal(part, cache[site])
    attn, attn_labels = cache.decompose_resid(mode="attn", incl_embeds=False, return_labels=True)
    mlp, mlp_labels = cache.decompose_resid(mode="mlp", incl_embeds=False, return_labels=True)
    assert {*attn_labels, *mlp_labels} == {x for x in labels if "embed" not in x}
    close(
        attn.sum(axis=0) + mlp.sum(axis=0),
        cache["resid_post", -1] - parts[: len(parts) - len(attn) - len(mlp)].sum(axis=0),
    )
    streams_, labels = cache.accumulated_resid(return_labels=True)
    for stream, label in zip(streams_, labels, strict=True):
        where = ("resid_post", -1) if label == "final_post" else ("resid_pre", int(label[0]))
        np.testing.assert_array_equal(stream, cache[where])
    assert len(labels) == model.config.n_layers + 1


def test_attributions_add_up_to_logits_without_biases(ran):
    model, logits, cache = ran
    shift = np.asarray(model.b_U)
    if model.config.norm == "pre" and model.config.norm_type == "layer":
        shift = shift + np.asarray(model.ln_final.b) @ np.asarray(model.W_U)
    expected = logits - shift
    full = cache.get_full_resid_decomposition()
    for token in (0, VOCAB - 1):
        close(cache.logit_attrs(full, token).sum(axis=0), expected[..., token], 1e-4)
    each = np.array(BATCH)
    asked = np.take_along_axis(expected, each[..., None], axis=-1)[..., 0]
    close(cache.logit_attrs(full, each).sum(axis=0), asked, 1e-4)
    of_rows = [4, 0, 1]
    asked = np.stack([expected[row, :, token] for row, token in enumerate(of_rows)])
    close(cache.logit_attrs(full, of_rows).sum(axis=0), asked, 1e-4)
    other = np.stack([expected[row, :, 2] for row in range(3)])
    close(cache.logit_attrs(full, of_rows, [2, 2, 2]).sum(axis=0), asked - other, 1e-4)


def numpy_attributions(model, cache, parts, tokens):
    """Component by component, row by row, position by position."""
    config = model.config
    p = {name: np.asarray(x, float) for name, x in model.params.items()}
    final = np.asarray(cache["resid_post", -1], float)
    w_u = p["embed.W_E"].T if config.tied else p["unembed.W_U"]
    found = np.zeros(parts.shape[:-1])
    for place in np.ndindex(*found.shape):
        part = np.asarray(parts[place], float)
        whole = final[place[1:]]
        if config.norm == "pre":
            if config.norm_type == "layer":
                part = part - part.mean()
                whole = whole - whole.mean()
            part = part / np.sqrt((whole**2).mean() + config.norm_eps) * p["ln_final.w"]
        found[place] = part @ w_u[:, tokens[place[1]]]
    return found


def test_attributions_by_loops(ran):
    model, _, cache = ran
    parts = cache.decompose_resid()
    tokens = [4, 0, 1]
    expected = numpy_attributions(model, cache, parts, tokens)
    close(cache.logit_attrs(parts, tokens), expected, 1e-4)
    one = cache.logit_attrs(cache.decompose_resid(pos_slice=1), tokens, pos_slice=1)
    close(one, expected[:, :, 1], 1e-4)


def test_what_a_layer_receives_is_the_sum_of_normed_parts(ran):
    model, _, cache = ran
    if model.config.norm != "pre":
        return
    has_shift = model.config.norm_type == "layer"
    for asked, _ in streams(model, cache):
        if asked["layer"] == -1:
            name = "ln_final"
        else:
            name = f"blocks.{asked['layer']}.ln{2 if 'mlp_input' in asked else 1}"
        # what the norm's weights receive is cached
        expected = np.asarray(cache[f"{name}.hook_normalized"]) * np.asarray(
            model.params[f"{name}.w"]
        )
        close(cache.decompose_resid(**asked, apply_ln=True).sum(axis=0), expected, 1e-4)
        full = cache.get_full_resid_decomposition(**asked, apply_ln=True)
        close(full.sum(axis=0), expected, 1e-4)
        lens = cache.accumulated_resid(**asked, apply_ln=True)
        if name == "ln_final" and has_shift:
            expected = expected + np.asarray(model.params["ln_final.b"])
        close(lens[-1], expected, 1e-4)


def test_the_logit_lens(ran):
    model, _, cache = ran
    streams_ = np.asarray(cache.accumulated_resid(apply_ln=True))[1:]
    lens = streams_ @ np.asarray(model.W_U) + np.asarray(model.b_U)
    for row, tokens in enumerate(BATCH):
        expected = early_logits(model.config, model.params, jnp.array(tokens))
        close(lens[:, row], expected, 1e-4)


@pytest.fixture(scope="module")
def cache():
    """What a model with norms saw of a batch."""
    return drawn(CONFIGS["layer norm"]).run_with_cache(BATCH)[1]


@pytest.mark.parametrize(
    "pos_slice", [-1, (1, 3), slice(None, None, 2), [3, 0], np.array([1])], ids=str
)
def test_positions_are_taken_before_or_after(cache, pos_slice):
    where = slice(*pos_slice) if isinstance(pos_slice, tuple) else pos_slice
    for name in (
        "decompose_resid",
        "accumulated_resid",
        "stack_head_results",
        "get_full_resid_decomposition",
    ):
        for apply_ln in (False, True):
            whole = getattr(cache, name)(apply_ln=apply_ln)
            taken = getattr(cache, name)(apply_ln=apply_ln, pos_slice=pos_slice)
            close(taken, np.asarray(whole)[:, :, where])


def test_one_row_has_no_batch_axis():
    model = drawn(CONFIGS["layer norm"])
    _, cache = model.run_with_cache(BATCH)
    _, alone = model.run_with_cache(BATCH[1])
    for name in (
        "decompose_resid",
        "accumulated_resid",
        "stack_head_results",
        "get_full_resid_decomposition",
    ):
        close(getattr(alone, name)(apply_ln=True), getattr(cache, name)(apply_ln=True)[:, 1])
    parts = alone.decompose_resid()
    close(alone.logit_attrs(parts, 3), cache.logit_attrs(cache.decompose_resid(), 3)[:, 1])
    each = alone.logit_attrs(parts, BATCH[1], has_batch_dim=False)
    close(each, cache.logit_attrs(cache.decompose_resid(), BATCH)[:, 1])
    last = alone.decompose_resid(pos_slice=-1)
    close(alone.logit_attrs(last, [2], pos_slice=-1), alone.logit_attrs(last, 2, pos_slice=-1))


def test_stacks_of_one_activation(ran):
    model, _, cache = ran
    streams_ = cache.stack_activation("resid_pre")
    assert streams_.shape == (model.config.n_layers, 3, 4, model.config.d_model)
    np.testing.assert_array_equal(cache.stack_activation("resid_pre", 1)[0], streams_[0])


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (lambda c: c.decompose_resid(layer=3), r"layer=3 of 2; allowed: 0 to 2, -1 for the end"),
        (lambda c: c.decompose_resid(mlp_input=True), "at the end, which is the unembedding"),
        (
            lambda c: c.decompose_resid(mode="heads"),
            "unknown mode 'heads'.*allowed: all, attn, mlp",
        ),
        (lambda c: c.decompose_resid(0, incl_embeds=False), "there is nothing to stack"),
        (
            lambda c: c.decompose_resid(pos_slice=4),
            r"4 of 4 along an axis .* allowed: a number below 4",
        ),
        (lambda c: c.decompose_resid(pos_slice="x"), "'x' of 4 along an axis"),
        (lambda c: c.stack_activation("z", 0), "layer=0 has no layers before it"),
        (
            lambda c: c.logit_attrs(c.decompose_resid(), [1, 2]),
            r"tokens of shape \(2,\) for a stack of shape \(6, 3, 4, 6\)",
        ),
        (
            lambda c: c.logit_attrs(c.decompose_resid(), 5),
            "answers are whole numbers from 0 to 4, got 5",
        ),
        (lambda c: c.logit_attrs(c.decompose_resid(), "a"), "answers are whole numbers"),
        (
            lambda c: c.logit_attrs(c.decompose_resid(), 1, [1, 2, 3]),
            r"incorrect_tokens of shape \(3,\); allowed: \(\)",
        ),
        (
            lambda c: c.logit_attrs(c.decompose_resid(), 1, has_batch_dim=False),
            "has_batch_dim=False, but this cache has a batch axis",
        ),
        (
            lambda c: c.logit_attrs(c.decompose_resid(pos_slice=[0, 1]), 1),
            r"does not fit a cached norm of shape \(1, 3, 4, 1\)",
        ),
        (
            lambda c: c.apply_ln_to_stack(jnp.ones((2, 6)), pos_slice=[0, 1]),
            "does not fit a cached norm",
        ),
    ],
)
def test_what_cannot_be_is_one_line(cache, asked, message):
    with pytest.raises(UserError, match=message) as error:
        asked(cache)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("fields", [{"norm": "post"}, {"attn_residual": False}])
def test_a_stream_that_is_no_sum_is_not_taken_apart(fields):
    model = drawn(ModelConfig(d_model=6, n_heads=2, d_mlp=3, **fields))
    _, cache = model.run_with_cache(BATCH)
    for name in ("decompose_resid", "get_full_resid_decomposition"):
        with pytest.raises(UserError, match="is not the sum of what was added to it; allowed"):
            getattr(cache, name)()
    assert cache.accumulated_resid(apply_ln=True).shape == (2, 3, 4, 6)
    assert cache.stack_head_results().shape == (2, 3, 4, 6)


def test_names_that_are_not_cached():
    model = drawn(CONFIGS["plain"])
    _, cache = model.run_with_cache(BATCH, names_filter=["z0", ("pattern", -1)])
    assert list(cache) == ["blocks.0.attn.hook_z", "blocks.1.attn.hook_pattern"]
    assert "embed" not in cache
    assert "nonsense" not in cache
    assert cache.get("embed") is None
    assert cache.get(("z", 0)) is cache["z", 0]
    with pytest.raises(UserError, match=r"'hook_embed' was not cached; allowed: blocks\.0\.attn"):
        _ = cache["embed"]
    with pytest.raises(UserError, match="was not cached"):
        cache.decompose_resid()
    assert isinstance(Cache(model, cache), Cache)


def test_a_model_with_trained_looking_norms_needs_no_folding():
    """The weights of the last norm folded into the unembedding by hand: the same attributions."""
    config = ModelConfig(d_model=6, n_heads=2, d_mlp=3, norm="pre")
    model = drawn(config)
    w = model.params["ln_final.w"]
    folded = model.params | {
        "ln_final.w": jnp.ones(6),
        "unembed.W_U": w[:, None] * model.params["unembed.W_U"],
    }
    found = []
    for params in (model.params, folded):
        _, cache = Transformer(config, params).run_with_cache(BATCH)
        found.append(cache.logit_attrs(cache.decompose_resid(), 2))
    close(*found)
