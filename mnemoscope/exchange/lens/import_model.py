"""Reading a model in TransformerLens's format, whoever wrote it."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open

from mnemoscope.core.errors import UserError
from mnemoscope.exchange.lens.convert_config import (
    CONFIG,
    WEIGHTS,
    Sizes,
    hooked_config,
    lens_config,
    tensor_name,
)
from mnemoscope.exchange.lens.export_model import filled_in
from mnemoscope.exchange.lens.read_config import read_config, unreadable
from mnemoscope.models import ModelConfig, Transformer, parameter_shapes

# what a state dict has besides parameters: masks, and tables of the angles of rotary positions
BUFFERS = (".attn.mask", ".attn.IGNORE", ".attn.rotary_sin", ".attn.rotary_cos")


def read_transformer_lens(folder: Path | str) -> Transformer:
    """The model in a folder in TransformerLens's format, in float32; anything that does not fit is
    one line.

    Args:
        folder: The folder, with `model.safetensors` and `config.json`.
    """
    folder = Path(folder)
    data = read_config(folder / CONFIG)
    tensors, header = _read_tensors(folder / WEIGHTS)
    if data["n_layers"] > len(tensors):  # before a billion names are made
        raise UserError(
            f"{CONFIG} has n_layers={data['n_layers']}, but {WEIGHTS} in {str(folder)!r} only "
            f"{len(tensors)} tensors"
        )
    try:
        config = hooked_config(data)
    except UserError as error:
        raise UserError(f"{str(folder / CONFIG)!r} describes no model ({error})") from error
    sizes = Sizes(data["d_vocab"], data["n_ctx"], data["d_vocab_out"])
    has_groups = data.get("n_key_value_heads") is not None
    names = {}
    shapes = {}
    for name, shape in parameter_shapes(config, *sizes).items():
        names[name] = tensor_name(name, has_groups)
        shapes[names[name]] = shape
    if data.get("normalization_type") in ("LNPre", "RMSPre"):
        tensors |= _folded_norms(shapes, tensors)
    _check_tensors(folder / WEIGHTS, tensors, shapes)
    model = Transformer(config, {name: tensors[theirs] for name, theirs in names.items()})
    if "mnemoscope" not in header:
        return model
    return _as_written(model, sizes, header["mnemoscope"], folder)


def _read_tensors(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The weights of a state dict, without its buffers, and the header of its file."""
    tensors = {}
    try:
        with safe_open(path, framework="numpy") as file:
            for name in file.keys():  # noqa: SIM118 (no mapping)
                if name.endswith(BUFFERS):
                    continue
                dtype = file.get_slice(name).get_dtype()
                if dtype != "F32":
                    raise UserError(
                        f"{name!r} in {str(path)!r} is {dtype}; allowed: F32 (model.float() makes "
                        "it so)"
                    )
                tensors[name] = file.get_tensor(name)
            return tensors, file.metadata() or {}
    except (OSError, SafetensorError) as error:
        raise unreadable(path, error) from error


def _folded_norms(
    shapes: Mapping[str, tuple[int, ...]],
    tensors: Mapping[str, np.ndarray],
) -> dict[str, np.ndarray]:
    """Ones and zeros for norms whose weights were folded into the next layer."""
    filled = {}
    for name, shape in shapes.items():
        is_norm = ".ln" in f".{name}"
        if is_norm and name not in tensors:
            is_scale = name.endswith(".w")
            filled[name] = np.broadcast_to(np.float32(is_scale), shape)
    return filled


def _check_tensors(
    path: Path,
    tensors: Mapping[str, np.ndarray],
    shapes: Mapping[str, tuple[int, ...]],
) -> None:
    """Exactly the tensors that the configuration asks for, all of them finite."""
    where = repr(str(path))
    for name, shape in shapes.items():
        if name not in tensors:
            raise UserError(
                f"{where} has no {name!r}, which {CONFIG} asks for; it has: {', '.join(tensors)}"
            )
        if tensors[name].shape != shape:
            raise UserError(
                f"{name!r} in {where} has shape {tensors[name].shape}; {CONFIG} says {shape}"
            )
        if not np.isfinite(tensors[name]).all():
            raise UserError(
                f"{name!r} in {where} has numbers that are not finite; allowed: finite ones"
            )
    unused = sorted(set(tensors) - set(shapes))
    if unused:
        raise UserError(
            f"{where} has {unused[0]!r}, which a model of this {CONFIG} does not use; allowed: "
            f"{', '.join(shapes)}"
        )


def _as_written(model: Transformer, sizes: Sizes, written: str, folder: Path) -> Transformer:
    """A model that we wrote, without what was filled in for TransformerLens.

    Args:
        model: The model as TransformerLens sees it, with everything that was filled in.
        sizes: Its tokens, positions and answers.
        written: Our own configuration, as JSON, from the header of the file.
        folder: Where both come from, for messages.
    """
    where = repr(str(folder / WEIGHTS))
    try:
        config = ModelConfig.model_validate_json(written)
        kept = parameter_shapes(config, *sizes)
        fits = lens_config(config, sizes) == lens_config(model.config, sizes)
    except ValueError as error:
        raise UserError(
            f"the header of {where} is damaged: {str(error).splitlines()[0]}"
        ) from error
    # where no table of positions has the longest prompt, only the configuration does
    if not fits or config.n_ctx not in (None, sizes.n_ctx):
        raise UserError(
            f"the header and {CONFIG} in {str(folder)!r} describe different models; allowed: both "
            "as they were written"
        )
    found = Transformer(config, {name: model.params[name] for name in kept})
    for name, value in filled_in(found, sizes).items():
        if not np.array_equal(value, model.params[name]):
            raise UserError(
                f"{name!r} in {where} is not what was filled in for a model without it; save the "
                "file without its header to read it as a model that has it"
            )
    return found
