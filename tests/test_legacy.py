"""Names that were others in 0.1: stored Specs and arrays keep the old ones,
nothing else may use them.
"""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file

from mnemoscope import Adam, Permutation, Spec, UserError
from mnemoscope.core.legacy import MODEL_NAMES, SPEC_NAMES, series_name
from mnemoscope.execution.local import load_or_train
from mnemoscope.models import Init, ModelConfig
from mnemoscope.store import Store
from mnemoscope.studies.plot_data import Curve, Plots
from mnemoscope.tasks import Facts
from mnemoscope.verdicts.record import Series

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


STORED_MODELS = {
    "head_dim": ({"head_dim": 8}, {"d_head": 8}),
    "no positions": ({"positions": False}, {"positions": "none"}),
    "unit embeddings": ({"unit_embeddings": True}, {"init": Init(embeddings="unit")}),
    "identity": (
        {"n_heads": 1, "identity": ["*.W_Q"]},
        {"n_heads": 1, "init": Init(identity=("*.W_Q",))},
    ),
    "constant": ({"constant": [["*.W_Q", 0.5]]}, {"init": Init(constant=(("*.W_Q", 0.5),))}),
    "scaled": ({"scaled": [["*.W_Q", 2.0]]}, {"init": Init(scale=(("*.W_Q", 2.0),))}),
    "orthogonal": ({"orthogonal": True}, {"init": Init(orthogonal=True)}),
}


@pytest.mark.parametrize("name", STORED_MODELS)
def test_a_model_is_stored_as_0_1_did_and_read_by_that(name):
    old, new = STORED_MODELS[name]
    config = ModelConfig(**new)
    stored = json.loads(config.canonical_json())
    assert old.items() <= stored.items()
    assert not {"init", "d_head", "n_key_value_heads", "rotary_dim"} & set(stored)
    assert ModelConfig.model_validate_json(json.dumps(stored)) == config
    assert (
        json.loads(ModelConfig.model_validate_json(json.dumps(stored)).canonical_json()) == stored
    )


def test_what_0_1_did_not_have_is_stored_by_its_own_name():
    config = ModelConfig(
        positions="rotary", act="gelu", norm="pre", norm_type="rms", gated_mlp=True
    )
    stored = json.loads(config.canonical_json())
    assert stored["positions"] == "rotary"
    assert stored["act"] == "gelu"
    assert stored["gated_mlp"] is True
    assert ModelConfig.model_validate_json(config.canonical_json()) == config
    assert ModelConfig().canonical_json() == (
        '{"bias":true,"d_mlp":64,"d_model":32,"frozen":[],'
        '"n_heads":2,"n_layers":1,"norm":"none","tied":false}'
    )


@pytest.mark.parametrize(("old", "new"), MODEL_NAMES.items())
def test_an_old_name_of_a_model_in_python_is_refused_with_the_name_to_use(old, new):
    with pytest.raises(UserError) as error:
        ModelConfig(**{old: None})
    assert f"unknown key of ModelConfig {old!r} (did you mean {new!r}?)" in str(error.value)


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
        ("output held: right", "output frozen: accuracy"),
        ("step 5 right, d=4", "step 5 accuracy, d=4"),
        ("right last token", "accuracy last token"),
        ("output held back: first keys", "output frozen: first keys"),
        ("layer 0 silenced: 1 hop", "layer 0 ablated: 1 hop"),
        ("P(the), all late silenced", "P(the), all late ablated"),
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
