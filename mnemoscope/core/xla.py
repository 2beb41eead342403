"""What XLA does on a CPU that costs a small model its speed, and what keeps it from that.

Other devices need none of it. A core's share of a step is a hundred small operations on data that
fit its cache. Four habits of the compiler and its runtime cost more than they gain there:

1. A cheap producer is computed again inside every consumer: `materialize` holds a value in memory.
2. Operations that are ready at the same time are shared with the other cores once there are more
   than eight; where a step goes on is then a matter of chance, and its data wander from cache to
   cache. `order_after` makes operations wait for others.
3. Large operations are cut into one piece a core: `compiler_options` leaves them in one.
4. A transposition is folded into the product before it, which may be slow the other way round:
   `pin_layout`.

Every core is a device of its own and trains its own seeds, so the second and third only disturb,
and one of them is enough to do so. 36 rounds in turns on two cores (d=32, 2 heads, batch 128, 32
seeds, jax 0.10.2): 616,000 samples/s with both habits, 612,000 without the second, 642,000 without
either; with a norm 440,000, 430,000 and 461,000. ENGINEERING has the rest.
"""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from mnemoscope.core.axes import Array, Bool, Float, Shaped

Tree = TypeVar("Tree")


def materialize(true: Bool[Array, ""] | bool, f: Callable[..., Array], *args: Array) -> Array:
    """f(*args), computed once and held in memory.

    XLA ignores `optimization_barrier` on the CPU. A branch on a flag that is known to be true only
    at run time stands in for it. Measured on one core with d=32, 2 heads and batch 128, jax 0.10.2:
    100,000 samples/s without, 210,000 with.

    Args:
        true: A flag that is true, known only at run time.
        f: What is computed.
        args: Its arguments.
    """
    if jax.default_backend() != "cpu":
        return f(*args)
    shape = jax.eval_shape(f, *args)
    return jax.lax.cond(true, f, lambda *_: jnp.zeros(shape.shape, shape.dtype), *args)


def pin_layout(true: Bool[Array, ""], x: Float[Array, "*axes"]) -> Float[Array, "*axes"]:
    """x, in the layout in which it is written: no transposition of it is folded into a product."""
    return jnp.where(true, x, 0.0) if jax.default_backend() == "cpu" else x


def order_after(first: Shaped[Array, "..."], tree: Tree) -> Tree:
    """The same tree, of which nothing can be used before `first` is computed."""
    if jax.default_backend() != "cpu":
        return tree
    true = first.min() <= first.ravel()[0]  # known only at run time
    return jax.tree.map(lambda x: jnp.where(true, x, jnp.zeros_like(x)), tree)


def compiler_options(mesh: Mesh) -> dict[str, bool | str] | None:
    """What the compiler is told about a program for these devices.

    No operation is cut for several cores, and a seed has the same bits whoever trains it.
    """
    if mesh.devices.flat[0].platform != "cpu":
        return None
    return {
        "xla_disable_hlo_passes": "cpu-parallel-task-assigner",
        "xla_cpu_multi_thread_eigen": False,
    }
