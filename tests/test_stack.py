"""A stack of models is a loop over them: runs, caches, weights, scores, hooks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models_at_hand import BATCH, CONFIGS, VOCAB, drawn

import mnemoscope as ms
from mnemoscope.core.errors import UserError

SEEDS = 2


@pytest.fixture(params=["layer norm", "llama"], scope="module")
def models(request):
    return [drawn(CONFIGS[request.param], seed) for seed in range(SEEDS)]


def beside(one_by_one, together):
    """Every model's own value is its row of the stack's."""
    assert len(together) == SEEDS
    for alone, row in zip(one_by_one, together, strict=True):
        assert np.shape(alone) == np.shape(row)
        finite = np.isfinite(alone)
        np.testing.assert_allclose(
            np.where(finite, row, 0), np.where(finite, alone, 0), atol=2e-5, rtol=1e-4
        )


def test_runs_and_caches(models):
    stack = ms.Stack(models)
    tokens = BATCH if models[0].config.norm_type == "layer" else BATCH[0]
    logits, cache = stack.run_with_cache(tokens)
    beside([model(tokens) for model in models], logits)
    beside([model(tokens) for model in models], stack(tokens))
    caches = [model.run_with_cache(tokens)[1] for model in models]
    for name in caches[0]:
        beside([each[name] for each in caches], cache[name])
    beside([each["q_input", 0] for each in caches], cache["q_input", 0])
    beside(
        [each.accumulated_resid(apply_ln=True) for each in caches],
        cache.accumulated_resid(apply_ln=True),
    )
    for pos_slice in (None, -1):
        for name in ("decompose_resid", "stack_head_results", "get_full_resid_decomposition"):
            asked = {"pos_slice": pos_slice, "apply_ln": True}
            beside([getattr(each, name)(**asked) for each in caches], getattr(cache, name)(**asked))
        parts = [each.decompose_resid(pos_slice=pos_slice) for each in caches]
        whole = cache.decompose_resid(pos_slice=pos_slice)
        answers = [2] if pos_slice is None else [2, [4, 0, 1] if tokens is BATCH else [4]]
        for answer in answers:
            beside(
                [
                    each.logit_attrs(x, answer, pos_slice=pos_slice)
                    for each, x in zip(caches, parts, strict=True)
                ],
                cache.logit_attrs(whole, answer, pos_slice=pos_slice),
            )
    beside(
        [each.stack_activation("resid_pre") for each in caches], cache.stack_activation("resid_pre")
    )
    assert "seed" in repr(cache)


def test_losses_and_going_on():
    models = [drawn(CONFIGS["plain"], seed) for seed in range(SEEDS)]
    stack = ms.Stack(models)
    for per_token in (False, True):
        asked = {"return_type": "loss", "loss_per_token": per_token}
        beside([model(BATCH, **asked) for model in models], stack(BATCH, **asked))
    beside([model.generate(BATCH, 3) for model in models], stack.generate(BATCH, 3))
    assert stack.generate(BATCH[0], 3).shape == (SEEDS, 7)
    hot = stack.generate(BATCH, 3, temperature=5.0, key=jax.random.key(0))
    assert hot.shape == (SEEDS, 3, 7)
    assert len({tuple(row) for row in np.asarray(hot)[..., 4:].reshape(-1, 3).tolist()}) > 3


def test_weights_and_scores():
    models = [drawn(CONFIGS["layer norm"], seed) for seed in range(SEEDS)]
    stack = ms.Stack(models)
    names = [
        "W_E",
        "W_pos",
        "W_U",
        "b_U",
        "W_Q",
        "W_K",
        "W_V",
        "W_O",
        "b_Q",
        "b_O",
        "W_in",
        "W_out",
        "b_in",
        "b_out",
    ]
    for name in names:
        beside([getattr(model, name) for model in models], getattr(stack, name))
    beside([model.blocks[1].attn.W_K for model in models], stack.blocks[1].attn.W_K)
    beside([model.ln_final.w for model in models], stack.ln_final.w)
    beside([model.OV.norm() for model in models], stack.OV.norm())
    beside([model.QK[1, 0].AB for model in models], stack.QK[:, 1, 0].AB)
    for mode in "QKV":
        beside(
            [model.all_composition_scores(mode) for model in models],
            stack.all_composition_scores(mode),
        )
    beside([model.accumulated_bias(1) for model in models], stack.accumulated_bias(1))
    directions = [model.tokens_to_residual_directions([[1, 2]]) for model in models]
    beside(directions, stack.tokens_to_residual_directions([[1, 2]]))
    assert stack.cfg.to_dict() == models[0].cfg.to_dict()
    grouped = [drawn(CONFIGS["llama"], seed) for seed in range(SEEDS)]
    for name in ("W_K", "b_K", "W_gate", "b_O"):
        beside([getattr(model, name) for model in grouped], getattr(ms.Stack(grouped), name))


def test_edits_and_hooks():
    models = [drawn(CONFIGS["plain"], seed) for seed in range(SEEDS)]
    stack = ms.Stack(models)
    site = "blocks.0.attn.hook_z"
    edit = ms.knock_out_head(stack.config, 0, 0)
    for tokens in (BATCH, BATCH[0]):
        beside([model(tokens, [edit]) for model in models], stack(tokens, [edit]))
        seen = []

        def without_head(value, hook):
            seen.append(value.shape)  # noqa: B023
            value[..., 0, :] = 0.0

        hooked = stack.run_with_hooks(tokens, fwd_hooks=[(site, without_head)])
        beside([model(tokens, [edit]) for model in models], hooked)
        in_front = (SEEDS, 3) if tokens is BATCH else (SEEDS,)
        assert seen == [(*in_front, 4, stack.config.n_heads, stack.config.d_head)]
        # every seed is patched with its own
        _, other = stack.run_with_cache(BATCH[::-1] if tokens is BATCH else BATCH[1])
        patched = [
            model(
                tokens,
                [
                    ms.patch_site(
                        site, model.run_with_cache(BATCH[::-1] if tokens is BATCH else BATCH[1])[1]
                    )
                ],
            )
            for model in models
        ]
        beside(patched, stack(tokens, [ms.patch_site(site, other)]))


def test_what_run_models_gives():
    spec = ms.Spec(task=ms.Cycle(), model=CONFIGS["plain"], steps=1, batch=2)
    run = ms.fit(spec, seeds=SEEDS)
    stack = ms.Stack(run.models())
    prompt = [0, 1, 2]
    beside([run.model(seed)(prompt) for seed in range(SEEDS)], stack(prompt))
    for model in (run.models(), stack[0].__class__(stack.config, stack.params)):
        for ask in (model, model.check, model.run_with_cache):
            with pytest.raises(UserError, match=r"a seed axis; allowed: Stack\(run\.models\(\)\)"):
                ask(prompt)
    close = jax.vmap(lambda model: model(jnp.array(prompt)))(stack.models)
    beside(close, stack(prompt))


def test_a_stack_is_a_sequence_of_models():
    models = [drawn(CONFIGS["parts"], seed) for seed in range(SEEDS)]
    stack = ms.Stack(iter(models))
    assert len(stack) == SEEDS
    for model, again in zip(models, stack, strict=True):
        assert again.config == model.config
        for name, x in model.params.items():
            np.testing.assert_array_equal(again.params[name], x)
    np.testing.assert_array_equal(stack[-1].W_E, models[-1].W_E)
    assert repr(stack).startswith("<Stack of 2 models, each <Transformer")
    with pytest.raises(UserError, match="no model 2 in a stack of 2; allowed: 0 to 1"):
        _ = stack[2]
    for what, message in (
        (models[0], r"a Stack of one model; allowed: run\.models\(\)"),
        ([], "a Stack of 0 models that differ"),
        (
            [models[0], drawn(CONFIGS["plain"])],
            "a Stack of 2 models that differ; allowed: models of one shape",
        ),
    ):
        with pytest.raises(UserError, match=message):
            ms.Stack(what)
    with pytest.raises(UserError, match="tokens are 0 to"):
        stack([VOCAB])
