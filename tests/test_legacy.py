"""Fields of a Spec that have another name than in 0.1: stored text keeps the old ones, nothing else may use them."""

import json

import pytest

from mnemoscope import Adam, Permutation, Spec, UserError
from mnemoscope.core.legacy import MODEL_NAMES, SPEC_NAMES
from mnemoscope.models import Init, ModelConfig

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
        '{"bias":true,"d_mlp":64,"d_model":32,"frozen":[],"n_heads":2,"n_layers":1,"norm":"none","tied":false}'
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
