"""Names that were others in 0.1: stored Specs and arrays keep the old ones, nothing else may use them."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file

from mnemoscope import Adam, Permutation, Spec, UserError
from mnemoscope.core.legacy import SPEC_NAMES, series_name
from mnemoscope.execution.local import load_or_train
from mnemoscope.models import ModelConfig
from mnemoscope.store import Store
from mnemoscope.studies.claims import Curve, Plots, Series
from mnemoscope.tasks import Facts

SPEC = Spec(task=Permutation(), optimizer=Adam(lr=0.01), n_evals=4, unfreeze_at=(("*.W_K", 5),))


def test_stored_text_has_the_names_of_0_1_and_is_read_by_them():
    text = SPEC.canonical_json()
    stored = json.loads(text)
    assert stored["optimiser"]["lr"] == 0.01
    assert stored["looks"] == 4
    assert stored["release"] == [["*.W_K", 5]]
    assert not set(SPEC_NAMES) & set(stored)
    assert Spec.model_validate_json(text) == SPEC


def test_what_is_shown_has_the_names_of_today():
    shown = SPEC.model_dump(mode="json")
    assert {"optimizer", "n_evals", "unfreeze_at"} <= set(shown)
    assert not set(SPEC_NAMES.values()) & set(shown)


@pytest.mark.parametrize(("new", "old"), SPEC_NAMES.items())
def test_an_old_name_in_python_is_refused_with_the_name_to_use(new, old):
    with pytest.raises(UserError, match=rf"unknown key of Spec '{old}' \(did you mean '{new}'\?\)"):
        Spec(task=Permutation(), **{old: None})
    with pytest.raises(UserError, match=rf"did you mean '{new}'"):
        Spec.model_validate({"task": {"kind": "permutation"}, old: None})


def test_accuracy_is_stored_by_the_name_of_0_1_and_read_back(tmp_path):
    spec = Spec(
        task=Facts(subjects=6, relations=3, per_relation=2, length=8),
        model=ModelConfig(d_model=8, n_heads=1, d_mlp=0),
        steps=4,
        batch=8,
        metrics="facts",
    )
    store = Store(tmp_path)
    run = load_or_train(store, spec, range(2))
    (path,) = tmp_path.rglob("*.safetensors")
    written = load_file(path)
    assert "observed/right" in written
    assert "observed/accuracy" not in written
    (row,) = store.rows()
    read = store.load(row).metrics
    assert set(read) == set(run.metrics)
    np.testing.assert_array_equal(read["accuracy"], written["observed/right"])
    np.testing.assert_array_equal(read["accuracy"], run.metrics["accuracy"])


@pytest.mark.parametrize(
    ("then", "now"),
    [
        ("right", "accuracy"),
        ("right, rho = 0.1", "accuracy, rho = 0.1"),
        ("right: rho = 1", "accuracy: rho = 1"),
        ("output held: right", "output held: accuracy"),
        ("step 5 right, d=4", "step 5 accuracy, d=4"),
        ("right last token", "accuracy last token"),
        ("P(right), rho = 0", "P(right), rho = 0"),
        ("to right", "to right"),
        ("attention, for the right answer", "attention, for the right answer"),
        ("recall repeat/d32h2", "recall repeat/d32h2"),
    ],
)
def test_a_series_of_an_old_ledger_has_the_name_of_today(then, now):
    assert series_name(then) == now
    assert series_name(now) == now
    curve = Curve(steps=(0,), mean=(1,), low=(1,), high=(1,))
    assert Series.model_validate({"by_seed": {then: [1.0]}}).by_seed == {now: (1.0,)}
    assert Plots.model_validate({"curves": {then: curve}}).curves == {now: curve}
