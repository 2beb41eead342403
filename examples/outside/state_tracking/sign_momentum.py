r"""Steps of one size in every entry, along the sign of an average of gradients.

m <- b m + (1 - b) g,     direction = sign(m)
"""

from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
import optax
from pydantic import Field

import mnemoscope as ms


class SignMomentum(ms.Optimizer):
    """The sign of the mean gradient."""

    kind: Literal["state_tracking/sign-momentum"] = "state_tracking/sign-momentum"
    """The name of this optimizer in files."""

    lr: Annotated[float, Field(gt=0)] = 1e-3
    """The learning rate: how far every entry moves in a step."""

    b: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """How much of the mean gradient is kept from step to step."""

    def direction(self) -> optax.GradientTransformation:
        """What a step of rate 1 takes away from the parameters."""

        def init(params: Any) -> Any:
            return jax.tree.map(jnp.zeros_like, params)

        def update(gradient: Any, mean: Any, params: Any = None) -> tuple[Any, Any]:
            mean = jax.tree.map(lambda m, g: self.b * m + self.one_minus("b") * g, mean, gradient)
            return jax.tree.map(jnp.sign, mean), mean

        return optax.GradientTransformation(init, update)
