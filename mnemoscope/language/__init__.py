"""WHAT OTHERS TRAINED: language models of the Llama and GPT-NeoX types, read from a file and run like our own."""

from mnemoscope.language.config import LanguageConfig
from mnemoscope.language.find import find_weights
from mnemoscope.language.forward import LanguageModel, forward
from mnemoscope.language.read import read_model, read_tokenizer
from mnemoscope.language.tokens import Tokenizer

__all__ = ["LanguageConfig", "LanguageModel", "Tokenizer", "find_weights", "forward", "read_model", "read_tokenizer"]
