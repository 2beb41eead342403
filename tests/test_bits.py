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

__all__ = ["always_kept"]  # a fixture


@pytest.mark.parametrize(
    "name", ["permutation, pair tables, two layers, pre", "bigrams, plain, two heads"]
)
def test_twenty_steps_have_the_same_losses(name):
    frozen = goldens.read("losses.json")[name]
    np.testing.assert_allclose(goldens.losses_of(name), frozen, atol=TOLERANCE, rtol=0)


@pytest.mark.usefixtures("always_kept")
def test_a_block_that_was_cut_off_goes_on_to_the_same_bits(tmp_path):
    goes_on_to_the_same_bits(SPECS["adam"], tmp_path)
