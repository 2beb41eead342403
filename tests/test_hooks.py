"""Hooks, edits and batches: hooks are edits, a batch is its rows, and what is refused says why."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models_at_hand import BATCH, CONFIGS, CTX, drawn, on_paper
from numpy_pass import numpy_logits

import mnemoscope as ms
from mnemoscope.core.errors import UserError
from mnemoscope.models import ModelConfig, Transformer
from mnemoscope.models.hooked_model import as_edits

PLAIN = drawn(CONFIGS["plain"])
Z = "blocks.1.attn.hook_z"


def close(ours, theirs):
    assert np.shape(ours) == np.shape(theirs)
    np.testing.assert_allclose(ours, theirs, atol=1e-5, rtol=1e-4)


# ---- batches and prompts


@pytest.mark.parametrize("kind", ["llama", "parts"])
def test_a_batch_is_its_rows(kind):
    model = drawn(CONFIGS[kind])
    logits, cache = model.run_with_cache(BATCH)
    assert list(cache) == [name for name in model.config.sites() if name in cache.trace]
    for row in (0, 2):
        alone, its_cache = model.run_with_cache(BATCH[row])
        close(logits[row], alone)
        for name in its_cache:
            where = np.isfinite(its_cache[name])
            close(np.where(where, cache[name][row], 0), np.where(where, its_cache[name], 0))
    # however it is given
    for tokens in (np.array(BATCH), jnp.array(BATCH, jnp.uint8), tuple(map(tuple, BATCH))):
        np.testing.assert_array_equal(model(tokens), logits)


def test_large_models_compile_to_the_same(monkeypatch):
    edits = [ms.knock_out_head(PLAIN.config, 0, 1)]
    logits, cache = PLAIN.run_with_cache(BATCH, edits)
    monkeypatch.setattr("mnemoscope.models.batched_pass.LARGE", 1)
    compiled, its_cache = PLAIN.run_with_cache(BATCH, edits)
    close(compiled, logits)
    assert list(its_cache) == list(cache)
    close(its_cache["z", 1], cache["z", 1])
    close(PLAIN(BATCH, edits), logits)
    halved = PLAIN.run_with_hooks(BATCH, fwd_hooks=[(Z, lambda value, hook: value / 2)])
    assert not np.allclose(halved, PLAIN(BATCH))


def test_a_model_is_called_inside_of_jit_and_vmap():
    rows = jnp.array(BATCH)
    close(jax.jit(lambda model, tokens: model(tokens))(PLAIN, rows), PLAIN(BATCH))
    close(jax.vmap(lambda row: PLAIN(row))(rows), PLAIN(BATCH))
    with pytest.raises(UserError, match="a prompt is one row of 1 to 7"):
        jax.jit(lambda row: PLAIN(row))(jnp.zeros(8, int))


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        (
            [],
            r"a prompt is one row of 1 to 7 whole numbers, or a batch of such rows, "
            r"got float64 \(0,\)",
        ),
        ([[]], r"got float64 \(1, 0\)"),
        ([[1, 2], [3]], r"got rows of \[2, 1\] tokens"),
        ([[[1]]], r"got int64 \(1, 1, 1\)"),
        ([1.5], r"got float64 \(1,\)"),
        (1, r"got int64 \(\)"),
        (None, r"got object \(\)"),
        ("one two", "got the text 'one two', which a tokenizer has to make into numbers first"),
        (["one"], "got the text"),
        ([[0] * 8], r"got int64 \(1, 8\)"),
        ([[1, 5]], r"tokens are 0 to 4, got \[\[1, 5\]\]"),
        ([-1], "tokens are 0 to 4"),
    ],
)
def test_what_is_no_prompt_is_one_line(prompt, message):
    for run in (PLAIN, PLAIN.run_with_cache, PLAIN.run_with_hooks, PLAIN.generate):
        with pytest.raises(UserError, match=message) as error:
            run(prompt)
        assert "\n" not in str(error.value)


def test_one_row_alone_is_checked_as_before():
    np.testing.assert_array_equal(PLAIN.check([1, 2]), [1, 2])
    with pytest.raises(UserError, match=r"a prompt is one row of 1 to 7 whole numbers, got int64"):
        PLAIN.check(BATCH)


def test_the_axis_of_a_batch_of_one():
    logits, cache = PLAIN.run_with_cache(BATCH[:1], remove_batch_dim=True)
    alone, its_cache = PLAIN.run_with_cache(BATCH[0])
    assert logits.shape == (1, *alone.shape)
    assert not cache.has_batch_dim
    close(cache["resid_post", -1], its_cache["resid_post", -1])
    assert its_cache.remove_batch_dim() is its_cache
    _, cache = PLAIN.run_with_cache(BATCH)
    with pytest.raises(UserError, match="the batch has 3 rows; allowed: a batch of one"):
        cache.remove_batch_dim()
    assert "batch in front" in repr(cache)
    assert "batch pos d_model" in cache._repr_html_()


def test_inputs_of_each_head_are_copies_of_the_stream_unless_edited():
    model = drawn(CONFIGS["llama"])
    _, cache = model.run_with_cache(BATCH)
    for letter, heads in (("q", 4), ("k", 2), ("v", 2)):
        copies = cache[f"{letter}_input", 1]
        assert copies.shape == (3, 4, heads, 8)
        for head in range(heads):
            np.testing.assert_array_equal(copies[:, :, head], cache["resid_pre", 1])
    assert "blocks.1.hook_q_input" not in list(cache)
    assert "blocks.1.hook_q_input" in cache
    _, cache = model.run_with_cache(BATCH, names_filter=lambda name: "q_input" in name)
    assert list(cache) == ["blocks.0.hook_q_input", "blocks.1.hook_q_input"]
    edit = ms.replace_site("blocks.1.hook_q_input", jnp.ones((1, 1, 1)))
    _, cache = model.run_with_cache(BATCH, edit)
    np.testing.assert_array_equal(cache["q_input", 1], np.ones((3, 4, 4, 8)))


# ---- hooks


def zero_head(value, hook):
    value[..., 0, :] = 0.0


def zero_head_and_return(value, hook):
    value[..., 0, :] = 0.0
    return value


def without_head(value, hook):
    return value.at[..., 0, :].set(0.0)


def by_position(value, point):
    return jnp.asarray(value).at[..., 0, :].set(0.0)


@pytest.mark.parametrize("hook", [zero_head, zero_head_and_return, without_head, by_position])
@pytest.mark.parametrize("name", [Z, ("z", 1), ("z", -1, "attn"), "z1", lambda name: name == Z])
def test_a_hook_is_an_edit(hook, name):
    edits = [ms.knock_out_head(PLAIN.config, 1, 0)]
    close(PLAIN.run_with_hooks(BATCH, fwd_hooks=[(name, hook)]), PLAIN(BATCH, edits))
    close(PLAIN.run_with_hooks(BATCH[0], fwd_hooks=[(name, hook)]), PLAIN(BATCH[0], edits))


@pytest.mark.parametrize("site", list(PLAIN.config.sites()))
def test_a_hook_at_every_site_sees_it_and_changes_it(site):
    _, cache = PLAIN.run_with_cache(BATCH)
    seen = []

    def look(value, hook):
        seen.append((hook.name, np.array(value)))

    logits = PLAIN.run_with_hooks(BATCH, fwd_hooks=[(site, look)])
    np.testing.assert_array_equal(logits, PLAIN(BATCH))
    ((name, value),) = seen
    assert name == site
    np.testing.assert_allclose(value, cache[site], atol=1e-6)
    value = np.where(np.isfinite(value), value, 0) + np.linspace(0.5, 1.5, value.size).reshape(
        value.shape
    )
    hooked = PLAIN.run_with_hooks(BATCH, fwd_hooks=[(site, lambda _, hook: value)])
    close(hooked, PLAIN(BATCH, [ms.replace_site(site, value)]))
    assert not np.allclose(hooked, logits, atol=1e-4)


def test_hooks_come_in_order_and_after_edits():
    def add(amount, value, hook):
        return value + amount

    def double(value, hook):
        return value * 2

    site = "hook_embed"
    embedded = np.asarray(PLAIN.W_E)[np.array(BATCH)]
    edit = ms.add_to_site(site, jnp.full((1, 1), 3.0))
    for hooks, expected in (
        ([(site, partial(add, 1)), (site, double)], (embedded + 3 + 1) * 2),
        ([(site, double), (site, partial(add, 1))], (embedded + 3) * 2 + 1),
    ):
        found = PLAIN.run_with_hooks(BATCH, fwd_hooks=hooks, edits=edit)
        close(found, PLAIN(BATCH, [ms.replace_site(site, expected)]))


def test_a_filter_calls_at_every_site_that_it_names_in_order():
    seen = []

    def look(value, hook):
        seen.append((hook.layer(), value.shape))

    hooks = [(lambda name: name.endswith("hook_pattern"), look)]
    assert PLAIN.run_with_hooks(BATCH, return_type=None, fwd_hooks=hooks) is None
    assert seen == [(0, (3, 2, 4, 4)), (1, (3, 2, 4, 4))]
    seen.clear()
    PLAIN.run_with_hooks(BATCH[0], fwd_hooks=hooks)
    assert seen == [(0, (2, 4, 4)), (1, (2, 4, 4))]


def test_what_a_hook_raises_comes_out_and_nothing_is_called_after_it():
    called = []

    def fail(value, hook):
        called.append(hook.name)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        PLAIN.run_with_hooks(BATCH, fwd_hooks=[(lambda name: "hook_z" in name, fail)])
    assert called == ["blocks.0.attn.hook_z"]
    close(PLAIN.run_with_hooks(BATCH), PLAIN(BATCH))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"fwd_hooks": [("hook_zz", zero_head)]}, r"unknown site 'hook_zz'"),
        ({"fwd_hooks": [(("z", 2), zero_head)]}, r"unknown site "),
        ({"fwd_hooks": [(("z", 0, 1, 2), zero_head)]}, r"unknown site "),
        ({"fwd_hooks": [((), zero_head)]}, r"unknown site "),
        ({"fwd_hooks": [(3, zero_head)]}, r"unknown site '3'"),
        ({"fwd_hooks": [(lambda name: False, zero_head)]}, "unknown sites chosen by"),
        ({"fwd_hooks": [zero_head]}, "is no hook; allowed: pairs of a site's name"),
        ({"fwd_hooks": [("z0", 3)]}, "is no hook; allowed: pairs of a site's name"),
        (
            {"fwd_hooks": [("z0", lambda value, hook: value[0])]},
            r"returned float32 \(4, 2, 3\); allowed: numbers \(3, 4, 2, 3\), or None",
        ),
        (
            {"fwd_hooks": [("z0", lambda value, hook: "no")]},
            "a hook at 'blocks.0.attn.hook_z' returned",
        ),
        (
            {"fwd_hooks": [("embed", lambda value, hook: hook.layer())]},
            "'hook_embed' is in no layer",
        ),
        ({"bwd_hooks": []}, "no bwd_hooks; allowed: jax.grad"),
        (
            {"reset_hooks_end": False},
            "no keyword 'reset_hooks_end'; allowed: return_type, fwd_hooks",
        ),
        ({"return_type": "los"}, r"unknown return_type 'los' \(did you mean 'loss'\?\)"),
    ],
)
def test_what_is_no_hook_is_one_line(arguments, message):
    with pytest.raises(UserError, match=message) as error:
        PLAIN.run_with_hooks(BATCH, **arguments)
    assert "\n" not in str(error.value)


def test_hooks_are_refused_where_jax_traces():
    def run(model, tokens):
        return model.run_with_hooks(tokens, fwd_hooks=[(Z, zero_head)])

    for transformed in (jax.jit(run), jax.vmap(run, in_axes=(None, 0))):
        with pytest.raises(UserError, match="hooks are called outside of jit, vmap and grad"):
            transformed(PLAIN, jnp.array(BATCH))


def test_what_transformer_lens_takes_elsewhere_is_refused_by_name():
    with pytest.raises(UserError, match="no keyword 'prepend_bos'; allowed: return_type"):
        PLAIN(BATCH, prepend_bos=False)
    with pytest.raises(UserError, match="no keyword 'stop_at_layer'; allowed: edits, names_filter"):
        PLAIN.run_with_cache(BATCH, stop_at_layer=1)
    with pytest.raises(UserError, match="unknown site 'nope'"):
        PLAIN.run_with_cache(BATCH, names_filter=["nope"])


# ---- edits


def test_adding_on_paper():
    """One more in the first dimension before the hidden unit:
    1 more there, and .5 (-.5) from the unit.
    """
    site = "blocks.0.hook_resid_mid"
    model = on_paper()
    edit = ms.add_to_site(site, jnp.array([[1.0, 0.0]]), jnp.array([[False], [True]]))
    np.testing.assert_allclose(model([0, 1], [edit])[-1], [2.75 + 1.5, 0.75 - 0.5, 2.0 + 2.0])
    np.testing.assert_array_equal(model([0, 1], [edit])[0], model([0, 1])[0])
    grown = jax.grad(lambda a: model(jnp.array([0, 1]), [ms.add_to_site(site, a)])[-1, 2])(
        jnp.zeros((1, 2))
    )
    np.testing.assert_allclose(grown, [[2.0, 0.0]])


def test_adding_nothing_changes_no_bit_and_adding_is_replacing_by_the_sum():
    logits, cache = PLAIN.run_with_cache(BATCH)
    for site in ("hook_embed", Z, "blocks.0.attn.hook_result", "blocks.1.hook_k_input"):
        nothing = ms.add_to_site(site, jnp.zeros((1,) * (cache[site].ndim - 1)))
        np.testing.assert_array_equal(PLAIN(BATCH, [nothing]), logits, err_msg=site)
        some = np.linspace(-1, 1, cache[site].size).reshape(cache[site].shape)
        added = PLAIN(BATCH, [ms.add_to_site(site, some)])
        close(added, PLAIN(BATCH, [ms.replace_site(site, np.asarray(cache[site]) + some)]))


def test_patching_by_names():
    _, other = PLAIN.run_with_cache(BATCH[::-1])
    edits = ms.patch_sites(lambda name: name.endswith("hook_z"), other)
    assert [edit.site for edit in edits] == ["blocks.0.attn.hook_z", Z]
    one_by_one = [ms.patch_site(edit.site, other) for edit in edits]
    np.testing.assert_array_equal(PLAIN(BATCH, edits), PLAIN(BATCH, one_by_one))
    patched, cache = PLAIN.run_with_cache(BATCH, edits)
    np.testing.assert_array_equal(cache["z", 0], other["z", 0])
    assert not np.allclose(patched, PLAIN(BATCH))
    everything = ms.patch_sites(lambda name: name.endswith("resid_post"), other)
    close(PLAIN(BATCH, everything), PLAIN(BATCH[::-1]))
    with pytest.raises(UserError, match="no site was chosen to be patched; allowed: hook_embed"):
        ms.patch_sites(lambda name: False, other)


def test_edits_differ_from_row_to_row_or_are_the_same_in_all():
    _, cache = PLAIN.run_with_cache(BATCH)
    value = jnp.arange(3 * 4 * 2 * 3, dtype=float).reshape(3, 4, 2, 3) / 10
    mask = jnp.array([True, False, True]).reshape(3, 1, 1, 1)
    logits = PLAIN(BATCH, [ms.replace_site(Z, value, mask)])
    for row, tokens in enumerate(BATCH):
        alone = PLAIN(tokens, [ms.replace_site(Z, value[row], mask[row])])
        close(logits[row], alone)
    same = PLAIN(BATCH, [ms.replace_site(Z, value[:1]), ms.replace_site(Z, value[0])])
    close(same[2], PLAIN(BATCH[2], [ms.replace_site(Z, value[0])]))
    for wrong in (value[:2], value[None]):
        with pytest.raises(UserError, match=r"the mask|the value of an edit at .* allowed: \(4, 2"):
            PLAIN(BATCH, [ms.replace_site(Z, wrong)])
    assert cache.has_batch_dim


def test_what_is_no_edit_is_one_line():
    with pytest.raises(UserError, match="'z0' is no edit; allowed: what replace_site"):
        as_edits(["z0"])


def test_old_names_say_the_new_ones():
    for old, new in (("patch", "patch_site"), ("replace", "replace_site")):
        with pytest.raises(
            AttributeError, match=rf"no attribute '{old}' \(did you mean '{new}'\?\)"
        ):
            getattr(ms, old)


# ---- the next token


def test_the_loss_of_the_next_token():
    logits = np.asarray(PLAIN(BATCH), float)
    expected = np.zeros((3, 3))
    for row, at in np.ndindex(3, 3):
        here = logits[row, at]
        expected[row, at] = np.log(np.exp(here).sum()) - here[BATCH[row][at + 1]]
    close(PLAIN(BATCH, return_type="loss"), expected.mean())
    close(PLAIN(BATCH, return_type="loss", loss_per_token=True), expected)
    close(PLAIN(BATCH[1], return_type="loss"), expected[1].mean())
    both = PLAIN.run_with_hooks(BATCH, return_type="both")
    close(both[0], logits)
    close(both[1], expected.mean())
    loss, _ = PLAIN.run_with_cache(BATCH, return_type="loss")
    close(loss, expected.mean())
    with pytest.raises(UserError, match=r"logits of shape \(3, 5\); allowed: \(4, 5\)"):
        PLAIN.loss_fn(PLAIN(BATCH[0])[:3], BATCH[0])
    with pytest.raises(UserError, match="a prompt of one token has no next one"):
        PLAIN([1], return_type="loss")


@pytest.mark.parametrize("kind", ["plain", "llama"])
def test_going_on_is_taking_the_likeliest_token_again_and_again(kind):
    model = drawn(CONFIGS[kind])
    params = {name: np.asarray(x, float) for name, x in model.params.items()}
    expected = [tokens[:2] for tokens in BATCH]
    for _ in range(4):
        likeliest = [numpy_logits(model.config, params, row)[-1].argmax() for row in expected]
        expected = [[*row, int(token)] for row, token in zip(expected, likeliest, strict=True)]
    short = [tokens[:2] for tokens in BATCH]
    np.testing.assert_array_equal(model.generate(short, max_new_tokens=4), expected)
    if kind == "plain":
        np.testing.assert_array_equal(model.generate(short[1], max_new_tokens=4), expected[1])
    np.testing.assert_array_equal(model.generate(BATCH, 0), BATCH)


def test_draws_follow_the_temperature():
    """2,000 rows of one prompt: the first token drawn is as frequent as the model says,
    within four standard errors.
    """
    n = 2000
    key = jax.random.key(0)
    drawn_rows = PLAIN.generate([[1, 2]] * n, 1, temperature=2.0, key=key)
    probs = np.asarray(jax.nn.softmax(PLAIN([1, 2])[-1] / 2))
    shares = np.bincount(np.asarray(drawn_rows)[:, 2], minlength=5) / n
    assert (abs(shares - probs) < 4 * np.sqrt(probs * (1 - probs) / n)).all()
    np.testing.assert_array_equal(
        PLAIN.generate([1, 2], 5, temperature=1.0, key=key),
        PLAIN.generate([1, 2], 5, temperature=1.0, key=key),
    )
    cold = PLAIN.generate([1, 2], 5, temperature=1e-4, key=key)
    np.testing.assert_array_equal(cold, PLAIN.generate([1, 2], 5))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_new_tokens": CTX}, r"max_new_tokens=7 after a prompt of 4; allowed: 0 to 3"),
        ({"max_new_tokens": -1}, r"max_new_tokens=-1"),
        ({"temperature": -1.0}, r"temperature=-1\.0; allowed: 0 or more"),
        (
            {"max_new_tokens": 1, "temperature": 1.0},
            r"draws tokens from a key, got none; allowed: key=jax\.random\.key",
        ),
        ({"top_k": 3}, "no keyword 'top_k'; allowed: max_new_tokens, temperature, key"),
    ],
)
def test_what_cannot_be_generated_is_one_line(arguments, message):
    with pytest.raises(UserError, match=message):
        PLAIN.generate(BATCH, **({"max_new_tokens": 1} | arguments))


def test_models_that_are_no_language_models():
    both_ways = drawn(ModelConfig(d_model=4, n_heads=1, d_mlp=0, causal=False))
    with pytest.raises(UserError, match="generate needs a model that reads from left to right"):
        both_ways.generate([1], 1)
    params = PLAIN.params | {"unembed.W_U": PLAIN.W_U[:, :3], "unembed.b_U": PLAIN.b_U[:3]}
    few = Transformer(PLAIN.config, params)
    assert few.cfg.d_vocab_out == 3
    for ask in (lambda: few.generate([1], 1), lambda: few([1, 2], return_type="loss")):
        with pytest.raises(UserError, match="this model has 5 tokens and 3 answers"):
            ask()
