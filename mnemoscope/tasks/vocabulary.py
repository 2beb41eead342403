"""Tokens and a longest prompt, and no sequences: all that is known of the task of a model from
elsewhere.

Such a model can be asked anything, and nobody here knows what it was asked in training. So nothing
can be drawn, no answer is right or wrong, and there is no loss.
"""

from typing import Annotated, ClassVar, Literal, NoReturn

from pydantic import Field, model_validator

from mnemoscope.core.axes import PRNGKeyArray
from mnemoscope.core.errors import UserError, short
from mnemoscope.tasks.base import Task

Size = Annotated[int, Field(ge=1, le=2**24)]


class Vocabulary(Task):
    """The tokens of a model from elsewhere, and how many of them a prompt may have."""

    omit_if_default: ClassVar[frozenset[str]] = frozenset({"n_answers", "names"})

    kind: Literal["vocabulary"] = "vocabulary"
    """The name of this task in files."""

    n_tokens: Size
    """How many tokens there are."""

    n_positions: Size
    """The longest prompt."""

    n_answers: Size | None = None
    """How many answers there are, where they are not the tokens."""

    names: tuple[str, ...] = ()
    """Each token as it is written in prompts, with spaces between them; none: by its number."""

    @model_validator(mode="after")
    def _check(self) -> "Vocabulary":
        if not self.names:
            return self
        if len(self.names) != self.n_tokens:
            raise ValueError(f"{len(self.names)} names for {self.n_tokens} tokens")
        if len(set(self.names)) != self.n_tokens:
            raise ValueError("two tokens have one name; allowed: a name for each")
        for name in self.names:
            if name.split() != [name]:
                raise ValueError(f"a token is named {short(name)}; allowed: names without spaces")
        return self

    @property
    def d_vocab(self) -> int:
        return self.n_tokens

    @property
    def d_vocab_out(self) -> int:
        return self.n_tokens if self.n_answers is None else self.n_answers

    @property
    def n_ctx(self) -> int:
        return self.n_positions

    @property
    def token_names(self) -> tuple[str, ...]:
        return self.names or super().token_names

    def sample(self, world: tuple[()], *, key: PRNGKeyArray) -> NoReturn:
        """Refused: there is nothing to draw from."""
        raise UserError(
            "of a model from elsewhere no training sequences are known; allowed: prompts of your "
            "own (--prompt), or its import with the task of a stored run (--like)"
        )
