"""Blocks are cut by the compiler's count of memory before any of them fails."""

import jax
import numpy as np
import pytest

from mnemoscope.execution import local
from mnemoscope.models import ModelConfig
from mnemoscope.tasks import Permutation
from mnemoscope.training import compilation
from mnemoscope.training.compilation import numbers_by_seed, programs
from mnemoscope.training.loop import fit
from mnemoscope.training.spec import Spec

SPEC = Spec(
    task=Permutation(n_symbols=3),
    model=ModelConfig(d_model=4, n_heads=1, d_mlp=4),
    steps=3,
    batch=4,
    snapshots=1,
)


def test_the_estimate_is_what_xla_reports():
    """Arguments and results are the arrays that go in and come out, on each of two devices; what is
    between them is XLA's own count.
    """
    n_seeds = 6
    program = programs(SPEC, n_seeds)
    found = program.advance.memory_analysis()
    states = program.start(np.arange(n_seeds, dtype=np.int32))
    numbers = numbers_by_seed([SPEC] * n_seeds)
    share = jax.device_count()
    of_states = sum(x.nbytes for x in jax.tree.leaves(states)) // share
    given = of_states + sum(x.nbytes for x in jax.tree.leaves(numbers)) // share
    ids_and_steps = 4 * n_seeds // share + 8
    # jax leaves out arguments that a program does not read, and a tuple of results has pointers
    assert of_states <= found.argument_size_in_bytes <= given + ids_and_steps
    assert of_states <= found.output_size_in_bytes <= of_states + 200
    total = found.argument_size_in_bytes + found.output_size_in_bytes + found.temp_size_in_bytes
    assert program.bytes_on_device == total - found.alias_size_in_bytes
    assert found.temp_size_in_bytes > 0


def test_more_seeds_need_more():
    needed = [programs(SPEC, n).bytes_on_device for n in (2, 4, 8)]
    assert needed == sorted(set(needed))


@pytest.mark.parametrize(
    ("free", "fitting"), [(1000, 16), (999, 8), (500, 8), (334, 5), (100, 1), (1, 1)]
)
def test_how_many_seeds_fit(free, fitting, monkeypatch):
    """Sixteen seeds need 1,000 bytes; as many equal pieces as the memory asks for."""
    needs = compilation.Programs(start=None, advance=None, bytes_on_device=1000)
    monkeypatch.setattr(local, "programs", lambda spec, n_seeds: needs)
    monkeypatch.setattr(local, "free_memory", lambda: free)
    assert local.seeds_that_fit(SPEC, 16) == fitting


def test_a_device_that_does_not_say_gets_all(monkeypatch):
    monkeypatch.setattr(local, "programs", lambda *_: pytest.fail("nothing is compiled for it"))
    monkeypatch.setattr(local, "free_memory", lambda: None)
    assert local.seeds_that_fit(SPEC, 16) == 16


def test_what_cannot_even_be_compiled_is_halved(monkeypatch):
    def too_large(spec, n_seeds):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: no room to try products")

    monkeypatch.setattr(local, "programs", too_large)
    monkeypatch.setattr(local, "free_memory", lambda: 10)
    assert local.seeds_that_fit(SPEC, 16) == 8


@pytest.mark.parametrize(
    ("stats", "free"),
    [
        (None, None),
        ({"bytes_in_use": 3}, None),
        ({"bytes_limit": 1000, "bytes_in_use": 90}, 900),
        ({"bytes_limit": 1000, "bytes_in_use": 1000}, 1),
    ],
)
def test_what_a_device_has_left(stats, free, monkeypatch):
    class Device:
        def memory_stats(self):
            return stats

    monkeypatch.setattr(jax, "local_devices", lambda: [Device(), Device()])
    assert local.free_memory() == free


def test_a_block_is_cut_before_it_fails(store, monkeypatch):
    """With room for two seeds, eight are trained in blocks of at most two, none of which is started
    in vain, each seed once and to the same numbers.
    """
    trained = []
    whole = fit(SPEC, range(8))
    free = programs(SPEC, 2).bytes_on_device
    assert programs(SPEC, 8).bytes_on_device > free

    def noted(spec, seeds, **rest):
        trained.append(list(seeds))
        return fit(spec, seeds, **rest)

    monkeypatch.setattr(local, "free_memory", lambda: free)
    monkeypatch.setattr(local, "fit", noted)
    with pytest.warns(RuntimeWarning, match="[84] seeds at once do not fit the device's memory"):
        run = local.load_or_train(store, SPEC, range(8))
    assert [seed for block in trained for seed in block] == list(range(8))
    assert max(map(len, trained)) == 2
    np.testing.assert_array_equal(run.losses, whole.losses)
