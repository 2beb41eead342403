"""What all seeds of a training share: the arrays of its task, one copy on each device.

    Task.load_arrays() on the host -> place_arrays -> argument of the program -> with_arrays inside

Nothing of them is in the compiled program, and no seed has a copy of its own.
"""

from typing import Any, cast

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from pydantic import BaseModel

from mnemoscope.core.seeds import SAME
from mnemoscope.tasks import Task
from mnemoscope.training.spec import Spec


def place_arrays(task: Task, mesh: Mesh) -> Any:
    """A task's arrays, once on each device of a mesh."""
    everywhere = NamedSharding(mesh, SAME)
    return jax.tree.map(lambda x: jax.device_put(np.asarray(x), everywhere), task.load_arrays())


def shapes_of(task: Task, mesh: Mesh) -> Any:
    """What `place_arrays` will give, for who compiles a program of them."""
    everywhere = NamedSharding(mesh, SAME)

    def shape(x: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(
            np.shape(x), jax.dtypes.canonicalize_dtype(x.dtype), sharding=everywhere
        )

    return jax.tree.map(shape, task.load_arrays())


def with_arrays(spec: Spec, arrays: Any) -> Spec:
    """A Spec inside a compiled program, whose task reads the program's arguments.

    Args:
        spec: as it is outside.
        arrays: those of its task, perhaps traced.
    """
    if not jax.tree.leaves(arrays):
        return spec
    # pydantic's own copy, which checks nothing: the task is the same one
    inside = BaseModel.model_copy(spec, update={"task": spec.task.with_arrays(arrays)})
    return cast(Spec, inside)
