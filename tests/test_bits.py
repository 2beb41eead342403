"""What compiled programs promise, compiled as users have them.

The other files compile with less optimization (`tests/compiler.py`); `make test-long` runs those
that promise bits or golden numbers once more as users have them. Here stands one case of each
promise, so that `make test` holds them too.
"""

import goldens
import numpy as np
import pytest
from test_golden import TOLERANCE
from test_resume import (
    SPECS,
    always_kept,
    goes_on_to_the_same_bits,
)
from test_train import SMALL, trains_the_same_alone_and_among_others

from mnemoscope.core.seeds import device_mesh
from mnemoscope.models import ModelConfig
from mnemoscope.tasks import Permutation
from mnemoscope.training import compilation as programs_module
from mnemoscope.training.spec import Spec

__all__ = ["always_kept"]  # a fixture


@pytest.mark.parametrize(
    "name", ["permutation, pair tables, two layers, pre", "bigrams, plain, two heads"]
)
def test_twenty_steps_have_the_same_losses(name):
    frozen = goldens.read("losses.json")[name]
    np.testing.assert_allclose(goldens.losses_of(name), frozen, atol=TOLERANCE, rtol=0)


def test_a_seed_trains_the_same_alone_and_among_others():
    trains_the_same_alone_and_among_others(SMALL)


@pytest.mark.usefixtures("always_kept")
def test_a_block_that_was_cut_off_goes_on_to_the_same_bits(tmp_path):
    goes_on_to_the_same_bits(SPECS["watched, with a schedule"], tmp_path)


def test_no_core_gets_a_piece_of_anothers_step(monkeypatch):
    """Without the option the loop's larger operations are cut into one piece a core
    (`mnemoscope.core.xla`).
    """
    spec = Spec(
        task=Permutation(), model=ModelConfig(d_model=32, n_heads=2, d_mlp=64), steps=1, batch=128
    )

    def is_cut() -> bool:
        advance = programs_module._compile(spec, device_mesh(2), 2).advance
        return 'outer_dimension_partitions":["' in advance.as_text()

    assert not is_cut()
    monkeypatch.setattr(programs_module, "compiler_options", lambda mesh: None)
    # with two devices there are two threads, however many cores there are
    assert is_cut(), "if the compiler no longer does it, the option may go"
