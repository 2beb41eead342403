r"""Models in TransformerLens's format, both ways: a folder with `model.safetensors`, the state
dict, and `config.json`.

Names and axes are the same on both sides, so a tensor goes over as it is. What differs is what may
be left out: a HookedTransformer always has biases and an unembedding of its own, so zeros and the
transposed embedding are written for what a model of ours does without. The header of the file keeps
our own configuration, and reading gives back the very same model. Reading such a folder into
TransformerLens (masks are buffers without weights, whose shape depends on its version: hence
strict=False):

    config = HookedTransformerConfig.from_dict(json.load(open("DIR/config.json")))
    model = HookedTransformer(config)
    model.load_state_dict(safetensors.torch.load_file("DIR/model.safetensors"), strict=False)

and writing one there, for `read_transformer_lens` and `mnemoscope import`:

    state = {name: value.contiguous() for name, value in model.state_dict().items()}
    safetensors.torch.save_file(state, "DIR/model.safetensors")
    json.dump(model.cfg.to_dict(), open("DIR/config.json", "w"), default=str)

What the other side cannot say is refused by name: a model that loads and computes something else
would be worse than none.
"""

import json
import math
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from mnemoscope.core.axes import Float
from mnemoscope.core.errors import UserError
from mnemoscope.exchange.files import new_folder
from mnemoscope.models import ModelConfig, Transformer, parameter_shapes
from mnemoscope.models.support import ANY, Support

WEIGHTS = "model.safetensors"
CONFIG = "config.json"
# what a HookedTransformerConfig may say without changing what is computed from tokens in
# evaluation, as patterns
NO_MATTER = (
    # where it runs, and where it came from
    "model_name",
    "device",
    "n_devices",
    "n_params",
    "original_architecture",
    "trust_remote_code",
    "from_checkpoint",
    "checkpoint_*",
    "train_seq_length",
    "layer_norm_folding",
    # how it was drawn
    "seed",
    "init_*",
    "initializer_range",
    # what is hooked
    "use_attn_result",
    "use_attn_in",
    "use_split_qkv_input",
    "use_hook_*",
    "ungroup_grouped_query_attention",
    # tokenizers
    "default_prepend_bos",
    "tokenizer_*",
    # details of parts that are refused when they are on, or whose weights are in the file
    "window_size",
    "attn_types",
    "rotary_*",
    "NTK_*",
    "yarn_*",
    "experts_per_token",
    "norm_topk_prob",
    "tie_word_embeddings",
)
SIZES = ("n_layers", "d_model", "n_ctx", "d_head", "n_heads", "d_vocab")


SUPPORT = Support(
    "TransformerLens",
    {
        "norm": ("none", "pre"),
        "norm_type": ("layer",),
        "bias": ANY,
        "unembed_bias": ANY,
        "tied": ANY,
        "act": ("relu",),
        "mlp_layers": ANY,
        "d_head": ANY,
        "causal": ANY,
    },
)


def lens_config(
    config: ModelConfig,
    d_vocab: int,
    n_ctx: int,
    d_vocab_out: int,
) -> dict[str, Any]:
    """The fields of the HookedTransformerConfig of a model; what TransformerLens has no word for
    raises.

    Args:
        config: The model's configuration.
        d_vocab: How many tokens it embeds.
        n_ctx: How many positions it embeds.
        d_vocab_out: How many answers it gives logits for.
    """
    SUPPORT.require(config)
    mlps = {config.has_mlp(layer) for layer in range(config.n_layers)}
    if len(mlps) > 1:
        raise UserError(
            f"TransformerLens has no mlp_layers={config.mlp_layers!r} "
            "(allowed: a feed-forward part in all layers or none)"
        )
    has_mlps = mlps == {True}
    return {
        "n_layers": config.n_layers,
        "d_model": config.d_model,
        "n_ctx": n_ctx,
        "d_head": config.d_head,
        "n_heads": config.n_heads,
        "d_vocab": d_vocab,
        "d_vocab_out": d_vocab_out,
        "attn_only": mlps == {False},
        "d_mlp": config.d_mlp if has_mlps else None,
        "act_fn": "relu",
        "normalization_type": "LN" if config.norm == "pre" else None,
        "eps": config.norm_eps,
        "attention_dir": "causal" if config.causal else "bidirectional",
        "use_attn_result": True,
        "positional_embedding_type": "standard",
        "model_name": "mnemoscope",
    }


def lens_state(model: Transformer) -> dict[str, Float[np.ndarray, "..."]]:
    """The state dict of the HookedTransformer that computes the same, without its masks."""
    params = {name: np.asarray(value) for name, value in model.params.items()}
    full_config = _full_config(lens_config(model.config, *_sizes(model)))
    if "unembed.W_U" not in params:
        params["unembed.W_U"] = params["embed.W_E"].T
    state = {}
    for name, shape in parameter_shapes(full_config, *_sizes(model)).items():
        value = params.get(name, np.zeros(shape, np.float32))
        state[name] = np.ascontiguousarray(value)
    return state


def write_transformer_lens(
    model: Transformer,
    folder: Path | str,
    force: bool = False,
    about: Mapping[str, str] | None = None,
) -> None:
    """Write a model for TransformerLens.

    Args:
        model: The model.
        folder: The folder to write, with `model.safetensors` and `config.json`.
        force: Write into a folder that has files.
        about: What goes into the header of the weights' file besides the model's configuration.
    """
    state = lens_state(model)
    config = lens_config(model.config, *_sizes(model))
    header = {**(about or {}), "mnemoscope": model.config.canonical_json()}
    with new_folder(Path(folder), force, CONFIG) as unfinished:
        # as bytes: a file that safetensors writes itself would be the owner's alone
        (unfinished / WEIGHTS).write_bytes(save(state, header))
        (unfinished / CONFIG).write_text(json.dumps(config, indent=1), encoding="utf-8")


def read_transformer_lens(folder: Path | str) -> Transformer:
    """The model in a folder in TransformerLens's format, in float32; anything that does not fit is
    one line."""
    folder = Path(folder)
    data = _read_config(folder / CONFIG)
    tensors, header = _read_tensors(folder / WEIGHTS)
    if data["n_layers"] > len(tensors):  # before a billion names are made
        raise UserError(
            f"{CONFIG} has n_layers={data['n_layers']}, but {WEIGHTS} in {str(folder)!r} only "
            f"{len(tensors)} tensors"
        )
    full_config = _full_config(data)
    shapes = parameter_shapes(full_config, data["d_vocab"], data["n_ctx"], data["d_vocab_out"])
    if data.get("normalization_type") == "LNPre":
        tensors |= _folded_norms(shapes, tensors)
    _check_tensors(folder / WEIGHTS, tensors, shapes)
    model = Transformer(full_config, {name: tensors[name] for name in shapes})
    return _as_written(model, header["mnemoscope"], folder) if "mnemoscope" in header else model


def _sizes(model: Transformer) -> tuple[int, int, int]:
    """Tokens, positions and answers."""
    d_vocab = model.params["embed.W_E"].shape[0]
    places = model.params.get("pos_embed.W_pos")
    n_ctx = 1 if places is None else places.shape[0]
    unembed = model.params.get("unembed.W_U")
    d_vocab_out = d_vocab if unembed is None else unembed.shape[1]
    return d_vocab, n_ctx, d_vocab_out


def _read_config(path: Path) -> dict[str, Any]:
    """A HookedTransformerConfig that says nothing we could not compute."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _unreadable(path, error) from error
    if not isinstance(data, dict):
        raise UserError(
            f"{str(path)!r} holds a {type(data).__name__}; allowed: the fields of a "
            "HookedTransformerConfig"
        )
    if data.get("d_vocab_out", -1) == -1:  # TransformerLens's default: as many as there are tokens
        data["d_vocab_out"] = data.get("d_vocab")
    _check_sizes(path, data)
    allowed = _allowed_values(data)
    for name, values in allowed.items():
        if name in data and not any(_same(data[name], value) for value in values):
            _refuse(path, data, name, " or ".join(map(repr, values)))
    known = {*SIZES, *allowed, "d_vocab_out", "d_mlp", "act_fn", "eps"}
    _check_other_fields(path, data, known)
    return data


def _unreadable(path: Path, error: Exception) -> UserError:
    """What is said of a file that is not there, or not what its name promises."""
    why = getattr(error, "strerror", None) or str(error).splitlines()[0]
    return UserError(
        f"cannot read {str(path)!r} ({why}); a model is a folder with {WEIGHTS} and {CONFIG}"
    )


def _refuse(path: Path, data: Mapping[str, Any], name: str, allowed: str) -> NoReturn:
    """Stop at a field of the configuration, with what it says and what it may say."""
    came = f"{name}={data[name]!r}" if name in data else f"no {name}"
    raise UserError(f"{str(path)!r} has {came}; allowed: {allowed}")


def _check_sizes(path: Path, data: Mapping[str, Any]) -> None:
    """Every size is there, and is a number that an array can have."""
    names = [*SIZES, "d_vocab_out"]
    if not data.get("attn_only"):
        names.append("d_mlp")
    for name in names:
        # not isinstance: True is an int
        if type(data.get(name)) is not int or not 1 <= data[name] < 2**31:
            _refuse(path, data, name, "a whole number from 1 up that a computer can hold")


def _allowed_values(data: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """What the fields may say that change what is computed; one that is not there says its default,
    which is allowed."""
    allowed: dict[str, tuple[Any, ...]] = {
        "normalization_type": (None, "LN", "LNPre"),
        "attention_dir": ("causal", "bidirectional"),
        "positional_embedding_type": ("standard",),
        "use_attn_scale": (True,),
        "attn_scale": (-1.0, math.sqrt(data["d_head"])),
        "n_key_value_heads": (None, data["n_heads"]),
        "dtype": ("torch.float32", "float32"),
        "attn_scores_soft_cap": (-1.0,),
        "output_logits_soft_cap": (-1.0,),
        "attn_only": (True, False),
    }
    if not data.get("attn_only"):
        allowed["act_fn"] = ("relu",)
    if data.get("normalization_type", "LN") is not None:
        allowed["eps"] = (ModelConfig().norm_eps,)
    return allowed


def _check_other_fields(path: Path, data: Mapping[str, Any], known: set[str]) -> None:
    """No field besides the known ones switches a part on that we do not have."""
    for name, value in data.items():
        # a part that is switched off changes nothing, even one that came after this was written
        if name in known or value in (None, False):
            continue
        if not any(fnmatchcase(name, pattern) for pattern in NO_MATTER):
            _refuse(path, data, name, "None or False, as we have no such part")


def _same(came: Any, value: Any) -> bool:
    """Whether two settings are the same: numbers to six digits, everything else exactly."""
    # JSON has whole numbers that no float holds
    is_number = isinstance(came, int | float) and abs(came) < 1e300
    if is_number and isinstance(value, float):
        return math.isclose(came, value, rel_tol=1e-6)
    return type(came) is type(value) and came == value


def _full_config(data: Mapping[str, Any]) -> ModelConfig:
    """The shape that a HookedTransformerConfig describes, with every bias and an unembedding of its
    own."""
    d_model = data["d_model"]
    n_heads = data["n_heads"]
    d_head = data["d_head"]
    return ModelConfig(
        d_model=d_model,
        n_heads=n_heads,
        n_layers=data["n_layers"],
        d_mlp=0 if data.get("attn_only") else data["d_mlp"],
        norm="none" if data.get("normalization_type", "LN") is None else "pre",
        **({} if n_heads * d_head == d_model else {"d_head": d_head}),
        causal=data.get("attention_dir", "causal") == "causal",
    )


def _read_tensors(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The weights of a state dict, and the header of its file; TransformerLens's masks are left
    out."""
    tensors = {}
    try:
        with safe_open(path, framework="numpy") as file:
            for name in file.keys():  # noqa: SIM118 (no mapping)
                if name.endswith((".attn.mask", ".attn.IGNORE")):
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
        raise _unreadable(path, error) from error


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


def _as_written(model: Transformer, written: str, folder: Path) -> Transformer:
    """A model that we wrote, without what was filled in for TransformerLens.

    Args:
        model: The model as TransformerLens sees it, with everything that was filled in.
        written: Our own configuration, as JSON, from the header of the file.
        folder: Where both come from, for messages.
    """
    where = repr(str(folder / WEIGHTS))
    sizes = _sizes(model)
    try:
        config = ModelConfig.model_validate_json(written)
        kept = parameter_shapes(config, *sizes)
        fits = lens_config(config, *sizes) == lens_config(model.config, *sizes)
    except ValueError as error:
        raise UserError(
            f"the header of {where} is damaged: {str(error).splitlines()[0]}"
        ) from error
    if not fits:
        raise UserError(
            f"the header and {CONFIG} in {str(folder)!r} describe different models; allowed: both "
            "as they were written"
        )
    found = Transformer(config, {name: model.params[name] for name in kept})
    for name, value in lens_state(found).items():
        if not np.array_equal(value, model.params[name]):
            raise UserError(
                f"{name!r} in {where} is not what was filled in for a model without it; save the "
                "file without its header to read it as a model that has it"
            )
    return found
