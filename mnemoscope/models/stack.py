"""Models of several seeds as one: everything that a model does and has, with a leading seed axis.

stack = ms.Stack(run.models())
logits, cache = stack.run_with_cache(prompt)       # logits (seed, pos, vocab)
stack.W_Q                                          # (seed, layer, head, d_model, d_head)
"""

from collections.abc import Iterable, Iterator

import jax
import jax.numpy as jnp

from mnemoscope.core.axes import Params
from mnemoscope.core.errors import UserError
from mnemoscope.models.hooked_model import Hooked
from mnemoscope.models.model import Model
from mnemoscope.models.transformer import HookedModel, bind


class Stack(Hooked):
    """Several models of one shape. Logits, sites, weights, stacks of components and scores have a
    seed axis in front, before the batch axis; hooks see it too."""

    n_leading = 1

    def __init__(self, models: HookedModel | Iterable[HookedModel]):
        """A stack of models.

        Args:
            models: What `run.models()` gives, or single models of one shape.
        """
        several = models if isinstance(models, HookedModel) else _stacked(models)
        name, shape = next(iter(several.config.parameter_shapes(1, 1).items()))
        if several.params[name].ndim != len(shape) + 1:
            raise UserError(
                "a Stack of one model; allowed: run.models(), or a list of models of one shape"
            )
        self.config: Model = several.config
        """The shape of each."""
        self.params: Params = several.params
        """Weights by name, with a leading seed axis."""

    def __len__(self) -> int:
        return self._seed_axis[0]

    def __getitem__(self, row: int) -> HookedModel:
        """One of the models, by its place in the stack."""
        if not -len(self) <= row < len(self):
            raise UserError(
                f"no model {row} in a stack of {len(self)}; allowed: 0 to {len(self) - 1}"
            )
        return jax.tree.map(lambda x: x[row], self.models)

    def __iter__(self) -> Iterator[HookedModel]:
        return (self[row] for row in range(len(self)))

    def __repr__(self) -> str:
        return f"<Stack of {len(self)} models, each {self[0]!r}>"

    @property
    def models(self) -> HookedModel:
        """The weights of all of them as `vmap` takes them."""
        return bind(self.config, self.params)


def _stacked(models: Iterable[HookedModel]) -> HookedModel:
    """Models of one shape as one, with a leading seed axis."""
    found = list(models)
    shapes = [{name: x.shape for name, x in model.params.items()} for model in found]
    if (
        not found
        or any(model.config != found[0].config for model in found)
        or any(shape != shapes[0] for shape in shapes)
    ):
        raise UserError(f"a Stack of {len(found)} models that differ; allowed: models of one shape")
    params: Params = {
        name: jnp.stack([model.params[name] for model in found]) for name in shapes[0]
    }
    return bind(found[0].config, params)
