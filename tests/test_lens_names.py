"""Every public name that objects of TransformerLens have works on ours,
or says in one line what to use; and what its users write by habit.
"""

import copy
import pickle

import jax
import jax.numpy as jnp
import lens_names
import numpy as np
import pytest
from models_at_hand import BATCH, CONFIGS, drawn, on_paper

import mnemoscope as ms
from mnemoscope.core.errors import UserError
from mnemoscope.models import ModelConfig, Transformer
from mnemoscope.models.hooked_model import as_edits
from mnemoscope.models.hooks import HookPoint
from mnemoscope.models.transformer_lens_names import CACHE, HOOK_POINT, MODEL

PLAIN = drawn(CONFIGS["plain"])
STACK = ms.Stack([PLAIN, drawn(CONFIGS["plain"], seed=1)])
_, SEEN = PLAIN.run_with_cache(BATCH)

OBJECTS = {
    "model": (PLAIN, (*lens_names.MODEL, *lens_names.MODULE)),
    "stack": (STACK, (*lens_names.MODEL, *lens_names.MODULE)),
    "cache": (SEEN, lens_names.CACHE),
    "factored matrix": (PLAIN.OV, lens_names.FACTORED),
    "hook point": (PLAIN.hook_embed, lens_names.HOOK_POINT),
}


@pytest.mark.parametrize("kind", OBJECTS)
def test_every_name_works_or_says_what_to_use(kind):
    thing, names = OBJECTS[kind]
    works = 0
    for name in names:
        try:
            getattr(thing, name)
            works += 1
        except UserError as error:
            message = str(error)
            assert "\n" not in message
            if name == "W_gate":
                assert message == "this model has no W_gate; allowed: gated_mlp=True"
                continue
            assert message.startswith(f"no {name!r} here: "), message
            assert not hasattr(thing, name)
    assert works > 1, "some are there"
    with pytest.raises(AttributeError) as error:
        _ = thing._repr_pretty_
    assert not isinstance(error.value, UserError), "what Python looks for is not there, plainly"
    with pytest.raises(AttributeError):
        _ = thing.no_such_name


def test_nothing_is_refused_that_is_there():
    assert isinstance(PLAIN.hook_pos_embed, HookPoint), "it is refused where there is none"
    for names, thing in ((MODEL, PLAIN), (MODEL, STACK), (CACHE, SEEN), (HOOK_POINT, "hook_embed")):
        there = dir(HookPoint(thing) if isinstance(thing, str) else thing)
        assert not set(names) & set(there)


def test_objects_are_copied_and_pickled():
    """Names are looked up before an object has any."""
    for thing in (PLAIN, SEEN, HookPoint("hook_embed")):
        for other in (copy.deepcopy(thing), pickle.loads(pickle.dumps(thing))):
            assert type(other) is type(thing)


@pytest.mark.parametrize("cls", [Transformer, ms.Stack])
@pytest.mark.parametrize("name", ["from_pretrained", "from_pretrained_no_processing"])
def test_no_model_is_downloaded(cls, name):
    with pytest.raises(UserError, match=r"mnemoscope\.load_model reads language models"):
        getattr(cls, name)("gpt2", device="cpu")


def test_what_is_so_already_does_nothing():
    assert PLAIN.eval() is PLAIN
    assert PLAIN.reset_hooks() is None
    assert PLAIN.reset_hooks(including_permanent=True) is None
    assert PLAIN.set_use_attn_result(True) is None
    assert PLAIN.set_use_split_qkv_input(True) is None
    assert list(PLAIN.hook_dict) == list(PLAIN.config.sites())
    assert [point.name for point in PLAIN.hook_points()] == list(PLAIN.hook_dict)
    assert PLAIN.blocks[1].hook_resid_pre == HookPoint("blocks.1.hook_resid_pre")
    assert PLAIN.blocks[1].attn.hook_z.layer() == 1
    assert PLAIN.hook_pos_embed.name == "hook_pos_embed"
    np.testing.assert_array_equal(PLAIN.W_E_pos, [*PLAIN.W_E, *PLAIN.W_pos])


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (lambda: as_edits("loss"), "'loss' is no edit; allowed: return_type='loss', by its"),
        (lambda: as_edits(None), "None is no edit; allowed: one edit or several"),
        (lambda: PLAIN.blocks[2], "no layer 2 in a model of 2; allowed: 0 to 1"),
        (lambda: PLAIN.blocks["0"], "no layer '0' in a model of 2"),
        (lambda: PLAIN.hooks(fwd_hooks=[]), "no hook stays on a model; run_with_hooks"),
        (lambda: PLAIN.set_use_attn_in(True), "no site hook_attn_in; allowed: .* q_input, k_input"),
        (lambda: PLAIN.set_use_hook_mlp_in(True), "no site hook_mlp_in; allowed: .* resid_mid"),
        (lambda: PLAIN.blocks[0].hook_mlp_in, "unknown parameter 'blocks.0.hook_mlp_in"),
        (lambda: drawn(CONFIGS["llama"]).hook_pos_embed, "no 'hook_pos_embed' here: "),
        (
            lambda: PLAIN.loss_fn(PLAIN(BATCH), BATCH, mask=1),
            "no keyword 'mask'",
        ),
        (
            lambda: SEEN.stack_neuron_results(1, project_output_onto=1),
            "no project_output_onto; allowed: the stack @ directions",
        ),
        (lambda: SEEN.get_neuron_results(0, project_output_onto=1), "no project_output_onto"),
        (
            lambda: SEEN.get_full_resid_decomposition(project_output_onto=1),
            "no project_output_onto",
        ),
        (
            lambda: PLAIN.unembed(jnp.zeros((2, 5))),
            r"reads streams \(\.\.\., pos, 6\), got",
        ),
        (lambda: PLAIN.ln_final(jnp.zeros(6)), r"of shape \(6,\)"),
        (lambda: PLAIN.blocks[0].mlp(jnp.zeros((2, 6), int)), "blocks.0.mlp reads streams"),
        (lambda: STACK.unembed(jnp.zeros((3, 2, 6))), r"\(seed, \.\.\., pos, 6\)"),
        (lambda: PLAIN.embed([5]), r"tokens are 0 to 4, got \[5\]"),
        (lambda: PLAIN.embed(), "embed takes 1, got 0"),
        (
            lambda: PLAIN.blocks[0].attn(jnp.zeros((2, 6)), jnp.zeros((2, 6))),
            "blocks.0.attn takes 1 or 3, for queries, keys and values, got 2",
        ),
        (
            lambda: drawn(CONFIGS["llama"]).pos_embed(BATCH),
            "positions='rotary' adds none to the embedding",
        ),
    ],
)
def test_what_is_not_here_is_one_line(asked, message):
    with pytest.raises(UserError, match=message) as error:
        asked()
    assert "\n" not in str(error.value)


# ---- parts of a model, called


@pytest.mark.parametrize(
    ("kind", "tokens"), [*((kind, BATCH) for kind in CONFIGS), ("llama", BATCH[0])]
)
def test_parts_make_what_they_make_in_a_pass(kind, tokens):
    check_parts(drawn(CONFIGS[kind]), tokens)


def test_parts_of_a_stack_have_its_seed_axis():
    for kind in ("plain", "llama"):
        check_parts(ms.Stack([drawn(CONFIGS[kind], seed=seed) for seed in range(2)]), BATCH)


def check_parts(model, tokens):
    config = model.config
    logits, cache = model.run_with_cache(tokens)
    close(model.embed(tokens), cache["embed"])
    if "hook_pos_embed" in config.sites():
        places = cache["pos_embed"]
        close(model.pos_embed(tokens), places)
    x = cache["resid_pre", 0]
    for layer, block in enumerate(model.blocks):
        close(block(x), cache["resid_post", layer])
        for part, norm, out in (("attn", "ln1", "attn_out"), ("mlp", "ln2", "mlp_out")):
            if not (config.has_attn if part == "attn" else config.has_mlp)(layer):
                continue
            parallel = part == "attn" or config.parallel_attn_mlp
            stream = cache["resid_pre" if parallel else "resid_mid", layer]
            seen = getattr(block, norm)(stream)
            assert (config.norm == "pre") != np.array_equal(seen, stream)
            close(getattr(block, part)(seen), cache[out, layer])
            if part == "attn":
                close(block.attn(seen, seen, seen), cache[out, layer])
                other = block.attn(seen[..., ::-1], seen, seen)
                assert not np.allclose(other, cache[out, layer], atol=1e-4)
        x = cache["resid_post", layer]
    close(model.unembed(model.ln_final(x)), logits)
    assert not np.allclose(model.unembed(2 * model.ln_final(x)), logits, atol=1e-3)


def test_parts_are_differentiated_and_compiled():
    x = jnp.ones((3, 6))
    grown = jax.grad(lambda x: PLAIN.unembed(x)[0, 2])(x)
    close(grown[0], PLAIN.W_U[:, 2])
    close(jax.jit(lambda x: PLAIN.blocks[0](x))(x), PLAIN.blocks[0](x))


# ---- caches


def test_rows_of_a_batch():
    for model in (drawn(CONFIGS["layer norm"]), ms.Stack([drawn(CONFIGS["layer norm"])] * 2)):
        _, cache = model.run_with_cache(BATCH)
        axis = model.n_leading
        one = cache.apply_slice_to_batch_dim(1)
        _, alone = model.run_with_cache(BATCH[1])
        assert not one.has_batch_dim
        close(one["resid_post", -1], alone["resid_post", -1])
        two = cache.apply_slice_to_batch_dim((1, 3))
        assert two.has_batch_dim
        close(two["z", 0], jnp.take(cache["z", 0], jnp.array([1, 2]), axis=axis))
        assert cache.apply_slice_to_batch_dim(None).has_batch_dim
        stack = cache.decompose_resid()
        whole = cache.logit_attrs(stack, [2, 3, 4])
        cut = cache.logit_attrs(stack, [3, 4], batch_slice=(1, 3))
        close(cut, jnp.take(whole, jnp.array([1, 2]), axis=axis + 1))
        # components that were cut before
        row = jnp.take(stack, 1, axis=axis + 1)
        for found in (
            cache.logit_attrs(row, 3, batch_slice=1, has_batch_dim=False),
            cache.logit_attrs(stack, 3, None, None, 1),
        ):
            close(found, jnp.take(whole, 1, axis=axis + 1))
        for found in (
            cache.apply_ln_to_stack(row, 1, batch_slice=1, has_batch_dim=False),
            cache.apply_ln_to_stack(stack, 1, False, None, 1),
        ):
            close(found, jnp.take(cache.apply_ln_to_stack(stack, 1), 1, axis=axis + 1))
    with pytest.raises(UserError, match="this cache has no batch axis"):
        PLAIN.run_with_cache(BATCH[0])[1].apply_slice_to_batch_dim(0)


def test_heads_alone_need_no_stream():
    _, cache = PLAIN.run_with_cache(BATCH, names_filter=lambda name: name.endswith("hook_result"))
    close(cache.stack_head_results(-1), SEEN.stack_head_results(-1))
    with pytest.raises(UserError, match=r"'blocks\.1\.hook_resid_post' was not cached"):
        cache.stack_head_results(-1, incl_remainder=True)
    assert SEEN.cache_dict.keys() == SEEN.trace.keys()
    assert SEEN.has_embed
    assert SEEN.has_pos_embed
    assert not cache.has_embed


def test_only_what_is_asked_for_is_held(monkeypatch):
    from mnemoscope.models import hooked_model

    held = []

    def noted(*args):
        logits, trace = run_pass(*args)
        held.append(set(trace))
        return logits, trace

    run_pass = hooked_model.run_pass
    monkeypatch.setattr(hooked_model, "run_pass", noted)
    for edits in ((), ms.add_to_site("blocks.1.hook_k_input", jnp.ones((1, 1, 1)))):
        _, cache = PLAIN.run_with_cache(BATCH, edits, names_filter=["z1", ("k_input", 1)])
        assert list(cache) == ["blocks.1.hook_k_input", "blocks.1.attn.hook_z"]
        expected = SEEN["resid_pre", 1][:, :, None] + (1.0 if edits else 0.0)
        close(cache["k_input", 1], jnp.broadcast_to(expected, (3, 4, 2, 6)))
    assert held == [
        {"blocks.1.hook_resid_pre", "blocks.1.attn.hook_z"},
        {"blocks.1.hook_k_input", "blocks.1.attn.hook_z"},
    ]


# ---- circuits


def test_circuits_are_gone_through_head_by_head():
    heads = list(PLAIN.OV[0])
    assert len(heads) == len(PLAIN.OV[0]) == 2
    for number, head in enumerate(heads):
        close(head.AB, PLAIN.OV[0, number].AB)
        assert not head.has_leading_dims
    assert [len(layer) for layer in PLAIN.OV] == [2, 2]
    # without axes in front, row by row
    rows = list(on_paper().OV[0, 0])
    close(jnp.concatenate([row.AB for row in rows]), on_paper().OV[0, 0].AB)


def test_a_layer_of_attention_alone_has_no_second_norm():
    model = drawn(ModelConfig(d_model=6, n_heads=2, n_layers=1, d_mlp=0, norm="pre"))
    with pytest.raises(UserError, match=r"unknown parameter 'blocks\.0\.mlp"):
        _ = model.blocks[0].mlp


def close(ours, theirs):
    assert np.shape(ours) == np.shape(theirs)
    np.testing.assert_allclose(ours, theirs, atol=1e-5, rtol=1e-4)
