"""WHAT OTHERS TRAINED: language models (Llama, GPT-NeoX), read from a file and run like our own."""

from mnemoscope.models.language.config import LanguageConfig
from mnemoscope.models.language.find import find_weights
from mnemoscope.models.language.forward import LanguageModel, forward
from mnemoscope.models.language.read import read_model, read_tokenizer
from mnemoscope.models.language.tokens import Tokenizer

__all__ = [
    "LanguageConfig",
    "LanguageModel",
    "Tokenizer",
    "find_weights",
    "forward",
    "read_model",
    "read_tokenizer",
]
