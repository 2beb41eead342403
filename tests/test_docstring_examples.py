"""The examples of how to write one's own, in the documentation of Schedule and Optimizer, run."""

import inspect
from textwrap import dedent
from typing import Literal

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import mnemoscope as ms

TINY = {"model": ms.ModelConfig(d_model=4, n_heads=1, d_mlp=0), "steps": 3, "batch": 2}


def example_of(cls, folder):
    """The code of a class's documentation as a module, with its Spec under the name `spec`."""
    lines = inspect.getdoc(cls).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("    class "))
    end = next(i for i, line in enumerate(lines) if line.startswith("    ms.Spec")) + 1
    text = dedent("\n".join(lines[start:end])).replace("\nms.Spec", "\nspec = ms.Spec")
    file = folder / f"example_of_{cls.__name__.lower()}.py"
    file.write_text(text)
    names = {"ms": ms, "Literal": Literal, "jnp": jnp, "optax": optax, "__name__": file.stem}
    exec(compile(text, str(file), "exec"), names)
    return names["spec"]


@pytest.mark.parametrize("cls", [ms.Schedule, ms.Optimizer], ids=lambda cls: cls.__name__)
def test_the_example_trains_as_it_stands(cls, tmp_path):
    spec = example_of(cls, tmp_path).model_copy(update=TINY)
    again = type(spec).model_validate_json(spec.canonical_json())
    run = ms.fit(again, 1, progress=False)
    assert run.finished.all()
    assert not np.array_equal(run.snapshots["embed.W_E"][:, 0], run.snapshots["embed.W_E"][:, -1])


def test_the_schedule_is_what_it_says(tmp_path):
    schedule = example_of(ms.Schedule, tmp_path).optimizer.schedule
    assert float(schedule.share(1000, 9999)) == 0.5 ** (1000 / 500)
