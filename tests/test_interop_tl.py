"""A second opinion from TransformerLens: an exported model computes there what it computes here, site by site, and comes back."""

import json
import warnings

import jax
import numpy as np
import pytest

torch = pytest.importorskip(
    "torch", reason="torch is not installed (the extra 'interop'): no second opinion on exports"
)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    lens = pytest.importorskip(
        "transformer_lens",
        reason="transformer-lens is not installed (the extra 'interop'): no second opinion on exports",
    )
from safetensors.torch import load_file, save_file  # noqa: E402

from mnemoscope.exchange import read_transformer_lens, write_transformer_lens  # noqa: E402
from mnemoscope.models import ModelConfig, Transformer, parameter_shapes  # noqa: E402

# it says that version 4 will take it away, which is why the extra asks for less than 4
pytestmark = [
    pytest.mark.interop,
    pytest.mark.filterwarnings("ignore:HookedTransformer is deprecated:DeprecationWarning"),
]
VOCAB, CTX, TOKENS = 7, 6, [3, 0, 6, 6, 2]
CONFIGS = {
    "plain": ModelConfig(d_model=8, n_heads=1, d_mlp=16),
    "two heads, two layers": ModelConfig(d_model=8, n_heads=2, n_layers=2, d_mlp=16),
    "norm": ModelConfig(d_model=8, n_heads=2, n_layers=2, d_mlp=16, norm="pre"),
    "attention only": ModelConfig(d_model=8, n_heads=2, d_mlp=0),
    "attention only, norm": ModelConfig(d_model=8, n_heads=1, n_layers=2, d_mlp=0, norm="pre"),
    "no biases": ModelConfig(d_model=8, n_heads=2, d_mlp=16, norm="pre", bias=False),
    "no bias at the read-out": ModelConfig(d_model=8, n_heads=2, d_mlp=16, unembed_bias=False),
    "tied": ModelConfig(d_model=8, n_heads=2, d_mlp=16, tied=True),
    "wide heads, both ways": ModelConfig(d_model=8, n_heads=2, d_head=5, d_mlp=16, causal=False),
}


def drawn(config, n_out=VOCAB):
    """A model whose every number matters: norms and biases too are drawn, so that values stay of the order of one."""
    rng = np.random.default_rng(0)
    shapes = parameter_shapes(config, VOCAB, CTX, n_out)
    return Transformer(
        config, {name: rng.normal(size=shape).astype("f4") * 0.3 for name, shape in shapes.items()}
    )


def hooked(folder):
    """The exported folder as TransformerLens reads it, by the recipe of `mnemoscope.exchange.lens`."""
    config = lens.HookedTransformerConfig.from_dict(
        json.loads((folder / "config.json").read_text())
    )
    model = lens.HookedTransformer(config)
    said = model.load_state_dict(load_file(folder / "model.safetensors"), strict=False)
    assert said.unexpected_keys == []
    assert all(name.endswith((".attn.mask", ".attn.IGNORE")) for name in said.missing_keys)
    return model


def differences(model, theirs):
    """The largest difference at the logits and at every site that both have."""
    logits, cache = model.run_with_cache(TOKENS)
    with torch.no_grad():
        answers, their_cache = theirs.run_with_cache(torch.tensor([TOKENS]))
    found = {"logits": abs(np.asarray(logits) - answers[0].numpy()).max()}
    for name in cache:
        if name in their_cache:
            ours, other = np.asarray(cache[name]), their_cache[name][0].numpy()
            assert ours.shape == other.shape, name
            assert (np.isfinite(ours) == np.isfinite(other)).all(), (
                name
            )  # scores that may not be seen are -inf in both
            found[name] = abs(
                np.where(np.isfinite(ours), ours, 0) - np.where(np.isfinite(other), other, 0)
            ).max()
    return found


@pytest.mark.parametrize("kind", CONFIGS)
def test_every_shared_site_agrees(kind, tmp_path):
    model = drawn(CONFIGS[kind])
    write_transformer_lens(model, tmp_path / "model")
    found = differences(model, hooked(tmp_path / "model"))
    # TransformerLens has no stream between attention and a feed-forward part that is not there
    apart = {name for name in model.config.sites() if name not in found}
    assert apart == {
        f"blocks.{i}.hook_resid_mid" for i in range(model.config.n_layers) if not model.config.d_mlp
    }
    assert max(found.values()) < 1e-5, found


@pytest.mark.parametrize("kind", CONFIGS)
def test_large_weights_differ_by_rounding_alone(kind, tmp_path):
    """In single precision large weights are further apart than 1e-5; in double precision they are not."""
    model = drawn(CONFIGS[kind])
    write_transformer_lens(model, tmp_path / "model")
    theirs = hooked(tmp_path / "model").to(torch.float64)
    with torch.no_grad():
        for value in theirs.parameters():
            value *= 2
    with jax.enable_x64(True):
        large = Transformer(
            model.config, {name: np.float64(2) * x for name, x in model.params.items()}
        )
        assert max(differences(large, theirs).values()) < 1e-9


def test_answers_that_are_no_tokens(tmp_path):
    model = drawn(CONFIGS["plain"], n_out=3)
    write_transformer_lens(model, tmp_path / "model")
    assert differences(model, hooked(tmp_path / "model"))["logits"] < 1e-5


@pytest.mark.parametrize(
    "pair", [("attn.W_Q", "attn.W_K"), ("attn.b_Q", "attn.b_K"), ("ln1.w", "ln2.w")]
)
def test_the_comparison_can_fail(pair, tmp_path):
    model = drawn(CONFIGS["norm"])
    a, b = (f"blocks.0.{name}" for name in pair)
    swapped = Transformer(model.config, model.params | {a: model.params[b], b: model.params[a]})
    write_transformer_lens(swapped, tmp_path / "model")
    found = differences(model, hooked(tmp_path / "model"))
    assert found["logits"] > 1e-4
    assert found["blocks.0.hook_resid_pre"] < 1e-5


@pytest.mark.parametrize("fold", [False, True])
@pytest.mark.parametrize("norm", ["LN", "LNPre", None])
def test_a_hooked_transformer_comes_here(norm, fold, tmp_path):
    config = lens.HookedTransformerConfig(
        n_layers=2, d_model=8, n_ctx=CTX, d_head=4, n_heads=2, d_vocab=VOCAB, act_fn="relu", normalization_type=norm, seed=0,
        device="cpu",
    )  # fmt: skip
    theirs = lens.HookedTransformer(config)
    with torch.no_grad():
        for value in theirs.parameters():
            value += torch.randn_like(value) * 0.2
    if fold:
        theirs.process_weights_(center_writing_weights=norm is not None)
    # the recipe of `mnemoscope.exchange.lens`
    state = {name: value.contiguous() for name, value in theirs.state_dict().items()}
    save_file(state, tmp_path / "model.safetensors")
    with open(tmp_path / "config.json", "w") as file:
        json.dump(theirs.cfg.to_dict(), file, default=str)
    model = read_transformer_lens(tmp_path)
    theirs.set_use_attn_result(True)
    found = differences(model, theirs)
    assert len(found) > 20
    assert max(found.values()) < 1e-5, found
    assert isinstance(jax.numpy.asarray(model.params["embed.W_E"]), jax.Array)
