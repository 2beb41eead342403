"""Models and tokenizers from files: GGUF files (Llama), or config.json and *.safetensors (Llama,
GPT-NeoX or GPT-2).

What cannot be read says why in one line. A tensor that the forward pass would not use is refused:
leaving it out would be silent.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from mnemoscope.core.errors import UserError, short
from mnemoscope.models.language.gguf_file import read_gguf, read_gguf_tokenizer
from mnemoscope.models.language.hugging_face import read_folder, read_folder_tokenizer
from mnemoscope.models.language.tensor_layouts import take_parameters
from mnemoscope.models.language.tokens import Tokenizer
from mnemoscope.models.shapes import parameter_shapes
from mnemoscope.models.transformer import Transformer

# buffers of old checkpoints that hold no weights: masks, and angles that follow from the base
NO_WEIGHTS = re.compile(
    r".*\.(rotary_emb\.inv_freq|(attention|attn)\.bias|(attention|attn)\.masked_bias)$"
)
# what is raised where a file says anything else than it should
DAMAGE = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    MemoryError,
    OSError,
)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Around whatever takes a file at its word: a damaged one is refused in one line."""
    try:
        yield
    except UserError:
        raise
    except DAMAGE as error:
        said = f"{type(error).__name__}: {short(str(error))}"
        raise UserError(
            f"{str(path)!r} is damaged, or not of a kind that can be read ({said})"
        ) from None


def read_model(path: Path) -> Transformer:
    """The model in a GGUF file or a safetensors folder, in float32.

    Args:
        path: The file or the folder.
    """
    with _reading(path):
        return _model(path)


def _model(path: Path) -> Transformer:
    described, tensors = read_folder(path) if path.is_dir() else read_gguf(path)
    config = described.config
    found = take_parameters(described.layout, config, tensors)
    left = [name for name in tensors if not NO_WEIGHTS.fullmatch(name)]
    if left:
        raise UserError(
            f"{str(path)!r} has {len(left)} tensors that a {described.layout} model of this shape "
            f"does not use: {left[0]!r}"
        )
    for name, shape in parameter_shapes(config, described.d_vocab, config.n_ctx or 1).items():
        if found[name].shape != shape:
            raise UserError(
                f"{name} in {str(path)!r} has shape {found[name].shape}; "
                f"its configuration says {shape}"
            )
        if not np.isfinite(found[name]).all():
            raise UserError(
                f"{name} in {str(path)!r} has numbers that are not finite; allowed: finite ones"
            )
    return Transformer(config, found)


def read_tokenizer(path: Path) -> Tokenizer:
    """The byte-level tokenizer of a model: in its GGUF file, or tokenizer.json in its folder.

    Args:
        path: The file or the folder.
    """
    with _reading(path):
        found = read_folder_tokenizer(path) if path.is_dir() else read_gguf_tokenizer(path)
        parts = [part for pair in found.merges for part in pair]
        if not all(isinstance(text, str) for text in (*found.vocabulary, *parts)):
            raise TypeError("a token or a merge is no text")
        return found
