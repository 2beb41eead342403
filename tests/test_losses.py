"""Losses that a Spec names: what they are by arithmetic and by Optax, the same through every
rewrite, and what one reads off the trace.
"""

import dataclasses
import json
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from asking import Asking

import mnemoscope as ms
from mnemoscope.core.errors import UserError
from mnemoscope.models import ModelConfig, parameter_shapes
from mnemoscope.models.rewrites.choose import REWRITES, choose_rewrite
from mnemoscope.report.profile_table import _passes
from mnemoscope.training import compilation
from mnemoscope.training.loop import fit_many
from mnemoscope.training.loss import batch_loss, loss_and_gradient
from mnemoscope.training.profile import Profile
from mnemoscope.training.step import numbers_of

D_VOCAB, LENGTH, BATCH = 6, 9, 4


class Hinge(ms.Loss):
    """How far the right token's logit is from being `margin` above the others' mean.

    An outsider's: it knows of logits with the vocabulary last, and of nothing else.
    """

    kind: Literal["hinge"] = "hinge"
    margin: float = 1.0

    def at_positions(self, logits, targets):
        right = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
        others = (logits.sum(axis=-1) - right) / (logits.shape[-1] - 1)
        return jnp.maximum(self.margin - (right - others), 0)


class Focused(ms.CrossEntropy):
    """Cross-entropy, and a price on how widely the first layer's heads look."""

    kind: Literal["focused"] = "focused"
    price: float = 0.5

    def from_trace(self, trace):
        pattern = trace["blocks.0.attn.hook_pattern"]
        # what is hidden has a weight of 0, and 0 log 0 is 0
        logs = jnp.log(jnp.where(pattern > 0, pattern, 1.0))
        return self.price * -(pattern * logs).sum(axis=-1).mean(axis=0)


SPEC = ms.Spec(
    task=ms.Cycle(),
    model=ModelConfig(d_model=4, n_heads=1, d_mlp=0),
    steps=3,
    batch=2,
    loss=ms.LabelSmoothing(share=0.2),
)


# ---- by arithmetic, and by Optax


def test_label_smoothing_is_what_it_says():
    """With logits (ln 6, ln 2, 0, 0): p = (6, 2, 1, 1) / 10."""
    logits = jnp.log(jnp.array([6.0, 2.0, 1.0, 1.0]))
    found = ms.LabelSmoothing(share=0.4).at_positions(logits, jnp.array(1))
    # the target has .6 + .4 / 4, each other token .4 / 4
    expected = -(0.7 * np.log(0.2) + 0.1 * np.log(0.6) + 0.1 * np.log(0.1) + 0.1 * np.log(0.1))
    assert float(found) == pytest.approx(expected, rel=1e-6)
    assert float(ms.CrossEntropy().at_positions(logits, jnp.array(1))) == pytest.approx(np.log(5))


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_label_smoothing_is_optaxs(share):
    rng = np.random.default_rng(0)
    logits = jnp.asarray(rng.normal(size=(2, 5, 7)), float)
    targets = jnp.asarray(rng.integers(0, 7, (2, 5)))
    labels = optax.losses.smooth_labels(jax.nn.one_hot(targets, 7), share)
    theirs = optax.losses.softmax_cross_entropy(logits, labels)
    loss = ms.LabelSmoothing(share=share)
    np.testing.assert_allclose(loss.at_positions(logits, targets), theirs, rtol=1e-5)
    in_front = loss.with_vocab_axis(jnp.moveaxis(logits, -1, 0), targets, 0)
    np.testing.assert_allclose(in_front, theirs, rtol=1e-5)


# ---- through every pass

SMOOTHING = ms.LabelSmoothing(share=0.3)
HINGE = Hinge(margin=2.0)


class Mixed(ms.Loss):
    """So much of one loss and so much of another: with (1, 0) and (0, 1) one program has both."""

    kind: Literal["mixed"] = "mixed"
    smoothing: float = 1.0
    hinge: float = 1.0

    def at_positions(self, logits, targets):
        return self.with_vocab_axis(logits, targets, -1)

    def with_vocab_axis(self, logits, targets, vocab_axis):
        smooth = SMOOTHING.with_vocab_axis(logits, targets, vocab_axis)
        return self.smoothing * smooth + self.hinge * HINGE.with_vocab_axis(
            logits, targets, vocab_axis
        )


PLAIN = {"d_model": 8, "n_heads": 1, "d_mlp": 5}
# of each rewrite a model and a task that it covers
COVERED = {
    "token counts": (PLAIN | {"positions": "none"}, Asking(read=(LENGTH - 1,), asks_by=0)),
    "pair tables": (PLAIN | {"n_heads": 2}, Asking(read=(2, 5, 8))),
    "score tables": (PLAIN, Asking()),
    "token rows": (PLAIN | {"n_heads": 2, "norm": "pre"}, Asking()),
}


@pytest.mark.parametrize("rewrite", REWRITES, ids=lambda each: each.name)
def test_every_rewrite_has_the_loss_and_gradient_of_the_plain_pass(rewrite):
    fields, task = COVERED[rewrite.name]
    config = ModelConfig(**fields)
    assert rewrite.why_not(config, task) is None
    if rewrite.tokens_at_once:
        rewrite = dataclasses.replace(rewrite, tokens_at_once=2 * LENGTH)
    rng = np.random.default_rng(1)
    with jax.enable_x64(True):
        params = {
            name: jnp.asarray(rng.normal(size=size))
            for name, size in parameter_shapes(config, D_VOCAB, LENGTH).items()
        }
        tokens, targets = jnp.asarray(rng.integers(0, D_VOCAB, (2, BATCH, LENGTH)))
        if task.asks_by is not None:
            tokens = tokens.at[:, -1].set(task.asks_by)
        weights = np.zeros((BATCH, LENGTH))
        weights[:, task.loss_positions] = rng.uniform(0.5, 1, (BATCH, len(task.loss_positions)))
        batch = ms.Example(tokens, targets, jnp.asarray(weights))

        @jax.jit
        def routes(p, numbers):
            loss = Mixed().with_numbers(numbers)

            def of_pass(each):
                return jax.value_and_grad(lambda p: batch_loss(task, config, p, batch, each, loss))(
                    p
                )

            return of_pass(rewrite), of_pass(None)

        found = []
        for share in (1.0, 0.0):
            fast, plain = routes(params, {"smoothing": share, "hinge": 1 - share})
            assert float(fast[0]) == pytest.approx(float(plain[0]), rel=1e-9)
            for name, gradient in plain[1].items():
                np.testing.assert_allclose(fast[1][name], gradient, rtol=1e-7, atol=1e-12)
            found.append(float(fast[0]))
        assert found[0] != pytest.approx(found[1], rel=1e-3), "two losses"


# ---- read off the trace


def test_a_loss_reads_the_trace():
    """The price of the entropies of the patterns, by NumPy, added at every position."""
    config = ModelConfig(d_model=8, n_heads=2, d_mlp=0)
    rng = np.random.default_rng(2)
    params = {
        name: jnp.asarray(rng.normal(size=size), float)
        for name, size in parameter_shapes(config, D_VOCAB, LENGTH).items()
    }
    tokens, targets = jnp.asarray(rng.integers(0, D_VOCAB, (2, BATCH, LENGTH)))
    weights = jnp.asarray(rng.uniform(0.5, 1, (BATCH, LENGTH)), float)
    task = Asking(read=(1, 4))
    batch = ms.Example(tokens, targets, weights)
    both = [
        jax.jit(lambda p, loss=loss: loss_and_gradient(task, config, p, {}, batch, loss=loss))(
            params
        )
        for loss in (Focused(price=0.25), ms.CrossEntropy())
    ]
    pattern = ms.bind(config, params).run_with_cache(tokens)[1]["pattern", 0]
    pattern = np.asarray(pattern, np.float64)
    entropy = -(pattern * np.log(np.where(pattern > 0, pattern, 1))).sum(axis=-1).mean(axis=1)
    read = np.asarray(weights)[:, task.read]
    added = 0.25 * (entropy[:, task.read] * read).sum() / read.sum()
    assert float(both[0][0]) == pytest.approx(float(both[1][0]) + added, rel=1e-4)
    # a price on where heads look moves queries and leaves the unembedding to the answers
    gradients = [gradient for _, gradient in both]
    np.testing.assert_allclose(
        gradients[0]["unembed.W_U"], gradients[1]["unembed.W_U"], rtol=1e-3, atol=1e-6
    )
    queries = [np.asarray(each["blocks.0.attn.W_Q"]) for each in gradients]
    assert np.abs(queries[0] - queries[1]).max() > 1e-3


def test_a_loss_that_reads_the_trace_takes_the_plain_pass_and_the_profile_says_why():
    spec = SPEC.model_copy(update={"loss": Focused()})
    assert choose_rewrite(spec.model, spec.task).name == "pair tables"
    assert choose_rewrite(spec.model, spec.task, reads_trace=True) is None
    lines = _passes(Profile(spec, 1, {}, {}, {}))
    assert lines[0] == "Forward pass: plain."
    assert "Not pair tables: the loss reads the trace." in lines
    assert _passes(Profile(SPEC, 1, {}, {}, {}))[0] == "Forward pass: pair tables."


class Faulty(ms.CrossEntropy):
    """Returns or asks for what there is not."""

    kind: Literal["faulty"] = "faulty"
    fault: str = ""

    def at_positions(self, logits, targets):
        found = super().at_positions(logits, targets)
        return found.mean() if self.fault == "mean" else found

    def with_vocab_axis(self, logits, targets, vocab_axis):
        return self.at_positions(logits, targets)

    def from_trace(self, trace):
        if self.fault == "site":
            return trace["blocks.0.attn.hook_patern"].mean()
        return jnp.zeros(2 if self.fault == "trace" else ())


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("mean", r"the loss 'faulty' returned shape \(\) for targets of shape \(9,\); allowed"),
        ("site", r"unknown site 'blocks.0.attn.hook_patern' \(did you mean 'blocks.0.attn.hook_p"),
        (
            "trace",
            r"the loss 'faulty' read shape \(2,\) off the trace of 9 tokens; allowed: one number",
        ),
    ],
)
def test_what_a_loss_returns_and_asks_for_is_checked(fault, message):
    config = ModelConfig(d_model=4, n_heads=1, d_mlp=0)
    params = {name: jnp.zeros(x) for name, x in parameter_shapes(config, D_VOCAB, LENGTH).items()}
    zeros = jnp.zeros((1, LENGTH), int)
    batch = ms.Example(zeros, zeros, jnp.ones((1, LENGTH)))
    with pytest.raises(UserError, match=message):
        jax.eval_shape(
            lambda p: batch_loss(Asking(), config, p, batch, None, Faulty(fault=fault)), params
        )


# ---- identity, and one program for many numbers


def test_a_loss_stands_in_a_spec_once_it_says_more_than_the_default():
    usual = ms.Spec(task=ms.Cycle())
    assert "loss" not in json.loads(usual.canonical_json())
    assert ms.Spec(task=ms.Cycle(), loss=ms.CrossEntropy()).digest() == usual.digest()
    written = json.loads(SPEC.canonical_json())["loss"]
    assert written == {"kind": "label-smoothing", "share": 0.2}
    assert ms.Spec.model_validate_json(SPEC.canonical_json()) == SPEC
    own = SPEC.model_copy(update={"loss": Hinge()})
    assert json.loads(own.canonical_json())["loss"]["code"] == Hinge.code()
    assert ms.Spec.model_validate_json(own.canonical_json()) == own
    with pytest.raises(UserError, match=r"unknown kind of loss 'hing'.*did you mean 'hinge'"):
        SPEC.model_copy(update={"loss": {"kind": "hing"}})


def test_specs_that_differ_in_a_losss_number_share_a_program(monkeypatch):
    monkeypatch.setattr(compilation, "_programs", {})
    compiled = compilation._programs
    other = SPEC.model_copy(update={"loss": ms.LabelSmoothing(share=0.6)})
    assert SPEC.compile_key() == other.compile_key()
    assert SPEC.compile_key() != SPEC.model_copy(update={"loss": Hinge()}).compile_key()
    assert float(numbers_of(other).loss["share"]) == pytest.approx(0.6)
    alone = [ms.fit(spec, 2) for spec in (SPEC, other)]
    assert len(compiled) == 1
    together = fit_many([SPEC, other], 2)
    assert len(compiled) == 2, "four seeds beside each other are another shape"
    for mine, theirs in zip(alone, together, strict=True):
        np.testing.assert_allclose(mine.losses, theirs.losses, rtol=1e-6)
    # each with its own share: of the first loss, the weights being those that were drawn
    usual = ms.fit(SPEC.model_copy(update={"loss": ms.CrossEntropy()}), 2)
    slopes = [
        (run.losses[:, 0] - usual.losses[:, 0]) / share
        for run, share in zip(alone, (0.2, 0.6), strict=True)
    ]
    np.testing.assert_allclose(*slopes, rtol=1e-3)
