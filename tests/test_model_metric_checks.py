"""`ms.testing` on models and metrics: each check fails on the defect that it is for."""

import itertools
import re
from typing import Literal

import jax.numpy as jnp
import numpy as np
import pytest
from pydantic import field_serializer

import mnemoscope as ms
from mnemoscope.training.metrics import HopMetrics

COUNT = itertools.count()  # what Python has while tracing: another number each time


class Table(ms.Model):
    """Logits of each token by a table, plus the mean of those before."""

    kind: Literal["mean-table"] = "mean-table"
    scale: float = 1.0

    @property
    def is_causal(self):
        return True

    def parameter_shapes(self, d_vocab, n_ctx, d_vocab_out=None):
        d = d_vocab if d_vocab_out is None else d_vocab_out
        return {"W_E": (d_vocab, 3), "W_pos": (n_ctx, 3), "W_U": (3, d)}

    def sites(self):
        return {"hook_embed": "pos d_model", "hook_mean": "pos d_model"}

    def forward(self, params, tokens, site):
        x = params["W_E"][tokens] + params["W_pos"][: len(tokens)]
        x = site("hook_embed", x)
        weights = jnp.tril(jnp.ones((len(tokens), len(tokens))))
        x = site("hook_mean", x + weights @ x / weights.sum(axis=1, keepdims=True))
        return self.scale * x @ params["W_U"]


def forward_with(change):
    """A model that computes something else."""
    return {"forward": lambda self, params, tokens, site: change(self, params, tokens, site)}


def ignoring(self, params, tokens, site):
    x = site("hook_embed", params["W_E"][tokens] + params["W_pos"][: len(tokens)])
    site("hook_mean", x)
    return x @ params["W_U"]


def looking_ahead(self, params, tokens, site):
    x = site("hook_embed", params["W_E"][tokens] + params["W_pos"][: len(tokens)])
    return site("hook_mean", x + x.mean(axis=0, keepdims=True)) @ params["W_U"]


def branching(self, params, tokens, site):
    return Table.forward(self, params, tokens, site) if tokens[0] > 0 else None


def misnamed(self, params, tokens, site):
    return site("hook_nothing", Table.forward(self, params, tokens, site))


def fixed_length(self, params, tokens, site):
    site("hook_mean", site("hook_embed", params["W_pos"]))
    return params["W_pos"] @ params["W_U"]


def counting(self, params, tokens, site):
    return Table.forward(self, params, tokens, site) + next(COUNT)


def rounding(self, params, tokens, site):
    # where a site is edited it computes something else
    extra = 1e-3 if "hook_mean" in site.edited else 0.0
    return Table.forward(self, params, tokens, site) + extra


def kinked(self, params, tokens, site):
    # finite, and the square root of 0 has no slope
    return Table.forward(self, params, tokens, site) + jnp.sqrt(0 * params["W_U"].sum())


def draw_zeros(self, d_vocab, n_ctx, d_vocab_out=None, *, key):
    shapes = self.parameter_shapes(d_vocab, n_ctx, d_vocab_out)
    return {name: jnp.zeros(shape) for name, shape in shapes.items()}


def draw_too_few(self, d_vocab, n_ctx, d_vocab_out=None, *, key):
    return dict(
        list(ms.Model.draw_parameters(self, d_vocab, n_ctx, d_vocab_out, key=key).items())[:2]
    )


def draw_infinite(self, d_vocab, n_ctx, d_vocab_out=None, *, key):
    params = ms.Model.draw_parameters(self, d_vocab, n_ctx, d_vocab_out, key=key)
    return params | {"W_U": params["W_U"] / 0}


# what is wrong, what is checked, and what is said of it
MODELS = {
    "too-few": (
        {"draw_parameters": draw_too_few},
        "parameters are drawn finite, in the shapes that it names",
        "parameter_shapes and draw_parameters differ in W_U",
    ),
    "infinite": (
        {"draw_parameters": draw_infinite},
        "parameters are drawn finite, in the shapes that it names",
        "W_U is not finite",
    ),
    "zeros": (
        {"draw_parameters": draw_zeros},
        "one key draws the same parameters, other keys others",
        "another key draws the same ones",
    ),
    "sizes": (
        {"read_sizes": lambda self, shapes: ms.Model.read_sizes(self, shapes)._replace(d_vocab=9)},
        "sizes can be read off the shapes",
        r"d_vocab, n_ctx, d_vocab_out = \(5, 4, 3\), got \(9, 4, 3\)",
    ),
    "branching": (
        forward_with(branching),
        "forward goes through jit and vmap",
        "model 'branching': forward decides in Python",
    ),
    "fixed-length": (
        forward_with(fixed_length),
        "forward goes through jit and vmap",
        "returned logits of shape",
    ),
    "misnamed": (
        forward_with(misnamed),
        "forward goes through jit and vmap",
        "unknown site in the pass of 'misnamed' 'hook_nothing'",
    ),
    "counting": (
        forward_with(counting),
        "a sequence does not depend on its neighbors",
        "its logits are others alone",
    ),
    "looking-ahead": (
        forward_with(looking_ahead),
        "is_causal: no position sees a later one",
        "logits before position 1 change with the token there",
    ),
    "never-there": (
        {"sites": lambda self: Table.sites(self) | {"hook_more": "pos"}},
        "every site is reached, with the axes that it says",
        "never came to its site 'hook_more'",
    ),
    "other-axes": (
        {"sites": lambda self: {"hook_embed": "pos d_model", "hook_mean": "d_model pos"}},
        "every site is reached, with the axes that it says",
        "the axis 'd_model' has 4 entries at 'hook_mean', and 3 at 'hook_embed'",
    ),
    "ignoring": (
        forward_with(ignoring),
        "an edit at every site changes the logits",
        "noise at 'hook_mean' changes no logit; the pass must go on with what `site` returns",
    ),
    "rounding": (
        forward_with(rounding),
        "an edit that changes nothing changes no bit",
        "the logits have other bits",
    ),
    "kinked": (forward_with(kinked), "the gradient is finite", "that of W_U is not finite"),
}


def planted(parent, name, members):
    """An honest thing with one defect, as a kind of its own."""
    kind = {"__annotations__": {"kind": Literal[name]}, "kind": name, "__module__": __name__}
    return type(parent)(name, (parent,), kind | members)()


def look(checks, name):
    (check,) = [each for each in checks if str(each) == name]
    row, _ = check.look()
    return row


@pytest.mark.parametrize("name", MODELS)
def test_each_check_of_a_model_finds_the_defect_that_it_is_for(name):
    members, check, message = MODELS[name]
    checks = ms.testing.list_model_checks(planted(Table, name, members), train=False)
    row = look(checks, check)
    assert row.outcome == "failed", row
    assert re.search(message, row.why), row.why


class Heir(Table):
    """Has its parent's kind."""


class Rounded(Table):
    """A field is another one after JSON."""

    kind: Literal["rounded-table"] = "rounded-table"
    size: float = 0.123

    @field_serializer("size")
    def _round(self, size):
        return round(size, 1)


def test_a_models_kind_and_fields_are_looked_at():
    row = look(
        ms.testing.list_model_checks(Heir()), "it is a registered kind whose code can be read"
    )
    assert "Heir is a class of its own" in row.why
    name = "JSON gives the same model and digest again"
    assert "it comes back as Rounded(" in look(ms.testing.list_model_checks(Rounded()), name).why


def test_an_honest_model_passes():
    result = ms.testing.check_model(Table(), train=False)
    assert (
        result.summary == "13 checks of model 'mean-table': 12 passed, 0 failed, 1 does not apply"
    )
    assert result.rows[-1].why == "no training was asked for"


@pytest.mark.long
def test_a_models_training_is_looked_at():
    result = ms.testing.check_model(Table())
    assert result.summary == "13 checks of model 'mean-table': 13 passed, 0 failed, 0 do not apply"
    # a table scaled by nothing learns nothing
    row = look(ms.testing.list_model_checks(Table(scale=0.0)), "a short training lowers the loss")
    assert row.outcome == "failed"
    assert row.why == "the loss was 1.099 at first and 1.099 after 60 steps"


@pytest.mark.long
@pytest.mark.parametrize(
    "model",
    [
        ms.ModelConfig(d_model=8, n_heads=2, n_layers=2, d_mlp=8, norm="pre"),
        ms.ModelConfig(d_model=8, n_heads=2, d_mlp=8, positions="rotary", gated_mlp=True),
        ms.ModelConfig(d_model=8, n_heads=2, d_mlp=8, norm="post", attention="relu"),
    ],
    ids=str,
)
def test_our_models_pass(model):
    assert ms.testing.check_model(model).ok


# ---- metrics


def top_of(model):
    return model(jnp.zeros(2, int)).max()


@ms.metric
def top(task, model, world):
    """The largest logit after two tokens 0."""
    return {"logit": top_of(model), "all": model(jnp.zeros(2, int))}


@ms.metric
def nothing_at_all(task, model, world):
    return {}


@ms.metric
def speaks(task, model, world):
    return "high"


@ms.metric
def branches(task, model, world):
    return 1.0 if top_of(model) > 0 else 0.0


@ms.metric
def divides(task, model, world):
    return top_of(model) / 0.0


@ms.metric
def counts(task, model, world):
    return top_of(model) + next(COUNT)


@ms.metric
def reads_length(task, model, world):
    return top_of(model) * task.length


METRICS = (
    (nothing_at_all, "it goes through jit and vmap", "it reads nothing; allowed: an array"),
    (speaks, "it goes through jit and vmap", "'speaks' returned 'high'; allowed: an array"),
    (branches, "it goes through jit and vmap", "metric 'branches' decides in Python"),
    (divides, "what it reads is finite", "divides is not finite: "),
    (counts, "it reads the same twice", "counts is another the second time"),
    (
        reads_length,
        "what it cannot read it refuses in one line",
        r"task 'hops', .*: it raised AttributeError: .*; allowed: to read it, or a UserError",
    ),
)


@pytest.mark.parametrize(("metric", "check", "message"), METRICS, ids=lambda x: str(x)[:9])
def test_each_check_of_a_metric_finds_the_defect_that_it_is_for(metric, check, message):
    row = look(ms.testing.list_metric_checks(metric, train=False), check)
    assert row.outcome == "failed", row
    assert re.search(message, row.why), row.why


def test_a_metric_that_sees_its_neighbors(monkeypatch):
    checks = ms.testing.list_metric_checks(top, train=False)
    (check,) = [each for each in checks if str(each) == "a seed does not depend on its neighbors"]
    readings = check.run.args[0]
    # what nothing inside of `jit` can do: the second seed of three is told by the first
    first = dict(readings.found)
    monkeypatch.setitem(vars(readings), "found", {n: np.roll(x, 1, 0) for n, x in first.items()})
    assert check.look()[0].why == "top/all of a seed changes with the seeds beside it"


def test_an_honest_metric_passes():
    result = ms.testing.check_metric(top, ms.Cycle(), Table(), train=False)
    assert result.summary == "8 checks of metric 'top': 7 passed, 0 failed, 1 does not apply"
    ours = ms.testing.check_metric(
        HopMetrics(), ms.Hops(n=2, k=2), train=False, raise_on_failure=False
    )
    assert "of 6 others it reads" in str(ours)


@pytest.mark.long
def test_a_metric_is_read_in_a_training():
    result = ms.testing.check_metric(top, ms.Cycle(), Table())
    assert result.rows[-1].why == "top/all, top/logit of 2 seeds at 2 steps"
