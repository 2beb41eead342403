"""The first cells of TransformerLens's Main Demo and Exploratory Analysis Demo, in their words,
on a model of ours and on the same model there: what they compute agrees.
"""

import warnings
from functools import partial

import jax.numpy as jnp
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
from lens_models import BATCH, CONFIGS, drawn, hooked, same
from transformer_lens.utilities import get_act_name

pytestmark = [
    pytest.mark.interop,
    pytest.mark.filterwarnings("ignore:HookedTransformer is deprecated:DeprecationWarning"),
]


def test_main_demo(tmp_path):
    """Head ablation, residual-stream patching by partial hooks, induction scores, circuits."""
    model = drawn(CONFIGS["plain"])
    theirs = hooked(model, tmp_path / "model")
    found = {}
    for mine, array in ((model, jnp.array), (theirs, torch.tensor)):
        tokens, other = array([BATCH[0]]), array([BATCH[1]])
        said = found.setdefault(mine is model, {})
        said["loss"] = mine(tokens, return_type="loss")
        logits, cache = mine.run_with_cache(tokens, remove_batch_dim=True)
        said["attention"] = cache["pattern", 0, "attn"]
        said["names"] = [name for name, _ in cache.items() if name in model.config.sites()]

        def head_ablation_hook(value, hook):
            value[:, :, 1, :] = 0.0
            return value

        said["ablated"] = mine.run_with_hooks(
            tokens,
            return_type="loss",
            fwd_hooks=[(get_act_name("v", 0), head_ablation_hook)],
        )
        _, clean_cache = mine.run_with_cache(tokens)

        def residual_stream_patching_hook(resid_pre, hook, position):
            clean_resid_pre = clean_cache[hook.name]  # noqa: B023
            resid_pre[:, position, :] = clean_resid_pre[:, position, :]
            return resid_pre

        patched = []
        for layer in range(mine.cfg.n_layers):
            for position in range(other.shape[1]):
                temp_hook_fn = partial(residual_stream_patching_hook, position=position)
                patched.append(
                    mine.run_with_hooks(
                        other, fwd_hooks=[(get_act_name("resid_pre", layer), temp_hook_fn)]
                    )
                )
        said["patched"] = patched
        repeated_tokens = array([[1, 5, 2, 1, 5, 2], [4, 0, 3, 4, 0, 3]])
        score = np.zeros((mine.cfg.n_layers, mine.cfg.n_heads))

        def induction_score_hook(pattern, hook):
            stripe = np.asarray(pattern).diagonal(axis1=-2, axis2=-1, offset=1 - 3)
            score[hook.layer(), :] = stripe.mean(axis=(0, -1))  # noqa: B023

        mine.run_with_hooks(
            repeated_tokens,
            return_type=None,
            fwd_hooks=[(lambda name: name.endswith("pattern"), induction_score_hook)],
        )
        said["induction"] = score
        said["parameters"] = sorted((name, tuple(x.shape)) for name, x in mine.named_parameters())
        said["filtered"] = sorted(
            mine.run_with_cache(tokens, names_filter=lambda name: "hook_z" in name)[1].keys()
        )
        said["one name"] = list(
            mine.run_with_cache(tokens, names_filter="blocks.0.attn.hook_z")[1].keys()
        )
        full_ov = mine.embed.W_E @ mine.OV @ mine.unembed.W_U
        said["copying"] = full_ov.eigenvalues.real.sum(-1) / abs(full_ov.eigenvalues).sum(-1)
        said["logprobs"] = mine.loss_fn(logits, tokens, per_token=True)
    for name, ours in found[True].items():
        their = found[False][name]
        if name == "names":
            assert set(ours) >= set(their)
        elif name in ("parameters", "filtered", "one name"):
            assert ours == their
        elif name == "patched":
            for one, other in zip(ours, their, strict=True):
                same(one, other)
        else:
            np.testing.assert_allclose(np.asarray(ours), np.asarray(their), atol=1e-5, err_msg=name)


def test_exploratory_analysis_demo(tmp_path):
    """Logit differences, direct logit attribution by layer and head, attention,
    patching by head.
    """
    model = drawn(CONFIGS["norm"])
    theirs = hooked(model, tmp_path / "model")
    found = {}
    for mine, array in ((model, jnp.array), (theirs, torch.tensor)):
        tokens = array(BATCH)
        answer_tokens = array([[1, 2], [5, 0]])
        said = found.setdefault(mine is model, {})
        original_logits, cache = mine.run_with_cache(tokens)
        said["logits"] = original_logits
        answer_residual_directions = mine.tokens_to_residual_directions(answer_tokens)
        logit_diff_directions = answer_residual_directions[:, 0] - answer_residual_directions[:, 1]
        said["directions"] = logit_diff_directions
        final_residual_stream = cache["resid_post", -1]
        final_token_residual_stream = final_residual_stream[:, -1, :]
        scaled = cache.apply_ln_to_stack(final_token_residual_stream, layer=-1, pos_slice=-1)
        said["average"] = (scaled * logit_diff_directions).sum(-1)

        def residual_stack_to_logit_diff(residual_stack, cache):
            scaled = cache.apply_ln_to_stack(residual_stack, layer=-1, pos_slice=-1)
            return (scaled * logit_diff_directions[None]).sum(-1).mean(-1)  # noqa: B023

        accumulated_residual, labels = cache.accumulated_resid(
            layer=-1, incl_mid=True, pos_slice=-1, return_labels=True
        )
        said["lens"] = residual_stack_to_logit_diff(accumulated_residual, cache)
        said["lens labels"] = labels
        per_layer_residual, labels = cache.decompose_resid(
            layer=-1, pos_slice=-1, return_labels=True
        )
        said["layers"] = residual_stack_to_logit_diff(per_layer_residual, cache)
        said["layer labels"] = labels
        per_head_residual, labels = cache.stack_head_results(
            layer=-1, pos_slice=-1, return_labels=True
        )
        said["heads"] = residual_stack_to_logit_diff(per_head_residual, cache)
        said["head labels"] = labels
        said["map"] = cache["attn", 1][0, 1]
        said["stacked"] = cache.stack_activation("z")
        # patching each head's output from the other prompt
        _, corrupted_cache = mine.run_with_cache(array(BATCH[::-1]))

        def patch_head_vector(value, hook, head_index, clean_cache):
            value[:, :, head_index, :] = clean_cache[hook.name][:, :, head_index, :]
            return value

        patched = [
            mine.run_with_hooks(
                tokens,
                fwd_hooks=[
                    (
                        get_act_name("z", layer, "attn"),
                        partial(patch_head_vector, head_index=head, clean_cache=corrupted_cache),
                    )
                ],
                return_type="logits",
            )
            for layer in range(mine.cfg.n_layers)
            for head in range(mine.cfg.n_heads)
        ]
        said["patched"] = array(np.stack([np.asarray(x) for x in patched]))
    for name, ours in found[True].items():
        their = found[False][name]
        if name.endswith("labels"):
            assert ours == their
        else:
            same(ours, their)
