"""The model object against TransformerLens, by values, on the same weights:
caches, decompositions, circuits and hooks.
"""

import warnings

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
from lens_models import BATCH, CONFIGS, FOLDED, both_caches, drawn, folded, hooked, same

import mnemoscope as ms
from mnemoscope.models import Transformer

pytestmark = [
    pytest.mark.interop,
    pytest.mark.filterwarnings("ignore:HookedTransformer is deprecated:DeprecationWarning"),
]


@pytest.fixture(params=CONFIGS)
def pair(request, tmp_path):
    model = drawn(CONFIGS[request.param])
    return model, hooked(model, tmp_path / "model")


def test_a_batch_and_its_sites(pair):
    model, theirs = pair
    cache, their_cache = both_caches(model, theirs)
    compared = [name for name in model.config.sites() if name in set(their_cache)]
    assert len(compared) > 20
    for name in compared:
        where = np.isfinite(cache[name]) if "attn_scores" in name else True
        same(
            jnp.where(where, cache[name], 0), their_cache[name].masked_fill(~torch.tensor(where), 0)
        )
    theirs.set_use_split_qkv_input(True)
    cache, their_cache = both_caches(model, theirs)
    for letter in "qkv":
        same(cache[f"{letter}_input", 1], their_cache[f"{letter}_input", 1])


def keys_of(config):
    keys = [
        "embed",
        "pos_embed",
        "hook_embed",
        ("resid_pre", 0),
        ("resid_post", -1),
        ("q", 0),
        ("key", 1),
        ("v", 0, "attn"),
        ("k", 0, "a"),
        ("z", -1),
        ("pattern", 1, "attn"),
        ("attn", 0),
        ("result", 0, "attn"),
        ("attn_out", 1),
        "k1",
        "pattern0",
    ]
    if config.d_mlp:
        keys += [
            "post0",
            ("pre", 0),
            ("post", 0, "mlp"),
            ("mlp_post", 1),
            ("mlp_out", 0),
            ("resid_mid", 0),
        ]
        if config.norm == "pre":
            keys += ["scale1ln2", ("normalized", 0, "ln2")]
    if config.norm == "pre":
        keys += ["scale", ("scale", 0, "ln1"), "scale0ln1", "ln_final.hook_scale"]
    return keys


def test_every_form_of_a_key(pair):
    model, theirs = pair
    cache, their_cache = both_caches(model, theirs)
    for key in keys_of(model.config):
        same(cache[key], their_cache[key])


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"layer": 1},
        {"layer": 0, "mlp_input": True},
        {"layer": 1, "mlp_input": True, "apply_ln": True},
        {"pos_slice": -1},
        {"pos_slice": (1, 3), "apply_ln": True},
        {"pos_slice": [0, 2]},
        {"layer": -1, "apply_ln": True, "pos_slice": -1},
    ],
    ids=str,
)
def test_decompositions(pair, arguments):
    model, theirs = pair
    if not model.config.d_mlp:
        arguments = {name: x for name, x in arguments.items() if name != "mlp_input"}
    cache, their_cache = both_caches(model, theirs)
    calls = [("decompose_resid", {"mode": mode}) for mode in ("all", "attn")]
    calls += [("decompose_resid", {"incl_embeds": False, "mode": "mlp"})]
    calls += [("accumulated_resid", {})]
    if model.config.d_mlp:
        calls += [("accumulated_resid", {"incl_mid": True})]
    # TransformerLens would add the biases of feed-forward parts that are not there
    expansions = (True, False) if model.config.d_mlp else (False,)
    calls += [("get_full_resid_decomposition", {"expand_neurons": x}) for x in expansions]
    # before layer 0 TransformerLens takes the stream after the last layer for the remainder
    if not arguments.get("mlp_input") and arguments.get("layer") != 0:
        calls += [("stack_head_results", {"incl_remainder": x}) for x in (True, False)]
        if model.config.d_mlp and arguments.get("layer") != 0:
            calls += [("stack_neuron_results", {"layer": -1})]
    for name, more in calls:
        if more.get("mode") == "mlp" and (not model.config.d_mlp or arguments.get("layer") == 0):
            continue
        given = {**more, **arguments}
        ours, labels = getattr(cache, name)(**given, return_labels=True)
        their, their_labels = getattr(their_cache, name)(**given, return_labels=True)
        assert [str(x) for x in labels] == [str(x) for x in their_labels], name
        same(ours, their)


@pytest.mark.parametrize("pos_slice", [None, -1])
def test_logit_attributions(pair, pos_slice):
    model, theirs = pair
    cache, their_cache = both_caches(model, theirs)
    stack = cache.decompose_resid(pos_slice=pos_slice)
    their_stack = their_cache.decompose_resid(pos_slice=pos_slice)
    cases = [(3, None), (3, 0)]
    if pos_slice is None:
        cases += [(BATCH, None), (BATCH, BATCH[::-1])]
    else:
        cases += [([3, 4], None), ([3, 4], [0, 1])]
    for pair_of_tokens in cases:
        ours = cache.logit_attrs(stack, *pair_of_tokens, pos_slice=pos_slice)
        tensors = [torch.tensor(x) if isinstance(x, list) else x for x in pair_of_tokens]
        same(ours, their_cache.logit_attrs(their_stack, *tensors, pos_slice=pos_slice))


def test_attributions_with_trained_norms_are_those_after_folding(tmp_path):
    """TransformerLens leaves a norm's weights out unless they were folded into the next matrix,
    which it does when it loads a model; ours need no folding, and by hand the two differ by the
    weights alone.
    """
    model = drawn(CONFIGS["norm"], fresh_norms=False)
    theirs = hooked(model, tmp_path / "model")
    cache, unfolded = both_caches(model, theirs)
    ours = cache.logit_attrs(cache.decompose_resid(), BATCH)
    raw = unfolded.logit_attrs(unfolded.decompose_resid(), torch.tensor(BATCH)).numpy()
    assert abs(np.asarray(ours) - raw).max() > 1e-3
    stack = cache.apply_ln_to_stack(cache.decompose_resid())
    by_hand = unfolded.apply_ln_to_stack(unfolded.decompose_resid()) * theirs.ln_final.w
    same(stack, by_hand)
    theirs.process_weights_(center_writing_weights=False, center_unembed=False)
    _, folded = theirs.run_with_cache(torch.tensor(BATCH))
    same(ours, folded.logit_attrs(folded.decompose_resid(), torch.tensor(BATCH)))
    # the logit lens applies the whole norm in both
    _, unfolded = hooked(model, tmp_path / "again").run_with_cache(torch.tensor(BATCH))
    same(cache.accumulated_resid(apply_ln=True), unfolded.accumulated_resid(apply_ln=True))


@pytest.fixture(params=FOLDED)
def folded_pair(request, tmp_path):
    model = drawn(FOLDED[request.param], fresh_norms=False)
    return model, folded(model, tmp_path / "model")


def test_sites_of_other_layers(folded_pair):
    model, theirs = folded_pair
    cache, their_cache = both_caches(model, theirs)
    # a gate's other factor, and what is turned, have sites of one name too
    compared = [name for name in model.config.sites() if name in set(their_cache)]
    recorded = set(cache.trace)
    assert recorded <= set(compared)
    for name in compared:
        where = np.isfinite(cache[name]) if "attn_scores" in name else True
        same(
            jnp.where(where, cache[name], 0), their_cache[name].masked_fill(~torch.tensor(where), 0)
        )


def test_decompositions_of_other_layers(folded_pair):
    model, theirs = folded_pair
    cache, their_cache = both_caches(model, theirs)
    for name, given in (
        ("decompose_resid", {}),
        ("decompose_resid", {"layer": 1, "mode": "attn"}),
        ("decompose_resid", {"apply_ln": True}),
        ("accumulated_resid", {}),
        ("stack_head_results", {"incl_remainder": True}),
        ("stack_neuron_results", {"layer": -1}),
    ):
        ours, labels = getattr(cache, name)(**given, return_labels=True)
        their, their_labels = getattr(their_cache, name)(**given, return_labels=True)
        assert [str(x) for x in labels] == [str(x) for x in their_labels], name
        if given.get("apply_ln"):
            # the weights of the last norm, which theirs has in W_U
            ours = ours / model.ln_final.w.reshape((1,) * (ours.ndim - 1) + (-1,))
        same(ours, their)
    stack = cache.stack_head_results()
    their_stack = their_cache.stack_head_results()
    same(
        cache.logit_attrs(stack, BATCH, BATCH[::-1]),
        their_cache.logit_attrs(their_stack, torch.tensor(BATCH), torch.tensor(BATCH[::-1])),
    )


def test_hooks_and_losses_of_other_layers(folded_pair):
    model, theirs = folded_pair
    tokens = torch.tensor(BATCH)
    same(model(BATCH, return_type="loss"), theirs(tokens, return_type="loss"))
    for kind, hooks in HOOKS.items():
        if kind == "each head's queries":
            theirs.set_use_split_qkv_input(True)
        ours = model.run_with_hooks(BATCH, fwd_hooks=hooks)
        same(ours, theirs.run_with_hooks(tokens, fwd_hooks=hooks))
        assert not np.allclose(ours, model(BATCH), atol=1e-4)
    # rotary positions leave no table
    names = [name for name in ("W_E", "b_O", "W_O", "b_out") if name in NAMES + MLP_NAMES]
    for name in names:
        same(getattr(model, name), getattr(theirs, name))


NAMES = ("W_E", "W_pos", "W_U", "b_U", "W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O")
MLP_NAMES = ("W_in", "W_out", "b_in", "b_out")


def test_weights(pair):
    model, theirs = pair
    for name in NAMES + (MLP_NAMES if model.config.d_mlp else ()):
        same(getattr(model, name), getattr(theirs, name))
    same(model.blocks[1].attn.W_K, theirs.blocks[1].attn.W_K)
    same(model.embed.W_E, theirs.embed.W_E)
    same(model.unembed.W_U, theirs.unembed.W_U)
    for include in (True, False) if model.config.d_mlp else (False,):
        ours = model.accumulated_bias(1, mlp_input=True, include_mlp_biases=include)
        same(ours, theirs.accumulated_bias(1, mlp_input=True, include_mlp_biases=include))
    same(
        model.tokens_to_residual_directions(BATCH),
        theirs.tokens_to_residual_directions(torch.tensor(BATCH)),
    )
    assert model.all_head_labels() == theirs.all_head_labels()


def test_cfg(pair):
    model, theirs = pair
    names = [
        "n_layers",
        "n_heads",
        "d_model",
        "d_head",
        "n_ctx",
        "d_vocab",
        "d_vocab_out",
        "attn_only",
        "normalization_type",
        "eps",
        "positional_embedding_type",
        "attention_dir",
        "use_attn_scale",
        "attn_scale",
        "gated_mlp",
        "parallel_attn_mlp",
    ]
    if model.config.d_mlp:
        names += ["d_mlp", "act_fn"]
    for name in names:
        wanted = getattr(theirs.cfg, name)
        if isinstance(wanted, float):
            wanted = pytest.approx(wanted)
        assert getattr(model.cfg, name) == wanted, name
    # our own fields stand beside them
    assert model.cfg.norm == model.config.norm


@pytest.mark.parametrize("name", ["OV", "QK"])
def test_circuits(pair, name):
    model, theirs = pair
    ours = getattr(model, name)
    their = getattr(theirs, name)
    assert ours.shape == tuple(their.shape)
    assert (ours.ldim, ours.mdim, ours.rdim, ours.ndim) == (
        their.ldim,
        their.mdim,
        their.rdim,
        their.ndim,
    )
    same(ours.AB, their.AB)
    same(ours.T.AB, their.T.AB)
    same(ours.norm(), their.norm())
    same(ours.S, their.S)
    u, s, v = ours.svd()
    same((u * s[..., None, :]) @ jnp.swapaxes(v, -1, -2), their.AB)
    same(jnp.abs(u[..., :3]), their.U.abs()[..., :3], 1e-3)
    same(jnp.abs(v[..., :3]), their.V.abs()[..., :3], 1e-3)
    same(ours.make_even().AB, their.make_even().AB)
    same(ours.get_corner(), their.get_corner())
    same(ours.eigenvalues.sum(axis=-1).real, their.eigenvalues.sum(dim=-1).real)
    same(jnp.abs(ours.eigenvalues).sum(axis=-1), their.eigenvalues.abs().sum(dim=-1), 1e-4)
    for index in ((0,), (0, 1), (slice(None), 1), (1, 0, 2), (1, 0, slice(1, 4), 3), (None, 0)):
        same(ours[index].AB, their[index].AB)
    through = model.W_E @ ours @ model.W_U
    their_through = theirs.W_E @ their @ theirs.W_U
    assert isinstance(through, ms.FactoredMatrix)
    same(through.AB, their_through.AB)
    same((ours @ model.OV).AB, (their @ theirs.OV).AB)
    same(ours @ model.W_E[0], their @ theirs.W_E[0])
    same(model.W_E[0] @ ours, theirs.W_E[0] @ their)
    same((2.0 * ours).AB, (2.0 * their).AB)


@pytest.mark.parametrize("mode", ["Q", "K", "V"])
def test_composition(pair, mode):
    model, theirs = pair
    same(model.all_composition_scores(mode), theirs.all_composition_scores(mode))


@pytest.mark.parametrize("return_type", ["loss", "logits", "both"])
def test_losses(pair, return_type):
    model, theirs = pair
    ours = model(BATCH, return_type=return_type)
    their = theirs(torch.tensor(BATCH), return_type=return_type)
    for one, other in zip(
        *((x,) if return_type != "both" else x for x in (ours, their)), strict=True
    ):
        same(one, other)
    same(
        model(BATCH, return_type="loss", loss_per_token=True),
        theirs(torch.tensor(BATCH), return_type="loss", loss_per_token=True),
    )
    assert model(BATCH, return_type=None) is None


def test_generation(pair):
    model, theirs = pair
    for tokens in BATCH:
        their = theirs.generate(
            torch.tensor([tokens[:3]]),
            max_new_tokens=4,
            do_sample=False,
            stop_at_eos=False,
            verbose=False,
            use_past_kv_cache=False,
        )
        np.testing.assert_array_equal(model.generate(tokens[:3], max_new_tokens=4), their[0])


# ---- the comparison can fail


@pytest.mark.parametrize("name", ["attn.W_Q", "attn.W_V", "attn.W_O", "mlp.W_out", "attn.b_O"])
def test_the_comparison_can_fail(name, tmp_path):
    model = drawn(CONFIGS["plain"])
    full = f"blocks.0.{name}"
    other = Transformer(model.config, model.params | {full: model.params[full][::-1] * 1.1})
    theirs = hooked(other, tmp_path / "model")
    with pytest.raises(AssertionError):
        both_caches(model, theirs)


def test_a_stack_is_every_seed_beside_theirs(tmp_path):
    models = [drawn(CONFIGS["norm"], seed=seed) for seed in range(2)]
    stack = ms.Stack(models)
    logits, cache = stack.run_with_cache(BATCH)
    attributions = cache.logit_attrs(cache.decompose_resid(), [3, 4], pos_slice=None)
    for row, model in enumerate(models):
        theirs = hooked(model, tmp_path / str(row))
        their_logits, their_cache = theirs.run_with_cache(torch.tensor(BATCH))
        same(logits[row], their_logits)
        same(cache["result", 1][row], _with_results(theirs)["result", 1])
        # a token for each row, at every position
        tokens = torch.tensor([[3] * 5, [4] * 5])
        same(attributions[row], their_cache.logit_attrs(their_cache.decompose_resid(), tokens))
        same(stack.all_composition_scores("K")[row], theirs.all_composition_scores("K"))
        same(stack.W_Q[row], theirs.W_Q)


def _with_results(theirs):
    theirs.set_use_attn_result(True)
    return theirs.run_with_cache(torch.tensor(BATCH))[1]
