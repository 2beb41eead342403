"""The model object against TransformerLens: its names,
parts that are called, rows of a batch, hooks.
"""

import warnings
from functools import partial

import lens_names
import numpy as np
import pytest

pytest.importorskip(
    "torch", reason="torch is not installed (the extra 'interop'): no second opinion on the model"
)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip(
        "transformer_lens",
        reason="transformer-lens is not installed (the extra 'interop'): "
        "no second opinion on the model",
    )
import torch
from lens_models import BATCH, CONFIGS, both_caches, drawn, hooked, same
from transformer_lens.utilities import Slice

pytestmark = [
    pytest.mark.interop,
    pytest.mark.filterwarnings("ignore:HookedTransformer is deprecated:DeprecationWarning"),
]


@pytest.fixture(params=CONFIGS)
def pair(request, tmp_path):
    model = drawn(CONFIGS[request.param])
    return model, hooked(model, tmp_path / "model")


# ---- names


def test_the_lists_of_names_are_those_of_the_library(pair):
    """So that a name that a later one adds is answered too."""
    _, theirs = pair
    _, their_cache = theirs.run_with_cache(torch.tensor(BATCH))
    module = torch.nn.Module()
    of_modules = public(module)
    assert of_modules == set(lens_names.MODULE)
    assert public(theirs) - of_modules <= set(lens_names.MODEL)
    assert public(their_cache) == set(lens_names.CACHE)
    assert public(theirs.OV) == set(lens_names.FACTORED)
    assert public(theirs.hook_embed) - of_modules == set(lens_names.HOOK_POINT)


def public(thing):
    return {name for name in dir(thing) if not name.startswith("_")}


def test_parts_are_called(pair):
    model, theirs = pair
    tokens = torch.tensor(BATCH)
    cache, their_cache = both_caches(model, theirs)
    stream = cache["resid_post", 0]
    their_stream = their_cache["resid_post", 0]
    same(model.embed(BATCH), theirs.embed(tokens))
    same(model.pos_embed(BATCH), theirs.pos_embed(tokens))
    same(model.unembed(stream), theirs.unembed(their_stream))
    same(model.blocks[1](stream), theirs.blocks[1](their_stream))
    if model.config.norm == "pre":
        # norms there are without their weights, which the next matrix has
        same(model.unembed(model.ln_final(stream)), theirs.unembed(theirs.ln_final(their_stream)))
    q, k, v = (cache["resid_pre", i] for i in (1, 0, 1))
    theirs_of = [their_cache["resid_pre", i] for i in (1, 0, 1)]
    if model.config.norm == "none":
        same(model.blocks[0].attn(q, k, v), theirs.blocks[0].attn(*theirs_of))
        same(model.blocks[0].mlp(q), theirs.blocks[0].mlp(theirs_of[0]))


def test_rows_of_a_batch(pair):
    model, theirs = pair
    cache, their_cache = both_caches(model, theirs)
    stack = cache.decompose_resid()
    their_stack = their_cache.decompose_resid()
    for rows in (1, (0, 1), [1, 0]):
        their_rows = their_stack
        if model.config.norm == "none":
            # without a norm theirs does not cut the components
            their_rows = Slice(rows).apply(their_stack, dim=1)
        same(
            cache.logit_attrs(stack, 3, None, None, rows),
            their_cache.logit_attrs(their_rows, 3, None, None, rows),
        )
        same(
            cache.apply_ln_to_stack(stack, 1, False, None, rows),
            their_cache.apply_ln_to_stack(their_rows, 1, False, None, rows),
        )
        one = cache.apply_slice_to_batch_dim(rows)
        their_one = their_cache.apply_slice_to_batch_dim(rows)
        assert one.has_batch_dim == their_one.has_batch_dim
        same(one["z", 1], their_one["z", 1])
    same(cache.stack_head_results(1), their_cache.stack_head_results(1))
    heads = list(model.OV[0])
    for ours, their in zip(heads, theirs.OV[0], strict=True):
        same(ours.AB, their.AB)


# ---- hooks


def ablate_head(value, hook):
    value[:, :, 1, :] = 0.0
    return value


def ablate_in_place(value, hook):
    value[:, 2] = 1.0


def scale_by_layer(value, hook):
    return value * (hook.layer() + 2)


HOOKS = {
    "a head": [("blocks.1.attn.hook_v", ablate_head)],
    "in place": [("blocks.0.hook_resid_post", ablate_in_place)],
    "a filter": [(lambda name: name.endswith("hook_z"), scale_by_layer)],
    "two at one site": [
        ("hook_embed", ablate_in_place),
        ("hook_embed", lambda value, hook: value * 2),
    ],
    "attention": [("blocks.0.attn.hook_pattern", lambda value, hook: value * 0.5)],
    "each head's queries": [("blocks.1.hook_q_input", ablate_head)],
}


@pytest.mark.parametrize("kind", HOOKS)
def test_hooks(pair, kind):
    model, theirs = pair
    theirs.set_use_split_qkv_input(True)
    ours = model.run_with_hooks(BATCH, fwd_hooks=HOOKS[kind])
    same(ours, theirs.run_with_hooks(torch.tensor(BATCH), fwd_hooks=HOOKS[kind]))
    assert not np.allclose(ours, model(BATCH), atol=1e-4)
    row = model.run_with_hooks([BATCH[0]], fwd_hooks=HOOKS[kind])
    np.testing.assert_allclose(row[0], ours[0], atol=1e-6)


def test_hooks_see_what_theirs_see(pair):
    model, theirs = pair
    seen = []
    their_seen = []

    def look(into, value, hook):
        into.append((hook.name, hook.layer(), tuple(value.shape)))

    def is_pattern(name):
        return name.endswith("attn.hook_pattern")

    hooks = [(is_pattern, partial(look, seen))]
    assert model.run_with_hooks(BATCH, return_type=None, fwd_hooks=hooks) is None
    their_hooks = [(is_pattern, partial(look, their_seen))]
    theirs.run_with_hooks(torch.tensor(BATCH), return_type=None, fwd_hooks=their_hooks)
    assert seen == their_seen
