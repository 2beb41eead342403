"""The birth study: what it trains, what is watched while it trains, and any text will do.

Its measurements on planted evidence are in test_birth_order.py, test_birth_data.py,
test_birth_heads.py and test_birth_theory.py.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from planted import entry_of, evidence_of, planted, silent

from mnemoscope.core.errors import UserError
from mnemoscope.models import Transformer
from mnemoscope.studies.discover import find_study, on_corpus
from mnemoscope.studies.library.birth.conditions import (
    ALL,
    GLOBAL,
    LONG,
    NO_DECAY,
    NO_FIRST,
    NO_OUTPUT,
    ONE,
    ONLY_OUTPUT,
    build_conditions,
)
from mnemoscope.studies.library.birth.curves import EARLY, MEMORIES
from mnemoscope.studies.library.birth.order import SHOWN
from mnemoscope.studies.library.birth.sample import answers
from mnemoscope.studies.measurement import InconclusiveError
from mnemoscope.studies.scales import FRESH_SEED, SCALES
from mnemoscope.tasks import Bigrams, Permutation, read_corpus
from mnemoscope.training.loop import fit
from mnemoscope.training.metrics import metrics_of
from mnemoscope.training.spec import Spec

STUDY = find_study("birth")


def short(spec: Spec, d: int, length: int) -> Spec:
    """The same condition with narrower models and shorter sequences,
    evaluated before and after training.
    """
    model = spec.model.model_copy(update={"d_model": d, "d_mlp": d if spec.model.d_mlp else 0})
    task = spec.task.model_copy(update={"length": length})
    return spec.model_copy(update={"model": model, "task": task, "n_evals": 1})


def tiny(spec: Spec) -> Spec:
    """The same condition, small enough for a test."""
    small = {"d_model": 8, "d_mlp": 8 if spec.model.d_mlp else 0}
    update = {
        "model": spec.model.model_copy(update=small),
        "task": spec.task.model_copy(update={"length": 12}),
    }
    unfreeze_at = tuple((name, 4) for name, _ in spec.unfreeze_at)
    return spec.model_copy(
        update={
            **update,
            "steps": 10,
            "batch": 4,
            "n_evals": 5,
            "snapshots": 2,
            "unfreeze_at": unfreeze_at,
        }
    )


def watched(spec: Spec) -> dict[str, float]:
    """What the Spec's own watch reads in a silent model."""
    watch = metrics_of(spec)
    model = Transformer(spec.model, {name: jnp.asarray(x) for name, x in silent(spec).items()})
    return {name: float(x) for name, x in jax.jit(lambda model: watch(model, ()))(model).items()}


def test_what_is_watched_in_the_model_with_a_feed_forward_memory():
    """Every series that a judge reads, in a silent model: it attends evenly,
    answers the first token, and bets on none.
    """
    spec = short(build_conditions("full")[GLOBAL].spec, 8, 12)
    task, found = spec.task, watched(spec)
    n = task.d_vocab
    assert set(found) >= {*MEMORIES, *SHOWN, "bigram memory", "previous", "induction", "to answer"}
    for name in ("global loss", "first loss", "context loss"):
        assert found[name] == pytest.approx(np.log(n), rel=1e-5)
    assert found["output memory"] == pytest.approx(1 / n)
    assert found["second keys"] == pytest.approx(1 / task.n_triggers)
    # of positions 1 and 2, the first quarter, the one after the first finds the first;
    # later ones do not
    assert (found["first keys, early"], found["first keys, late"]) == (0.5, 0.0)
    # the authors' probe asks positions 1 and 2 of a quarter of three
    assert found[EARLY] == 0.5
    assert found["previous"] == pytest.approx((1 / 2 + 1 / 3) / 2)
    bigrams = np.delete(task.text.bigrams, task.fixed_triggers, axis=0)
    entropy = -np.where(bigrams > 0, bigrams * np.log(np.where(bigrams > 0, bigrams, 1)), 0).sum(
        axis=1
    )
    assert found["bigram memory"] == pytest.approx(np.log(n) - entropy.mean(), rel=1e-4)


def test_what_is_watched_in_the_general_model():
    """One layer of four heads with a norm: answers only, for it has no such memories."""
    spec = short(build_conditions("full")[ONE].spec, 8, 12)
    found = watched(spec)
    assert set(found) == {"accuracy", "global loss", "first loss", "context loss"}
    for name in ("global loss", "first loss", "context loss"):
        assert found[name] == pytest.approx(np.log(spec.task.d_vocab), rel=1e-5)
    evidence = evidence_of({ONE: planted(spec, 1, params=silent(spec))})
    np.testing.assert_allclose(
        evidence.measure(ONE, answers)["context loss"], np.log(spec.task.d_vocab), rtol=1e-5
    )


def test_a_few_steps_of_the_smallest_condition_leave_curves_that_judges_can_read():
    """Trained for real: what `fit` observes has the looks and the names
    that the judges of order expect.
    """
    spec = tiny(build_conditions("full")[ALL].spec)
    runs = {ALL: fit(spec, range(8))}
    entry = entry_of(STUDY, "B5", evidence_of(runs))
    assert entry.value == 0, "ten steps form no output memory that could be first"
    assert entry.verdict == "undecided", "eight seeds show no share"
    assert entry.conditions[ALL].spec == spec.digest()


def test_what_earlier_versions_did_not_read_must_be_trained_again():
    spec = short(build_conditions("full")[ALL].spec, 8, 12)
    old = {name: [0.0, 1.0] for name in (*MEMORIES, "accuracy") if name != EARLY}
    entry = entry_of(STUDY, "B5", evidence_of({ALL: planted(spec, 40, metrics=old)}))
    assert entry.verdict == "undecided"
    assert "lacks 'first keys among early positions'" in entry.sentence


@pytest.mark.parametrize("claim", ["B1", "B8", "B10", "B17", "B18"])
def test_quick_says_what_it_does_not_train(claim):
    evidence = evidence_of(scale="quick", conditions=build_conditions("quick"))
    (test,) = STUDY.pick((claim,))
    with pytest.raises(InconclusiveError, match="It is trained at full scale only"):
        test.measure(evidence)


def test_every_claim_finds_its_conditions_and_readings():
    for scale in SCALES:
        known = build_conditions(scale)
        for test in STUDY.tests:
            picked = test.pick_conditions(known)
            if scale == "full":
                trained = {name.partition("/")[2] for name in picked}
                readings = set(test.claim.readings) - {"plain"}
                assert readings <= {each.rpartition("/")[2] for each in trained}, test.claim.id
    used = {name for test in STUDY.tests for name in test.pick_conditions(known)}
    assert used == set(known), "nothing is trained that no claim asks for"


def test_conditions_have_enough_fresh_seeds_and_name_the_matrices_of_the_paper():
    for scale in SCALES:
        found = build_conditions(scale)
        expected = range(FRESH_SEED, FRESH_SEED + 40) if scale == "full" else range(8)
        assert all(each.seed_range == expected for each in found.values())
        assert all(each.spec.metrics == "bigrams" for each in found.values())
    assert found[NO_OUTPUT].spec.unfreeze_steps() == {"blocks.1.attn.W_O": 300}
    assert found[ONLY_OUTPUT].spec.unfreeze_steps() == {
        "blocks.0.attn.W_K": 300,
        "blocks.1.attn.W_K": 300,
    }
    assert found[ALL].spec.compile_key() != found[NO_OUTPUT].spec.compile_key()
    assert found[NO_FIRST].spec.compile_key() == found[LONG].spec.compile_key()
    bigger = set(found[GLOBAL].spec.model.frozen_names()) - set(
        found[ALL].spec.model.frozen_names()
    )
    assert bigger == {"blocks.1.mlp.W_in"}, "of the feed-forward memory one matrix is trained"


def test_readings_change_what_they_say():
    found = build_conditions("full")

    def changed(name, reading):
        one = found[name].spec
        other = found[f"{name}/{reading}"].spec
        return one.model, other.model, one.optimizer, other.optimizer

    model, other_model, optimizer, other_optimizer = changed(ALL, "other")
    assert (model.d_model, other_model.d_model) == (256, 128)
    assert (optimizer.lr, other_optimizer.lr) == (0.03, 0.2)
    model, other_model, optimizer, other_optimizer = changed(GLOBAL, "other")
    assert (model.d_model, other_model.d_model) == (128, 256)
    assert (optimizer.lr, other_optimizer.lr) == (0.2, 0.03)
    model, other_model, optimizer, other_optimizer = changed(GLOBAL, "relu")
    assert (other_model.act, other_model.d_mlp) == ("relu", 4 * model.d_model)
    assert not any(".mlp." in name for name in other_model.frozen_names())
    assert optimizer == other_optimizer
    assert found[f"{GLOBAL}/one"].spec.task.n_triggers == 1
    decay = found[NO_DECAY].spec
    assert decay.optimizer.weight_decay == 0
    same = decay.optimizer.model_copy(update={"weight_decay": 1e-4})
    assert decay.model_copy(update={"optimizer": same}) == found[ALL].spec


def test_a_watch_needs_its_task():
    assert metrics_of(Spec(task=Permutation())) is None
    with pytest.raises(
        ValueError, match="metrics='bigrams' reads the task 'bigrams', got 'permutation'"
    ):
        metrics_of(Spec(task=Permutation(), metrics="bigrams"))


def test_any_text_will_do(tmp_path):
    text = tmp_path / "my text!.txt"
    text.write_text("the quick brown fox jumps over the lazy dog " * 3)
    study = on_corpus(STUDY, text)
    assert study.name == f"birth@my_text_-{read_corpus(text).digest()[:8]}"
    for scale in SCALES:
        for name, each in study.conditions(scale).items():
            task = each.spec.task
            assert isinstance(task, Bigrams)
            assert task.d_vocab == 27, name
    few = tmp_path / "few.txt"
    few.write_text("abcd" * 5)
    with pytest.raises(
        UserError,
        match="does not do for 'birth': Bigrams: n_triggers=5 is more than the 4 characters",
    ):
        on_corpus(STUDY, few).conditions("quick")
    with pytest.raises(
        UserError,
        match="study 'remember' is not about text, so it takes no --corpus; allowed: birth",
    ):
        on_corpus(find_study("remember"), text)
