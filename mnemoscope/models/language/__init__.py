"""WHAT OTHERS TRAINED: language models (Llama, GPT-NeoX, GPT-2), read from a file and
run like our own."""

from mnemoscope.models.language.find import find_weights
from mnemoscope.models.language.language_model import LanguageModel
from mnemoscope.models.language.read import read_model, read_tokenizer
from mnemoscope.models.language.tokens import Tokenizer

__all__ = [
    "LanguageModel",
    "Tokenizer",
    "find_weights",
    "read_model",
    "read_tokenizer",
]
