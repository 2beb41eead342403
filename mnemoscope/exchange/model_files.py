"""Models from elsewhere, whichever format they have: a Hugging Face folder, a folder in
TransformerLens's format, or a GGUF file. No pickle is ever read.
"""

import warnings
from pathlib import Path

from mnemoscope.core.errors import Notice, UserError, short
from mnemoscope.exchange.lens.convert_config import CONFIG
from mnemoscope.exchange.lens.import_model import read_transformer_lens
from mnemoscope.exchange.lens.read_config import read_config
from mnemoscope.models import Transformer
from mnemoscope.models.language import LanguageModel, Tokenizer, read_model, read_tokenizer
from mnemoscope.models.language.hugging_face import PICKLES, TOKENIZER, read_json

# how zip archives, which PyTorch's files are, and pickles begin
MAGIC_OF_PICKLES = (b"PK\x03\x04", b"\x80")
ALLOWED = f"a folder with {CONFIG} and *.safetensors, or a GGUF file"


def load_model(path: Path | str) -> Transformer:
    """A model that was trained elsewhere, to be run, edited and patched like one of our own.

    Where the files have a byte-level tokenizer the model is a `LanguageModel`, which takes text
    for tokens:

        model = ms.load_model("pythia-70m")
        logits, cache = model.run_with_cache("The cat sat on the")

    Nothing is downloaded, and anything that would be computed otherwise than where the model comes
    from is refused in one line.

    Args:
        path: A Hugging Face folder (Llama, GPT-NeoX or GPT-2: config.json, *.safetensors and, for
            text, tokenizer.json), a folder in TransformerLens's format (model.safetensors, the
            state dict, and config.json, the HookedTransformerConfig), or a GGUF file (Llama).
    """
    path = Path(path)
    if not path.exists():
        raise UserError(f"there is no {str(path)!r}; a model is {ALLOWED}")
    if path.is_dir():
        model = _read_folder(path)
    else:
        _refuse_other_files(path)
        model = read_model(path)
    has_tokenizer = not path.is_dir() or (path / TOKENIZER).exists()
    return _with_tokenizer(model, path) if has_tokenizer else model


def longest_prompt(model: Transformer, path: Path | str) -> int:
    """How many tokens a prompt may have, which of some models only a file says.

    Args:
        model: The model.
        path: What it was read from.
    """
    return model.n_ctx or read_config(Path(path) / CONFIG)["n_ctx"]


def _read_folder(path: Path) -> Transformer:
    """The model in a folder, by the fields that its configuration has."""
    if not (path / CONFIG).exists():
        pickles = _pickles_in(path)
        if pickles:
            raise _refused_pickle(pickles[0])
    fields = read_json(path / CONFIG)
    if "model_type" in fields:
        return read_model(path)
    if "d_model" in fields:
        pickles = _pickles_in(path)
        if pickles and not list(path.glob("*.safetensors")):
            raise _refused_pickle(pickles[0])
        return read_transformer_lens(path)
    raise UserError(
        f"{str(path / CONFIG)!r} has neither model_type, as Hugging Face writes it, nor d_model, "
        f"as TransformerLens does; it has: {short(', '.join(fields) or 'nothing')}"
    )


def _pickles_in(path: Path) -> list[Path]:
    return [file for pattern in PICKLES for file in sorted(path.glob(pattern))]


def _refuse_other_files(path: Path) -> None:
    """Raise for a file that is a pickle, or only a part of a model."""
    if path.suffix == ".safetensors":
        raise UserError(
            f"{str(path)!r} has the weights of a model and not its configuration; allowed: the "
            f"folder that has both, as {CONFIG} and *.safetensors"
        )
    try:
        with path.open("rb") as file:
            begins = file.read(4)
    except OSError as error:
        raise UserError(f"{str(path)!r} cannot be read: {error.strerror}") from None
    named_so = any(path.match(pattern) for pattern in PICKLES)
    if begins.startswith(MAGIC_OF_PICKLES) or (named_so and begins != b"GGUF"):
        raise _refused_pickle(path)


def _refused_pickle(path: Path) -> UserError:
    return UserError(
        f"{str(path)!r} is a pickle, which could run code and is never read; save its state_dict "
        "with safetensors.torch.save_file(state_dict, 'DIR/model.safetensors') and its "
        f"configuration as DIR/{CONFIG}: docs/language_models.md"
    )


def _with_tokenizer(model: Transformer, path: Path) -> Transformer:
    """The model with its tokenizer; one that cannot be used is a notice, as numbers will do."""
    try:
        tokenizer = read_tokenizer(path)
        _check_size(tokenizer, model, path)
    except UserError as error:
        warnings.warn(f"prompts are token numbers, not text: {error}", Notice, stacklevel=3)
        return model
    return LanguageModel(model.config, model.params, tokenizer)


def _check_size(tokenizer: Tokenizer, model: Transformer, path: Path) -> None:
    n_named = len(tokenizer.vocabulary)
    if n_named > model.d_vocab:
        raise UserError(
            f"the tokenizer in {str(path)!r} has {n_named:,} tokens, and the model "
            f"{model.d_vocab:,}; allowed: at most as many"
        )
