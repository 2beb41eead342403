"""Writing a model for TransformerLens."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from mnemoscope.core.axes import Float
from mnemoscope.exchange.atomic_write import new_folder
from mnemoscope.exchange.lens.convert_config import (
    CONFIG,
    SUPPORT,
    WEIGHTS,
    Sizes,
    hooked_config,
    lens_config,
    sizes_of,
    tensor_name,
)
from mnemoscope.models import HookedModel, parameter_shapes


def write_transformer_lens(
    model: HookedModel,
    folder: Path | str,
    force: bool = False,
    about: Mapping[str, str] | None = None,
    n_ctx: int | None = None,
) -> None:
    """Write a model for TransformerLens.

    Args:
        model: The model.
        folder: The folder to write, with `model.safetensors` and `config.json`.
        force: Write into a folder that has files.
        about: What goes into the header of the weights' file besides the model's configuration.
        n_ctx: The longest prompt, for a model that takes any.
    """
    SUPPORT.require(model.config)
    sizes = sizes_of(model, n_ctx)
    config = lens_config(model.config, sizes)
    has_groups = config["n_key_value_heads"] is not None
    params = filled_in(model, sizes)
    state = {tensor_name(name, has_groups): value for name, value in params.items()}
    header = {**(about or {}), "mnemoscope": model.config.canonical_json()}
    with new_folder(Path(folder), force, CONFIG) as unfinished:
        # as bytes: a file that safetensors writes itself would be the owner's alone
        (unfinished / WEIGHTS).write_bytes(save(state, header))
        (unfinished / CONFIG).write_text(json.dumps(config, indent=1), encoding="utf-8")


def filled_in(model: HookedModel, sizes: Sizes) -> dict[str, Float[np.ndarray, "..."]]:
    """The parameters of the HookedTransformer that computes the same, by our names: zeros and the
    transposed embedding stand for what the model does without.

    Args:
        model: The model.
        sizes: Its tokens, positions and answers.
    """
    params = {name: np.asarray(value) for name, value in model.params.items()}
    if "unembed.W_U" not in params:
        params["unembed.W_U"] = params["embed.W_E"].T
    shapes = parameter_shapes(hooked_config(lens_config(model.config, sizes)), *sizes)
    return {
        name: np.ascontiguousarray(params.get(name, np.zeros(shape, np.float32)))
        for name, shape in shapes.items()
    }
