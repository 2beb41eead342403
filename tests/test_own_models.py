"""A whole model of somebody's own: trained, stored, edited, hooked and measured as ours are.

What it computes is checked by plain NumPy (`by_numpy`), what reads transformers alone refuses it.
"""

import json
from typing import ClassVar, Literal

import gru
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gru import Gru

import mnemoscope as ms
from mnemoscope.core.errors import UserError
from mnemoscope.exchange.lens import write_transformer_lens
from mnemoscope.explorer.explorer_run import ExplorerRun, describe_run
from mnemoscope.explorer.pack import pack_run
from mnemoscope.models import forward
from mnemoscope.models.rewrites.choose import REWRITES, choose_rewrite
from mnemoscope.probes.ablation import list_cases
from mnemoscope.probes.truncation import truncated
from mnemoscope.probes.walk import walk
from mnemoscope.report.profile_table import _passes
from mnemoscope.training.compilation import programs
from mnemoscope.training.loss import loss_and_gradient
from mnemoscope.training.metric import metric
from mnemoscope.training.metrics import metrics_of
from mnemoscope.training.profile import Profile
from mnemoscope.training.step import trained_shapes

PROMPT = [2, 0, 1, 1]


@metric
def memory(task, model, world):
    """How large the hidden units are after one token and after two."""
    cache = model.run_with_trace(jnp.array([0, 1]))[1]
    return jnp.abs(cache["gru.hook_hidden"]).mean(axis=-1)


SPEC = ms.Spec(task=ms.Cycle(n_symbols=4, length=4), model=Gru(), steps=4, batch=4, metrics=memory)


@pytest.fixture(scope="module")
def run():
    return ms.fit(SPEC, 3)


@pytest.fixture(scope="module")
def model(run):
    return run.model(1)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def by_numpy(params, tokens, embed=None):
    """Hidden units and logits after every token; `embed` puts other embeddings in their place."""
    p = {name: np.asarray(value, np.float64) for name, value in params.items()}
    x = p["embed.W_E"][np.array(tokens)] if embed is None else embed
    h = np.zeros(x.shape[1])
    hidden = []
    for row in x:
        to_z, to_r, to_c = (row @ p["gru.W"][i] + p["gru.b"][i] for i in range(3))
        z = sigmoid(to_z + h @ p["gru.U_z"])
        r = sigmoid(to_r + h @ p["gru.U_r"])
        h = (1 - z) * h + z * np.tanh(to_c + (r * h) @ p["gru.U_c"])
        hidden.append(h)
    return np.array(hidden), np.array(hidden) @ p["unembed.W_U"]


# ---- trained, stored and found again


def test_it_trains_and_is_found_again(run, store):
    assert run.snapshots["gru.W"].shape == (3, 2, 3, 5, 5)
    assert run.finished.all()
    moved = run.snapshots["gru.U_c"][:, 1] - run.snapshots["gru.U_c"][:, 0]
    assert (np.abs(moved).max(axis=(1, 2)) > 0).all()
    store.save(run, 1.0, "a machine")
    again = store.load(store.rows()[0])
    assert again.spec == run.spec
    np.testing.assert_array_equal(again.metrics["memory"], run.metrics["memory"])
    np.testing.assert_array_equal(again.model(2)(PROMPT), run.model(2)(PROMPT))


def test_a_seed_trains_the_same_alone(run):
    alone = ms.fit(SPEC, [1])
    np.testing.assert_array_equal(alone.losses[0], run.losses[1])
    for name, value in alone.snapshots.items():
        np.testing.assert_array_equal(value[0], run.snapshots[name][1])


def test_its_metrics_are_read(run):
    for row, seed in enumerate(run.seeds):
        for snapshot in (0, 1):
            params = {name: x[row, snapshot] for name, x in run.snapshots.items()}
            size = np.abs(by_numpy(params, [0, 1])[0]).mean(axis=-1)
            np.testing.assert_allclose(run.metrics["memory"][seed, snapshot], size, rtol=1e-4)


def test_metrics_of_ours_read_what_it_says():
    """Accuracy and loss by role need no heads; what is read off two heads is left out."""
    task = ms.Bigrams(length=4)
    spec = ms.Spec(task=task, model=Gru(), metrics="bigrams", steps=1, batch=1)
    params = Gru().draw_parameters(task.d_vocab, task.n_ctx, key=jax.random.key(0))
    observe = metrics_of(spec)
    found = jax.eval_shape(lambda p: observe(ms.bind(Gru(), p), ()), params)
    assert set(found) == {"accuracy", "global loss", "first loss", "context loss"}
    with pytest.raises(UserError, match=r"reader of noise has no kind='gru'"):
        metrics_of(spec.model_copy(update={"metrics": "noise"}))


def test_its_loss_and_gradient_are_those_of_numpy(model):
    """The slope along one direction, from the loss written out in float64."""
    rng = np.random.default_rng(0)
    tokens, targets = rng.integers(0, 4, (2, 3, 4))
    weights = rng.uniform(0.5, 1, (3, 4))
    params = {name: np.asarray(x, np.float64) for name, x in model.params.items()}
    direction = {name: rng.normal(size=x.shape) for name, x in params.items()}

    def loss(nudge):
        nudged = {name: x + nudge * direction[name] for name, x in params.items()}
        logits = np.array([by_numpy(nudged, row)[1] for row in tokens])
        log_probs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        each = np.take_along_axis(log_probs, targets[..., None], axis=-1)[..., 0]
        return -(each * weights).sum() / weights.sum()

    batch = ms.Example(jnp.array(tokens), jnp.array(targets), jnp.array(weights, float))
    by_training = jax.jit(lambda p: loss_and_gradient(SPEC.task, Gru(), p, {}, batch))
    found, gradient = by_training(model.params)
    assert float(found) == pytest.approx(loss(0), rel=1e-5)
    slope = sum((np.asarray(gradient[name]) * direction[name]).sum() for name in params)
    assert float(slope) == pytest.approx((loss(1e-5) - loss(-1e-5)) / 2e-5, rel=1e-4)


def test_frozen_parameters_stay():
    spec = SPEC.model_copy(update={"model": Gru(frozen=("gru.U_*",))})
    assert set(trained_shapes(SPEC)) - set(trained_shapes(spec)) == {
        "gru.U_z",
        "gru.U_r",
        "gru.U_c",
    }
    with pytest.raises(UserError, match=r"unknown parameter in frozen 'gru.W_z'.*did you mean"):
        Gru(frozen=("gru.W_z",))
    with pytest.raises(UserError, match="unknown trained parameter in unfreeze_at"):
        SPEC.model_copy(update={"unfreeze_at": (("*.W_K", 2),)})


# ---- run, edited and hooked


def test_it_computes_what_numpy_does(model):
    hidden, logits = by_numpy(model.params, PROMPT)
    found, cache = model.run_with_cache(PROMPT)
    np.testing.assert_allclose(found, logits, atol=1e-5)
    np.testing.assert_allclose(cache["gru.hook_hidden"], hidden, atol=1e-5)
    assert list(cache) == list(Gru().sites())
    assert cache["gru.hook_gates"].shape == (4, 3, 5)


def test_an_edit_changes_what_it_should(model):
    other = np.linspace(-1, 1, 5)
    embed = np.asarray(model.params["embed.W_E"], np.float64)[PROMPT]
    embed[1] = other
    second = np.arange(4)[:, None] == 1
    edit = ms.replace_site("hook_embed", other[None], second)
    changed = model(PROMPT, edit)
    np.testing.assert_allclose(changed, by_numpy(model.params, PROMPT, embed)[1], atol=1e-5)
    np.testing.assert_array_equal(changed[0], model(PROMPT)[0])

    def hook(value, hook):
        assert hook.name == "hook_embed"
        value[1] = other

    hooked = model.run_with_hooks(PROMPT, fwd_hooks=[("hook_embed", hook)])
    np.testing.assert_allclose(hooked, changed, atol=1e-6)
    at_the_end = model(PROMPT, ms.replace_site("gru.hook_hidden", other[None], second))
    np.testing.assert_allclose(at_the_end[1], other @ model.params["unembed.W_U"], atol=1e-5)
    np.testing.assert_array_equal(at_the_end[2], model(PROMPT)[2])


def test_a_closed_gate_keeps_nothing_of_a_token(model):
    """z = sigmoid(-inf) = 0: the hidden units stay as they were."""
    first = np.zeros((4, 3, 1), bool)
    first[2, 0] = True
    _, cache = model.run_with_cache(
        PROMPT, ms.replace_site("gru.hook_gates", -1e9 * np.ones((1, 1, 1)), first)
    )
    hidden = cache["gru.hook_hidden"]
    np.testing.assert_array_equal(hidden[2], hidden[1])
    assert np.abs(hidden[3] - hidden[2]).max() > 1e-3


def test_prompts_stacks_and_what_comes_next(run, model):
    assert (model.d_vocab, model.n_ctx, model.d_vocab_out) == (4, None, 4)
    with pytest.raises(UserError, match=r"tokens are 0 to 3, got \[4\]"):
        model([4])
    stack = ms.Stack(run.models())
    np.testing.assert_allclose(stack([PROMPT])[1, 0], model(PROMPT), atol=1e-6)
    assert stack[1].config == model.config
    with pytest.raises(UserError, match="these are the weights of several models"):
        run.models()(PROMPT)
    longer = model.generate([0], 2)
    likeliest = int(by_numpy(model.params, [0])[1][-1].argmax())
    assert longer[1] == likeliest
    assert model.loss_fn(model(PROMPT), PROMPT).shape == ()
    assert repr(model) == "<gru: d_hidden 5>"
    assert "gru.U_r" in model._repr_html_()


def test_weights_may_be_truncated(model):
    cut = truncated(model, "gru.U_*", 1)
    assert np.linalg.matrix_rank(np.asarray(cut.params["gru.U_z"]), tol=1e-5) == 1


# ---- what reads transformers alone


def refused_by(model, run, folder):
    """By what refuses it, what it is asked there."""
    cache = model.run_with_cache(PROMPT)[1]
    carried = ExplorerRun("id", "name", "about", run, (0,))
    return {
        r"the walk has no kind='gru' \(allowed: 'transformer'\)": lambda: walk(
            model, PROMPT, tuple("abcd")
        ),
        r"the explorer cannot show run id, whose model has kind='gru'": lambda: pack_run(carried),
        r"the explorer has no kind='gru'": lambda: describe_run(run, "name"),
        r"TransformerLens has no kind='gru'": lambda: write_transformer_lens(model, folder),
        r"the model 'gru' has no 'n_layers'; it has: .*d_hidden": lambda: list_cases(model.config),
        r"'gru' has no 'n_layers'": lambda: model.W_Q,
        r"'gru' has no 'positions'": lambda: model.W_pos,
        r"the model 'gru' has no attention heads": lambda: ms.knock_out_head(model.config, 0, 0),
        r"cfg has no kind='gru'": lambda: model.cfg,
        r"a part that is called has no kind='gru'": lambda: model.embed([0]),
        r"'gru' has no 'n_layers'.": lambda: cache.accumulated_resid(),
        r"unknown site .*pattern.*; allowed: hook_embed": lambda: cache["pattern", 0],
        r"no 'ssm_layers' here|no model here": lambda: cache.ssm_layers,
    }


def test_what_reads_transformers_refuses_it_in_one_line(model, run, tmp_path):
    for message, ask in refused_by(model, run, tmp_path / "folder").items():
        with pytest.raises(UserError, match=message):
            ask()
    assert not (tmp_path / "folder").exists()
    assert not hasattr(model, "W_Q")


def test_no_rewrite_takes_it_and_the_profile_says_why():
    assert choose_rewrite(Gru(), SPEC.task) is None
    lines = _passes(Profile(SPEC, 1, {}, {}, {}))
    assert lines[0] == "Forward pass: plain."
    assert lines[1:] == [
        f"Not {each.name}: kind='gru' (allowed: 'transformer')." for each in REWRITES
    ]


def test_a_task_that_is_asked_early_needs_layers():
    spec = ms.Spec(task=ms.Hops(n=3, k=2), model=Gru(), steps=1, batch=1)
    with pytest.raises(UserError, match=r"asked after earlier layers has no kind='gru'"):
        programs(spec, 1)


class Wide(ms.ModelConfig):
    """A transformer whose embeddings start ten times as large."""

    kind: Literal["wide-start"] = "wide-start"

    def draw_parameters(self, d_vocab, n_ctx, d_vocab_out=None, *, key):
        params = super().draw_parameters(d_vocab, n_ctx, d_vocab_out, key=key)
        return params | {"embed.W_E": 10 * params["embed.W_E"]}


class WideAsOurs(Wide):
    """The same, said to be computed as a transformer is, which is true."""

    kind: Literal["wide-as-ours"] = "wide-as-ours"
    computed_as: ClassVar[str] = "transformer"
    sizes: ClassVar[frozenset[str]] = ms.ModelConfig.sizes | {"times"}
    times: float = 10.0


class Nameless(ms.ModelConfig):
    """Has no kind of its own."""


def test_what_extends_the_transformer_is_foreign_unless_it_says_otherwise():
    task = ms.Permutation()
    assert choose_rewrite(ms.ModelConfig(), task).name == "pair tables"
    assert choose_rewrite(Wide(), task) is None
    assert choose_rewrite(WideAsOurs(times=5.0), task).name == "pair tables"
    assert "Nameless, which extends it without" in REWRITES[1].why_not(Nameless(), task)
    spec = ms.Spec(task=ms.Cycle(), model=Wide(d_model=4), steps=1, batch=1)
    assert json.loads(spec.canonical_json())["model"]["kind"] == "wide-start"
    assert ms.Spec.model_validate_json(spec.canonical_json()) == spec
    key = jax.random.key(0)
    usual = ms.ModelConfig(d_model=4).draw_parameters(3, 3, key=key)
    drawn = spec.model.draw_parameters(3, 3, key=key)
    np.testing.assert_allclose(drawn["embed.W_E"], 10 * usual["embed.W_E"])
    assert isinstance(ms.bind(spec.model, drawn), ms.Transformer)
    with pytest.raises(UserError, match=r"the walk has no kind='wide-start'"):
        walk(ms.bind(spec.model, drawn), [0], tuple("abc"))


# ---- identity


def test_its_json_has_kind_and_code_and_ours_has_neither():
    written = json.loads(SPEC.canonical_json())["model"]
    assert written == {"kind": "gru", "code": Gru.code(), "d_hidden": 5, "frozen": []}
    assert ms.Spec.model_validate_json(SPEC.canonical_json()) == SPEC
    ours = json.loads(ms.Spec(task=ms.Cycle()).canonical_json())["model"]
    assert not {"kind", "code"} & set(ours)
    assert ms.Spec(task=ms.Cycle(), model={"d_model": 8}).model == ms.ModelConfig(d_model=8)
    named = ms.Spec(task=ms.Cycle(), model={"kind": "transformer", "d_model": 8})
    assert named.digest() == ms.Spec(task=ms.Cycle(), model={"d_model": 8}).digest()


def test_an_edited_helper_is_another_program(monkeypatch):
    digest, key = SPEC.digest(), SPEC.compile_key()

    def forgets(params, h, given):
        return jnp.tanh(given[2])

    monkeypatch.setattr(gru, "next_hidden", forgets)
    assert SPEC.digest() != digest
    assert SPEC.compile_key() != key
    monkeypatch.undo()
    assert SPEC.digest() == digest


class Bigger(Gru):
    """Has its parent's kind."""

    d_hidden: int = 6


def test_a_model_without_a_kind_of_its_own_is_refused():
    with pytest.raises(UserError, match="Bigger is a class of its own"):
        ms.Spec(task=ms.Cycle(), model=Bigger())
    with pytest.raises(UserError, match=r"unknown kind of model 'grue'.*did you mean 'gru'"):
        ms.Spec(task=ms.Cycle(), model={"kind": "grue"})


# ---- what a pass may do


class Careless(ms.Model):
    """A model of one table that does what its field says."""

    kind: Literal["careless"] = "careless"
    fault: str = ""

    def parameter_shapes(self, d_vocab, n_ctx, d_vocab_out=None):
        return {"W_E": (d_vocab, d_vocab if d_vocab_out is None else d_vocab_out), "b": (n_ctx,)}

    def sites(self):
        return {"hook_embed": "pos vocab", "hook_out": "pos vocab"}

    def forward(self, params, tokens, site):
        x = site("hook_embed", params["W_E"][tokens])
        if self.fault == "name":
            site("hook_outs", x)
        if self.fault == "rank":
            site("hook_out", x[0])
        if self.fault == "logits":
            return x[:-1]
        return x


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (
            "name",
            r"unknown site in the pass of 'careless' 'hook_outs' \(did you mean 'hook_out'\?\)",
        ),
        ("rank", r"the site 'hook_out' of 'careless' got shape \(3,\); allowed: the axes"),
        ("logits", r"returned logits of shape \(1, 3\) for 2 tokens; allowed: \(2, answers\)"),
    ],
)
def test_a_pass_is_held_to_its_sites_and_its_shape(fault, message):
    params = {"W_E": jnp.eye(3), "b": jnp.zeros(2)}
    with pytest.raises(UserError, match=message):
        forward(Careless(fault=fault), params, jnp.array([0, 1]))


def test_an_edit_that_the_pass_never_comes_to_is_refused():
    params = {"W_E": jnp.eye(3), "b": jnp.zeros(2)}
    edit = ms.replace_site("hook_out", np.zeros((1, 1)))
    with pytest.raises(UserError, match="never came to its site 'hook_out', so an edit there"):
        forward(Careless(), params, jnp.array([0, 1]), [edit])


def test_sizes_are_read_off_shapes():
    shapes = Careless().parameter_shapes(7, 11, 5)
    assert Careless().read_sizes(shapes) == (7, 11, 5)
    with pytest.raises(UserError, match="generate needs a model that reads from left to right"):
        ms.bind(Careless(), {"W_E": jnp.eye(3), "b": jnp.zeros(4)}).generate([0])


class Deaf(Careless):
    """Reads no token."""

    kind: Literal["deaf"] = "deaf"

    def parameter_shapes(self, d_vocab, n_ctx, d_vocab_out=None):
        return {"b": (4,)}


def test_a_model_that_does_not_say_how_many_tokens_it_reads():
    with pytest.raises(UserError, match="do not say how many tokens it reads; allowed: a shape"):
        ms.bind(Deaf(), {"b": jnp.zeros(4)})([0])


def test_parameters_are_drawn_by_their_names_and_shapes():
    shapes = {"a.W_E": (200, 50), "a.W": (3, 25, 300), "a.w": (4,), "a.b": (4,), "c": (2,)}
    drawn = ms.draw_by_shape(shapes, key=jax.random.key(0))
    assert {name: x.shape for name, x in drawn.items()} == shapes
    # the mean square of N(0, 1) is 1 and that of U(-s, s) is s^2 / 3, with s = 1 / sqrt(25) here;
    # of 10,000 and 22,500 draws, within 5 standard errors
    assert float(jnp.square(drawn["a.W_E"]).mean()) == pytest.approx(1, abs=5 * (2 / 10_000) ** 0.5)
    assert float(jnp.square(drawn["a.W"]).mean()) == pytest.approx(1 / 75, rel=0.04)
    assert float(jnp.abs(drawn["a.W"]).max()) <= 0.2
    assert (drawn["a.w"] == 1).all()
    assert not drawn["a.b"].any()
    assert not drawn["c"].any()


class Doubled(Gru):
    """Says two logits for every answer, which would train without a word."""

    kind: Literal["doubled-gru"] = "doubled-gru"

    def forward(self, params, tokens, site):
        logits = super().forward(params, tokens, site)
        return jnp.concatenate([logits, logits], axis=1)


def test_logits_of_a_wrong_width_are_refused_before_anything_is_compiled():
    task = ms.Cycle()
    with pytest.raises(UserError, match=r"'doubled-gru' returned 6 logits .*; allowed: 3, one for"):
        ms.fit(ms.Spec(task=task, model=Doubled(), steps=1, batch=2), 1)
