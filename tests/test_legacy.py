"""Fields of a Spec that have another name than in 0.1: stored text keeps the old ones, nothing else may use them."""

import json

import pytest

from mnemoscope import Adam, Permutation, Spec, UserError
from mnemoscope.core.legacy import SPEC_NAMES

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
