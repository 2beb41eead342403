"""A model with its tokenizer: a Transformer that takes text wherever it takes tokens.

model = ms.load_model("pythia-70m")
logits, cache = model.run_with_cache("The cat sat on the")
model.tokenizer.decode(model.generate("The cat sat on the"))
"""

from dataclasses import dataclass, field
from typing import Any

import jax

from mnemoscope.core.axes import Array, Int, Tokens
from mnemoscope.core.errors import UserError, short
from mnemoscope.models.language.tokens import Tokenizer
from mnemoscope.models.transformer import Transformer


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False)
class LanguageModel(Transformer):
    """A model that knows how its tokens are written.

    A prompt is a row of token numbers or a text; a batch is rows, or texts, of one length in
    tokens. No token is put before a text that is not in it.
    """

    tokenizer: Tokenizer = field(metadata={"static": True})
    """What makes tokens of a text, and texts of tokens: `encode` and `decode`."""

    def __repr__(self) -> str:
        return f"<LanguageModel: {super().__repr__()[1:-1]}, {self.tokenizer!r}>"

    def check(self, tokens: Any) -> Tokens:
        """One prompt, which may be a text, as an array, or an error that says what it may be."""
        return super().check(self._encoded(tokens))

    def check_rows(self, tokens: Any) -> Int[Array, "*batch pos"]:
        """One prompt or a batch of them, which may be texts, as an array, or an error that says
        what they may be."""
        return super().check_rows(self._encoded(tokens))

    def _encoded(self, prompts: Any) -> Any:
        """Texts as rows of tokens; anything else as it is."""
        if isinstance(prompts, str):
            return self._row(prompts)
        is_batch = isinstance(prompts, list | tuple) and len(prompts) > 0
        if not is_batch or not all(isinstance(text, str) for text in prompts):
            return prompts
        rows = [self._row(text) for text in prompts]
        lengths = [len(row) for row in rows]
        if len(set(lengths)) > 1:
            raise UserError(
                f"texts of {short(lengths)} tokens; allowed: one text, or texts of as many tokens "
                "each"
            )
        return rows

    def _row(self, text: str) -> list[int]:
        """The tokens of a text, of which there is one at least."""
        found = self.tokenizer.encode(text)
        if not found:
            raise UserError("the text is empty; allowed: a text of one token or more")
        return found
