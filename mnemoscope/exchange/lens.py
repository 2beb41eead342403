r"""Models in TransformerLens's format, both ways: a folder with `model.safetensors`, the state dict, and `config.json`.

Names and axes are the same on both sides, so a tensor goes over as it is. What differs is what may be left out: a
HookedTransformer always has biases and a read-out of its own, so zeros and the transposed embedding are written for what a model
of ours does without. The header of the file keeps our own configuration, and reading gives back the very same model. Reading
such a folder into TransformerLens (masks are buffers without weights, whose shape depends on its version: hence strict=False):

    config = HookedTransformerConfig.from_dict(json.load(open("DIR/config.json")))
    model = HookedTransformer(config)
    model.load_state_dict(safetensors.torch.load_file("DIR/model.safetensors"), strict=False)

and writing one there, for `read_transformer_lens` and `mnemoscope import`:

    state = {name: value.contiguous() for name, value in model.state_dict().items()}
    safetensors.torch.save_file(state, "DIR/model.safetensors")
    json.dump(model.cfg.to_dict(), open("DIR/config.json", "w"), default=str)

What the other side cannot say is refused by name: a model that loads and computes something else would be worse than none.
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
from mnemoscope.models.forward import NORM_EPS

WEIGHTS, CONFIG = "model.safetensors", "config.json"
# what a HookedTransformerConfig may say without changing what is computed from tokens in evaluation, as patterns: where it runs,
# where it came from, what is hooked, how it was drawn, tokenizers, and details of parts that are refused when they are on
NO_MATTER = (
    "model_name", "device", "n_devices", "seed", "init_*", "initializer_range", "n_params", "use_attn_result", "use_attn_in",
    "use_split_qkv_input", "use_hook_*", "default_prepend_bos", "tokenizer_*", "trust_remote_code", "original_architecture",
    "from_checkpoint", "checkpoint_*", "layer_norm_folding", "window_size", "attn_types", "rotary_*", "NTK_*", "yarn_*",
    "train_seq_length", "experts_per_token", "norm_topk_prob", "tie_word_embeddings", "ungroup_grouped_query_attention",
)  # fmt: skip
SIZES = ("n_layers", "d_model", "n_ctx", "d_head", "n_heads", "d_vocab")


def lens_config(config: ModelConfig, d_vocab: int, n_ctx: int, d_vocab_out: int) -> dict[str, Any]:
    """The fields of the HookedTransformerConfig of a model; what TransformerLens has no word for raises."""
    mlps = {config.has_mlp(layer) for layer in range(config.n_layers)}
    foreign = {
        "norm": config.norm == "post",
        "act": mlps == {True} and config.act != "relu",
        "mlp_layers": len(mlps) > 1,
        "positions": not config.positions,
        "attention": config.attention != "softmax",
        "attn_residual": not config.attn_residual,
    }
    if said := [f"{name}={getattr(config, name)!r}" for name, is_so in foreign.items() if is_so]:
        raise UserError(f"TransformerLens has no {', '.join(said)}; allowed: norm 'none' or 'pre', act 'relu', a feed-forward part "
                        "in all layers or none, positions, softmax attention with a residual")  # fmt: skip
    return {
        "n_layers": config.n_layers, "d_model": config.d_model, "n_ctx": n_ctx, "d_head": config.d_head,
        "n_heads": config.n_heads, "d_vocab": d_vocab, "d_vocab_out": d_vocab_out, "attn_only": mlps == {False},
        "d_mlp": config.d_mlp if mlps == {True} else None, "act_fn": "relu",
        "normalization_type": "LN" if config.norm == "pre" else None, "eps": NORM_EPS,
        "attention_dir": "causal" if config.causal else "bidirectional", "use_attn_result": True,
        "positional_embedding_type": "standard", "model_name": "mnemoscope",
    }  # fmt: skip


def lens_state(model: Transformer) -> dict[str, Float[np.ndarray, "..."]]:
    """The state dict of the HookedTransformer that computes the same, without its masks."""
    params = {name: np.asarray(value) for name, value in model.params.items()}
    whole = _whole(lens_config(model.config, *_sizes(model)))
    if "unembed.W_U" not in params:
        params["unembed.W_U"] = params["embed.W_E"].T
    shapes = parameter_shapes(whole, *_sizes(model))
    return {name: np.ascontiguousarray(params.get(name, np.zeros(shape, np.float32))) for name, shape in shapes.items()}


def write_transformer_lens(
    model: Transformer, folder: Path | str, force: bool = False, about: Mapping[str, str] | None = None
) -> None:
    """Write a model for TransformerLens; `about` goes into the header of the file. `force` writes into a used folder."""
    state, config = lens_state(model), lens_config(model.config, *_sizes(model))
    header = {**(about or {}), "mnemoscope": model.config.canonical_json()}
    with new_folder(Path(folder), force, CONFIG) as where:
        (where / WEIGHTS).write_bytes(save(state, header))  # as bytes: a file of their own would be the owner's alone
        (where / CONFIG).write_text(json.dumps(config, indent=1), encoding="utf-8")


def read_transformer_lens(folder: Path | str) -> Transformer:
    """The model in a folder in TransformerLens's format, in float32; anything that does not fit is one line."""
    folder = Path(folder)
    data = _config(folder / CONFIG)
    found, header = _tensors(folder / WEIGHTS)
    if data["n_layers"] > len(found):  # before a billion names are made
        raise UserError(
            f"{CONFIG} has n_layers={data['n_layers']}, but {WEIGHTS} in {str(folder)!r} only {len(found)} tensors"
        )
    whole = _whole(data)
    shapes = parameter_shapes(whole, data["d_vocab"], data["n_ctx"], data["d_vocab_out"])
    if data.get("normalization_type") == "LNPre":  # a norm whose weights were folded into the next layer
        norms = {name: shape for name, shape in shapes.items() if ".ln" in f".{name}" and name not in found}
        found |= {name: np.broadcast_to(np.float32(name.endswith(".w")), shape) for name, shape in norms.items()}
    where = repr(str(folder / WEIGHTS))
    for name, shape in shapes.items():
        if name not in found:
            raise UserError(f"{where} has no {name!r}, which {CONFIG} asks for; it has: {', '.join(found)}")
        if found[name].shape != shape:
            raise UserError(f"{name!r} in {where} has shape {found[name].shape}; {CONFIG} says {shape}")
        if not np.isfinite(found[name]).all():
            raise UserError(f"{name!r} in {where} has numbers that are not finite; allowed: finite ones")
    if left := sorted(set(found) - set(shapes)):
        raise UserError(
            f"{where} has {left[0]!r}, which a model of this {CONFIG} does not use; allowed: {', '.join(shapes)}"
        )
    model = Transformer(whole, {name: found[name] for name in shapes})
    return _as_it_was(model, header["mnemoscope"], folder) if "mnemoscope" in header else model


def _sizes(model: Transformer) -> tuple[int, int, int]:
    """Tokens, positions and answers."""
    embed, places, unembed = (model.params.get(name) for name in ("embed.W_E", "pos_embed.W_pos", "unembed.W_U"))
    assert embed is not None
    n_out = embed.shape[0] if unembed is None else unembed.shape[1]
    return embed.shape[0], 1 if places is None else places.shape[0], n_out


def _config(path: Path) -> dict[str, Any]:
    """A HookedTransformerConfig that says nothing we could not compute."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        why = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise UserError(
            f"cannot read {str(path)!r} ({why}); a model is a folder with {WEIGHTS} and {CONFIG}"
        ) from error
    if not isinstance(data, dict):
        raise UserError(
            f"{str(path)!r} holds a {type(data).__name__}; allowed: the fields of a HookedTransformerConfig"
        )

    def refuse(name: str, allowed: str) -> NoReturn:
        came = f"{name}={data[name]!r}" if name in data else f"no {name}"
        raise UserError(f"{str(path)!r} has {came}; allowed: {allowed}")

    if data.get("d_vocab_out", -1) == -1:
        data["d_vocab_out"] = data.get("d_vocab")
    for name in (*SIZES, "d_vocab_out", *(() if data.get("attn_only") else ("d_mlp",))):
        if type(data.get(name)) is not int or not 1 <= data[name] < 2**31:
            refuse(name, "a whole number from 1 up that a computer can hold")
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
    allowed |= {} if data.get("attn_only") else {"act_fn": ("relu",)}
    allowed |= {} if data.get("normalization_type", "LN") is None else {"eps": (NORM_EPS,)}
    for name, values in allowed.items():
        if name in data and not any(_same(data[name], value) for value in values):
            refuse(name, " or ".join(map(repr, values)))
    known = {*SIZES, *allowed, "d_vocab_out", "d_mlp", "act_fn", "eps"}
    for name, value in data.items():
        # a part that is switched off changes nothing, even one that came after this was written
        if name not in known and value not in (None, False) and not any(fnmatchcase(name, p) for p in NO_MATTER):
            refuse(name, "None or False, as we have no such part")
    return data


def _same(came: Any, value: Any) -> bool:
    """Whether two settings are the same: numbers to six digits, everything else exactly."""
    numbers = isinstance(came, int | float) and abs(came) < 1e300 and isinstance(value, float)
    return math.isclose(came, value, rel_tol=1e-6) if numbers else type(came) is type(value) and came == value


def _whole(data: Mapping[str, Any]) -> ModelConfig:
    """The shape that a HookedTransformerConfig describes, with every bias and a read-out of its own."""
    heads, d_head, d_model = data["n_heads"], data["d_head"], data["d_model"]
    return ModelConfig(
        d_model=d_model, n_heads=heads, n_layers=data["n_layers"], d_mlp=0 if data.get("attn_only") else data["d_mlp"],
        norm="none" if data.get("normalization_type", "LN") is None else "pre",
        head_dim=None if heads * d_head == d_model else d_head, causal=data.get("attention_dir", "causal") == "causal",
    )  # fmt: skip


def _tensors(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The weights of a state dict, and the header of its file; TransformerLens's masks are left out."""
    found = {}
    try:
        with safe_open(path, framework="numpy") as file:
            for name in file.keys():  # noqa: SIM118 (no mapping)
                if name.endswith((".attn.mask", ".attn.IGNORE")):
                    continue
                if (kind := file.get_slice(name).get_dtype()) != "F32":
                    raise UserError(f"{name!r} in {str(path)!r} is {kind}; allowed: F32 (model.float() makes it so)")
                found[name] = file.get_tensor(name)
            return found, file.metadata() or {}
    except (OSError, SafetensorError) as error:
        why = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise UserError(
            f"cannot read {str(path)!r} ({why}); a model is a folder with {WEIGHTS} and {CONFIG}"
        ) from error


def _as_it_was(model: Transformer, written: str, folder: Path) -> Transformer:
    """A model that we wrote, without what was filled in for TransformerLens."""
    try:
        config = ModelConfig.model_validate_json(written)
        kept = parameter_shapes(config, *_sizes(model))
        fits = lens_config(config, *_sizes(model)) == lens_config(model.config, *_sizes(model))
    except ValueError as error:
        raise UserError(f"the header of {str(folder / WEIGHTS)!r} is damaged: {str(error).splitlines()[0]}") from error
    if not fits:
        raise UserError(
            f"the header and {CONFIG} in {str(folder)!r} describe different models; allowed: both as they were written"
        )
    found = Transformer(config, {name: model.params[name] for name in kept})
    for name, value in lens_state(found).items():
        if not np.array_equal(value, model.params[name]):
            raise UserError(f"{name!r} in {str(folder / WEIGHTS)!r} is not what was filled in for a model without it; save the "
                            "file without its header to read it as a model that has it")  # fmt: skip
    return found
