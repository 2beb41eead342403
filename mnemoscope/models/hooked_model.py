"""What models do with prompts, in TransformerLens's words: one model, or a stack of them."""

from collections.abc import Iterable
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
from jax.core import Tracer

from mnemoscope.core.axes import Array, Int, PRNGKeyArray, Tokens
from mnemoscope.core.errors import UserError, short, unknown
from mnemoscope.models.activation_cache import Cache
from mnemoscope.models.batched_pass import run_pass
from mnemoscope.models.edits import Edit, Intervention
from mnemoscope.models.hooks import HookPoint, hooks_at, sites_named
from mnemoscope.models.next_token import continued, next_token_loss
from mnemoscope.models.prompts import check_row, check_rows
from mnemoscope.models.sites import held_for
from mnemoscope.models.transformer_lens_names import (
    MODEL,
    NO_PRETRAINED,
    refuse,
    refuse_keywords,
)
from mnemoscope.models.weights import Weights

Edits = Intervention | Iterable[Intervention]
RETURN_TYPES = ("logits", "loss", "both", None)
# the sites that are in no layer and in no part
SITES_AT_THE_ENDS = ("hook_embed", "hook_pos_embed")


class Hooked(Weights):
    """Runs over prompts, with edits and hooks, and with a cache of everything seen.

    A prompt is a row of token numbers, given as a list or an array; a batch is rows of one length.
    Logits and sites have a batch axis in front for a batch, and none for one row, where
    TransformerLens always has one; a stack of models puts a seed axis before that.
    """

    def __getattr__(self, name: str) -> Any:
        if name in SITES_AT_THE_ENDS and name in self.config.sites():
            return HookPoint(name)
        found = getattr(type(self), name, None)
        if isinstance(found, property) and found.fget:
            # Python asks here where a property says that there is no such name: it says why again
            return found.fget(self)
        return refuse(MODEL, type(self).__name__, name)

    def __call__(
        self,
        tokens: Any,
        edits: Edits = (),
        return_type: str | None = "logits",
        loss_per_token: bool = False,
        **other: Any,
    ) -> Any:
        """Logits after every token; in `jit` and `vmap` too.

        Args:
            tokens: One prompt or a batch of them.
            edits: What the pass should find at some sites instead of what it computed.
            return_type: `logits`; `loss`, that of the next token; `both`; or None for neither.
            loss_per_token: Whether the loss is that of each token instead of the mean.
            **other: What TransformerLens also takes is refused by name.
        """
        refuse_keywords(other, "return_type, loss_per_token, edits")
        tokens = self.check_rows(tokens)
        _check_return_type(return_type)
        logits, _ = self._run(tokens, as_edits(edits), names=())
        return self._returned(logits, tokens, return_type, loss_per_token)

    def run_with_cache(
        self,
        tokens: Any,
        edits: Edits = (),
        names_filter: Any = None,
        remove_batch_dim: bool = False,
        return_type: str | None = "logits",
        **other: Any,
    ) -> tuple[Any, Cache]:
        """Logits and every site's value.

        Args:
            tokens: One prompt or a batch of them, which is checked first.
            edits: What the pass should find at some sites instead of what it computed.
            names_filter: The sites that are cached: a name, a list of names, or a function that
                says yes to names; None: all.
            remove_batch_dim: Whether the cache of a batch of one is that of its row.
            return_type: `logits`; `loss`, that of the next token; `both`; or None for neither.
            **other: What TransformerLens also takes is refused by name.
        """
        refuse_keywords(other, "edits, names_filter, remove_batch_dim, return_type")
        tokens = self.check_rows(tokens)
        _check_return_type(return_type)
        edits = as_edits(edits)
        names = None if names_filter is None else sites_named(self.config, names_filter)
        held = None if names is None else held_for(names, {edit.site for edit in edits})
        logits, trace = self._run(tokens, edits, held)
        cache = Cache(self, trace, has_batch_dim=tokens.ndim == 2, tokens=tokens)
        if names is not None:
            cache = cache.only(list(names))
        if remove_batch_dim:
            cache = cache.remove_batch_dim()
        return self._returned(logits, tokens, return_type), cache

    def run_with_hooks(
        self,
        tokens: Any,
        return_type: str | None = "logits",
        fwd_hooks: Iterable[Any] = (),
        loss_per_token: bool = False,
        edits: Edits = (),
        **other: Any,
    ) -> Any:
        """Logits of a pass in which functions see values of sites and may change them.

        A hook is `(name, function)`. The name is a site's, also in a short form such as
        ("pattern", 0), or a function that says yes to names. The function is called as
        `function(value, hook=hook)`, once for all rows and seeds; `hook.name` and `hook.layer()`
        say where. It may change the value in place, or return another; None leaves it. In `jit`,
        `vmap` and `grad` interventions are edits instead.

        Args:
            tokens: One prompt or a batch of them.
            return_type: `logits`; `loss`, that of the next token; `both`; or None for neither.
            fwd_hooks: The hooks, called in this order where several are at one site.
            loss_per_token: Whether the loss is that of each token instead of the mean.
            edits: Edits besides, which come first.
            **other: What TransformerLens also takes is refused by name.
        """
        refuse_keywords(other, "return_type, fwd_hooks, loss_per_token, edits")
        tokens = self.check_rows(tokens)
        _check_return_type(return_type)
        if any(isinstance(x, Tracer) for x in (tokens, *self.params.values())):
            raise UserError(
                "hooks are called outside of jit, vmap and grad; allowed in them: edits, such as "
                "replace_site and add_to_site"
            )
        both = (*as_edits(edits), *hooks_at(self.config, fwd_hooks))
        logits, _ = self._run(tokens, both, names=())
        return self._returned(logits, tokens, return_type, loss_per_token)

    def generate(
        self,
        tokens: Any,
        max_new_tokens: int = 10,
        temperature: float = 0.0,
        key: PRNGKeyArray | None = None,
        **other: Any,
    ) -> Int[Array, "*axes longer"]:
        """Prompts with what the model says next.

        Args:
            tokens: One prompt or a batch of them.
            max_new_tokens: How many tokens are added; they and the prompt must fit the context.
            temperature: 0 takes the likeliest token, always the same; above, tokens are drawn.
            key: What draws are made from, as by `jax.random.key(0)`.
            **other: What TransformerLens also takes is refused by name.
        """
        refuse_keywords(other, "max_new_tokens, temperature, key")
        tokens = self.check_rows(tokens)
        self._check_generation(tokens.shape[-1], max_new_tokens, temperature, key)
        keys = jax.random.key(0) if key is None else key
        in_front = self._in_front(tokens)
        if in_front:
            keys = jax.random.split(keys, in_front)

        def one_row(params: Any, row: Array, key: Array) -> Array:
            samples = temperature > 0
            heat = jnp.asarray(temperature, float)
            return continued(self.config, params, row, max_new_tokens, samples, heat, key)

        run = one_row
        if tokens.ndim == 2:
            run = jax.vmap(run, in_axes=(None, 0, 0))
        if self.n_leading:
            run = jax.vmap(run, in_axes=(0, None, 0))
        return run(self.params, tokens, keys)

    def loss_fn(self, logits: Array, tokens: Any, per_token: bool = False, **other: Any) -> Array:
        """The loss of the next token, in nats.

        Args:
            logits: The model's, after every token.
            tokens: The prompts.
            per_token: Whether it is that of each token instead of the mean.
            **other: What TransformerLens also takes is refused by name.
        """
        refuse_keywords(other, "per_token")
        tokens = self.check_rows(tokens)
        self._check_answers_are_tokens("a loss of the next token")
        expected = (*self._in_front(tokens), tokens.shape[-1], self.d_vocab)
        if logits.shape != expected:
            raise UserError(f"logits of shape {logits.shape}; allowed: {expected}")
        if tokens.shape[-1] < 2:
            raise UserError("a prompt of one token has no next one; allowed: 2 or more tokens")
        losses = next_token_loss(logits, tokens)
        in_front = losses.ndim - tokens.ndim
        return losses if per_token else losses.mean(axis=tuple(range(in_front, losses.ndim)))

    def check(self, tokens: Any) -> Tokens:
        """One prompt as an array, or an error that says what a prompt may be."""
        self._check_seeds()
        return check_row(tokens, self.d_vocab, self.n_ctx)

    def check_rows(self, tokens: Any) -> Int[Array, "*batch pos"]:
        """One prompt or a batch of them as an array, or an error that says what they may be."""
        self._check_seeds()
        return check_rows(tokens, self.d_vocab, self.n_ctx)

    # ---- what TransformerLens's words ask for, and is so already

    @property
    def hook_dict(self) -> dict[str, HookPoint]:
        """Every site by its full name."""
        return {name: HookPoint(name) for name in self.config.sites()}

    def hook_points(self) -> list[HookPoint]:
        """Every site, in the order of the computation."""
        return list(self.hook_dict.values())

    def eval(self) -> "Hooked":
        """The model itself, which has no other mode."""
        return self

    def reset_hooks(self, *_: Any, **__: Any) -> None:
        """Nothing: no hook stays on a model."""

    def set_use_attn_result(self, use_attn_result: bool) -> None:
        """Nothing: what each head adds is cached anyway."""

    def set_use_split_qkv_input(self, use_split_qkv_input: bool) -> None:
        """Nothing: the sites `hook_q_input`, `hook_k_input` and `hook_v_input` are there anyway."""

    @classmethod
    def from_pretrained(cls, *_: Any, **__: Any) -> NoReturn:
        """Refused: models are read from folders."""
        raise UserError(NO_PRETRAINED)

    @classmethod
    def from_pretrained_no_processing(cls, *_: Any, **__: Any) -> NoReturn:
        """Refused: models are read from folders."""
        raise UserError(NO_PRETRAINED)

    # ---- what these share

    def _run(
        self, tokens: Array, interventions: tuple[Intervention, ...], names: tuple[str, ...] | None
    ) -> tuple[Array, dict[str, Array]]:
        has_seeds = self.n_leading > 0
        return run_pass(self.config, self.params, tokens, interventions, has_seeds, names)

    def _in_front(self, tokens: Array) -> tuple[int, ...]:
        """The axes of seeds and rows."""
        return (*self._seed_axis, *tokens.shape[:-1])

    def _returned(
        self, logits: Array, tokens: Array, return_type: str | None, per_token: bool = False
    ) -> Any:
        if return_type is None:
            return None
        if return_type == "logits":
            return logits
        loss = self.loss_fn(logits, tokens, per_token)
        return loss if return_type == "loss" else (logits, loss)

    def _check_seeds(self) -> None:
        """Raise where one model has the weights of several."""
        name, shape = next(iter(self.config.parameter_shapes(1, 1).items()))
        if self._required(name).ndim == len(shape) + self.n_leading:
            return
        raise UserError(
            "these are the weights of several models, with a seed axis; allowed: "
            "Stack(run.models()), run.model(seed), or vmap over them"
        )

    def _check_answers_are_tokens(self, what: str) -> None:
        if self.d_vocab_out != self.d_vocab:
            raise UserError(
                f"{what} needs answers that are tokens, but this model has {self.d_vocab} tokens "
                f"and {self.d_vocab_out} answers"
            )

    def _check_generation(
        self, n_given: int, n_new: Any, temperature: float, key: PRNGKeyArray | None
    ) -> None:
        self._check_answers_are_tokens("generate")
        if not self.config.is_causal:
            raise UserError(
                "generate needs a model that reads from left to right: causal=True, or is_causal "
                "of a model of another kind"
            )
        n_ctx = self.n_ctx
        fits = isinstance(n_new, int) and n_new >= 0 and (n_ctx is None or n_given + n_new <= n_ctx)
        if not fits:
            most = "or more" if n_ctx is None else f"to {n_ctx - n_given}"
            raise UserError(
                f"max_new_tokens={short(n_new)} after a prompt of {n_given}; allowed: 0 {most}"
            )
        if not temperature >= 0:
            raise UserError(f"temperature={temperature}; allowed: 0 or more")
        if temperature > 0 and key is None:
            raise UserError(
                f"temperature={temperature} draws tokens from a key, got none; allowed: "
                "key=jax.random.key(0), or temperature=0 for the likeliest token"
            )


def as_edits(edits: Any) -> tuple[Intervention, ...]:
    """Edits as a tuple, one alone too.

    Args:
        edits: What was given.
    """
    if isinstance(edits, Edit):
        return (edits,)
    if isinstance(edits, str):
        raise UserError(f"{edits!r} is no edit; allowed: return_type={edits!r}, by its name")
    if not isinstance(edits, Iterable):
        raise UserError(f"{short(edits)} is no edit; allowed: one edit or several")
    found = tuple(edits)
    for each in found:
        if not isinstance(each, Intervention):
            raise UserError(
                f"{short(each)} is no edit; allowed: what replace_site, add_to_site, patch_site "
                "and knock_out_head make"
            )
    return found


def _check_return_type(return_type: str | None) -> None:
    if return_type not in RETURN_TYPES:
        raise UserError(unknown("return_type", return_type, RETURN_TYPES))
