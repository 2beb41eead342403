"""Seeds along an axis: what does not fit a device's memory is measured in smaller parts,
or refused in one line.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mnemoscope.core import seeds
from mnemoscope.core.errors import UserError

NUMBERS = np.arange(9.0)


def test_what_does_not_fit_is_measured_with_fewer_seeds_at_once(monkeypatch):
    tried, real = [], seeds.for_each_seed

    def small_device(f, mesh, lanes):
        def run(each):
            tried.append(lanes)
            if lanes > 2:
                raise jax.errors.JaxRuntimeError(
                    "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8 bytes."
                )
            return real(f, mesh, lanes)(each)

        return run

    monkeypatch.setattr(seeds, "for_each_seed", small_device)
    monkeypatch.setattr(seeds, "seeds_per_device", lambda mesh, n, at_most: at_most)
    squares = seeds.map_over_seeds(lambda x: x**2, 9, at_most=8)
    with pytest.warns(
        RuntimeWarning,
        match="[84] seeds at once do not fit the device's memory; measuring [42] at once",
    ):
        np.testing.assert_array_equal(squares(NUMBERS), NUMBERS**2)
    assert tried == [8, 4, 2]
    np.testing.assert_array_equal(squares(NUMBERS + 1), (NUMBERS + 1) ** 2)
    assert set(tried[3:]) <= {2}, "what was found to fit is not forgotten"


def test_one_seed_that_does_not_fit_is_refused():
    too_much = seeds.map_over_seeds(
        lambda x: jnp.cumsum(jnp.full((2**22, 2**22), x), axis=0)[-1].sum(), 2
    )
    with pytest.raises(
        UserError, match="what is measured on one seed does not fit the device's memory"
    ):
        too_much(NUMBERS[:2])


def test_other_errors_of_a_device_are_not_taken_for_a_lack_of_memory(monkeypatch):
    def broken(f, mesh, lanes):
        def run(each):
            raise jax.errors.JaxRuntimeError("INTERNAL: something else")

        return run

    monkeypatch.setattr(seeds, "for_each_seed", broken)
    with pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL"):
        seeds.map_over_seeds(lambda x: x, 2)(NUMBERS[:2])
