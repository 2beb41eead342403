r"""The residual stream as the sum of what was added to it: TransformerLens's ActivationCache.

    resid = embed + pos_embed + sum_layer (attn_out + mlp_out)
    attn_out = sum_head result + b_O
    mlp_out = sum_neuron post W_out + b_out
    logits = norm(resid) W_U + b_U

A stack of components has a component axis in front, after the seed axis if there is one. A norm
divides by the length of the whole stream, so that components are divided by what was cached, and
the sum of components goes through as a whole. `apply_ln_to_stack` also applies the norm's weights
w, which a HookedTransformer has folded into the next matrix when it is loaded: its values are those
of TransformerLens after folding, and with the weights of a fresh norm before it too.
"""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array
from mnemoscope.core.errors import UserError, unknown
from mnemoscope.models.cached_sites import CachedSites, PosSlice, take
from mnemoscope.models.hooks import sites_named
from mnemoscope.models.norms import NORMS
from mnemoscope.models.sites import SiteName
from mnemoscope.models.transformer_lens_names import refuse_keywords

Labeled = tuple[Array, list[str]]
MODES = ("all", "attn", "mlp")


class Cache(CachedSites):
    """What one run saw, and what its stream is made of."""

    def only(self, names: Any) -> "Cache":
        """The cache of some sites.

        Args:
            names: A name, a list of names, or a function that says yes to names.
        """
        chosen = sites_named(self.model.config, names)
        trace = {name: self[name] for name in chosen}
        return Cache(self.model, trace, self.has_batch_dim, self.tokens)

    def remove_batch_dim(self) -> "Cache":
        """Take the batch axis away, in place, where the batch has one row; one row has none."""
        if not self.has_batch_dim:
            return self
        axis = self.model.n_leading
        sizes = {x.shape[axis] for x in self.trace.values()}
        if sizes != {1}:
            raise UserError(f"the batch has {max(sizes)} rows; allowed: a batch of one")
        self.trace = {name: jnp.squeeze(x, axis) for name, x in self.trace.items()}
        self.has_batch_dim = False
        self.tokens = None if self.tokens is None else self.tokens[0]
        return self

    def apply_slice_to_batch_dim(self, batch_slice: PosSlice) -> "Cache":
        """The cache of some rows of the batch.

        Args:
            batch_slice: The rows: one number (which takes the axis away), a row of them, a slice,
                (start, stop) or None for all.
        """
        if batch_slice is None:
            return Cache(self.model, self.trace, self.has_batch_dim, self.tokens)
        self._check_batch(True)
        axis = self.model.n_leading
        trace = {name: take(x, batch_slice, axis) for name, x in self.trace.items()}
        is_one = not isinstance(batch_slice, slice | tuple) and np.ndim(batch_slice) == 0
        tokens = None if self.tokens is None else take(self.tokens, batch_slice, 0)
        return Cache(self.model, trace, not is_one, tokens)

    # ---- the stream and its parts

    def accumulated_resid(
        self,
        layer: int | None = None,
        incl_mid: bool = False,
        apply_ln: bool = False,
        pos_slice: PosSlice = None,
        mlp_input: bool = False,
        return_labels: bool = False,
    ) -> Array | Labeled:
        """The stream before every layer, and at the end: what a logit lens reads.

        Args:
            layer: The last layer whose input is there; -1 or None: the end too.
            incl_mid: Whether the streams between attention and feed-forward are there.
            apply_ln: Whether each goes through the norm of what receives the last one; at the end,
                each is measured for itself.
            pos_slice: The positions that are taken.
            mlp_input: Whether the stream between the two parts of the last layer is there.
            return_labels: Whether labels come too.
        """
        stop = self.model.layers_before(layer, mlp_input)
        sites = self.model.config.sites()
        parts: dict[str, Array] = {}
        for i in range(min(stop + 1, self.model.config.n_layers)):
            parts[f"{i}_pre"] = self["resid_pre", i]
            is_asked = mlp_input if i == stop else incl_mid
            # there is none in a parallel layer, whose parts receive the same stream
            if is_asked and f"blocks.{i}.hook_resid_mid" in sites:
                parts[f"{i}_mid"] = self["resid_mid", i]
        is_end = stop == self.model.config.n_layers
        if is_end:
            parts["final_post"] = self["resid_post", -1]
        stack = self._stack(parts, pos_slice)
        if apply_ln:
            stack = self.apply_ln_to_stack(
                stack, stop, mlp_input=mlp_input, pos_slice=pos_slice, recompute_ln=is_end
            )
        return (stack, list(parts)) if return_labels else stack

    def decompose_resid(
        self,
        layer: int | None = None,
        mlp_input: bool = False,
        mode: str = "all",
        apply_ln: bool = False,
        pos_slice: PosSlice = None,
        incl_embeds: bool = True,
        return_labels: bool = False,
    ) -> Array | Labeled:
        """What was added to the stream before a layer: embeddings, and each part of each layer.

        Args:
            layer: The layer that receives the stream; -1 or None: the unembedding.
            mlp_input: Whether its feed-forward part does, after its attention.
            mode: Whether all parts are there, or those of `attn` or `mlp` alone.
            apply_ln: Whether the parts go through the norm of what receives them.
            pos_slice: The positions that are taken.
            incl_embeds: Whether embeddings are there.
            return_labels: Whether labels come too.
        """
        stop = self.model.layers_before(layer, mlp_input)
        self._check_is_sum()
        if mode not in MODES:
            raise UserError(unknown("mode", mode, MODES))
        config = self.model.config
        parts = self._embeddings() if incl_embeds else {}
        for i in range(stop + int(mlp_input)):
            is_before = i < stop
            # in a parallel layer both parts receive the same stream
            reaches = is_before or not config.parallel_attn_mlp
            if mode != "mlp" and config.has_attn(i) and reaches:
                parts[f"{i}_attn_out"] = self["attn_out", i]
            if mode != "attn" and config.has_mlp(i) and is_before:
                parts[f"{i}_mlp_out"] = self["mlp_out", i]
        stack = self._stack(parts, pos_slice)
        if apply_ln:
            stack = self.apply_ln_to_stack(stack, stop, mlp_input, pos_slice)
        return (stack, list(parts)) if return_labels else stack

    def stack_head_results(
        self,
        layer: int | None = -1,
        return_labels: bool = False,
        incl_remainder: bool = False,
        pos_slice: PosSlice = None,
        apply_ln: bool = False,
    ) -> Array | Labeled:
        """What every head of the layers before a layer added to the stream.

        Args:
            layer: The layer that receives the stream; -1 or None: the unembedding.
            return_labels: Whether labels come too: `L0H1`.
            incl_remainder: Whether all the rest of the stream comes last.
            pos_slice: The positions that are taken.
            apply_ln: Whether the results go through the norm of what receives them.
        """
        stop = self.model.layers_before(layer)
        layers = [i for i in range(stop) if self.model.config.has_attn(i)]
        results = [self["result", i, "attn"] for i in layers]
        labels = [f"L{i}H{head}" for i in layers for head in range(self.model.config.n_heads)]
        stack = self._side_by_side(results, labels, stop, False, incl_remainder)
        stack = take(stack, pos_slice, -2)
        if apply_ln:
            stack = self.apply_ln_to_stack(stack, stop, pos_slice=pos_slice)
        return (stack, labels) if return_labels else stack

    def get_neuron_results(
        self,
        layer: int,
        neuron_slice: PosSlice = None,
        pos_slice: PosSlice = None,
        **other: Any,
    ) -> Array:
        """What every hidden unit of a layer adds to the stream, with the units before d_model.

        Args:
            layer: The layer.
            neuron_slice: The units that are taken.
            pos_slice: The positions that are taken.
            **other: What TransformerLens also takes is refused by name.
        """
        refuse_keywords(other, "layer, neuron_slice, pos_slice")
        post = take(take(self["post", layer, "mlp"], pos_slice, -2), neuron_slice, -1)
        number = layer + self.model.config.n_layers if layer < 0 else layer
        w_out = self.model.parameter(f"blocks.{number}.mlp.W_out")
        n_leading = self.model.n_leading
        w_out = take(w_out, neuron_slice, n_leading)
        missing = post.ndim + 1 - w_out.ndim
        return post[..., None] * jnp.expand_dims(
            w_out, tuple(n_leading + i for i in range(missing))
        )

    def stack_neuron_results(
        self,
        layer: int | None = -1,
        pos_slice: PosSlice = None,
        neuron_slice: PosSlice = None,
        return_labels: bool = False,
        incl_remainder: bool = False,
        apply_ln: bool = False,
        *,
        mlp_input: bool = False,
        **other: Any,
    ) -> Array | Labeled:
        """What every hidden unit of the layers before a layer added to the stream.

        Args:
            layer: The layer that receives the stream; -1 or None: the unembedding.
            pos_slice: The positions that are taken.
            neuron_slice: The units that are taken of each layer.
            return_labels: Whether labels come too: `L0N12`.
            incl_remainder: Whether all the rest of the stream comes last.
            apply_ln: Whether the results go through the norm of what receives them.
            mlp_input: Whether the layer's feed-forward part receives it.
            **other: What TransformerLens also takes is refused by name.
        """
        refuse_keywords(other, "pos_slice, neuron_slice, incl_remainder, apply_ln, mlp_input")
        stop = self.model.layers_before(layer, mlp_input)
        layers = [i for i in range(stop) if self.model.config.has_mlp(i)]
        neurons = np.atleast_1d(take(jnp.arange(self.model.config.d_mlp), neuron_slice, 0))
        results = [self.get_neuron_results(i, neurons) for i in layers]
        labels = [f"L{i}N{neuron}" for i in layers for neuron in neurons.tolist()]
        stack = self._side_by_side(results, labels, stop, mlp_input, incl_remainder)
        stack = take(stack, pos_slice, -2)
        if apply_ln:
            stack = self.apply_ln_to_stack(stack, stop, mlp_input, pos_slice)
        return (stack, labels) if return_labels else stack

    def get_full_resid_decomposition(
        self,
        layer: int | None = None,
        mlp_input: bool = False,
        expand_neurons: bool = True,
        apply_ln: bool = False,
        pos_slice: PosSlice = None,
        return_labels: bool = False,
        **other: Any,
    ) -> Array | Labeled:
        """The whole stream before a layer: heads, hidden units, embeddings, and the sum of biases.

        Args:
            layer: The layer that receives the stream; -1 or None: the unembedding.
            mlp_input: Whether its feed-forward part does, after its attention.
            expand_neurons: Whether hidden units come one by one instead of a layer at once.
            apply_ln: Whether the parts go through the norm of what receives them.
            pos_slice: The positions that are taken.
            return_labels: Whether labels come too.
            **other: What TransformerLens also takes is refused by name.
        """
        refuse_keywords(other, "mlp_input, expand_neurons, apply_ln, pos_slice, return_labels")
        stop = self.model.layers_before(layer, mlp_input)
        self._check_is_sum()
        # in a parallel layer both parts receive the same stream
        with_attn = mlp_input and not self.model.config.parallel_attn_mlp
        stacks = [self.stack_head_results(stop + int(with_attn), return_labels=True)]
        if expand_neurons:
            stacks.append(self.stack_neuron_results(stop, return_labels=True))
        elif any(map(self.model.config.has_mlp, range(stop))):
            stacks.append(
                self.decompose_resid(stop, mode="mlp", incl_embeds=False, return_labels=True)
            )
        embeddings = self._embeddings()
        stacks.append((self._stack(embeddings, None), list(embeddings)))
        stream = self["embed"]
        bias = self._fitting(self.model.accumulated_bias(stop, with_attn, expand_neurons), stream)
        everywhere = {"bias": jnp.broadcast_to(bias, stream.shape)}
        stacks.append((self._stack(everywhere, None), list(everywhere)))
        axis = self.model.n_leading
        stack = take(jnp.concatenate([x for x, _ in stacks], axis=axis), pos_slice, -2)
        labels = [label for _, each in stacks for label in each]
        if apply_ln:
            stack = self.apply_ln_to_stack(stack, stop, mlp_input, pos_slice)
        return (stack, labels) if return_labels else stack

    # ---- what receives the stream

    def apply_ln_to_stack(
        self,
        residual_stack: Any,
        layer: int | None = None,
        mlp_input: bool = False,
        pos_slice: PosSlice = None,
        batch_slice: PosSlice = None,
        has_batch_dim: bool | None = None,
        recompute_ln: bool = False,
    ) -> Array:
        """What components become in the norm that receives the stream: nothing else without one.

        Args:
            residual_stack: The components; all axes but the first are those of the stream.
            layer: The layer that receives the stream; -1 or None: the unembedding.
            mlp_input: Whether its feed-forward part does.
            pos_slice: The positions that were taken.
            batch_slice: The rows of the batch that are taken, of the components too.
            has_batch_dim: Whether components have a batch axis; left out, as the cache has.
            recompute_ln: Whether each is measured for itself, and shifted, as if it were the
                stream, instead of divided by what was cached.
        """
        config = self.model.config
        stop = self.model.layers_before(layer, mlp_input)
        cache = self
        stack = jnp.asarray(residual_stack)
        if batch_slice is None:
            self._check_batch(has_batch_dim)
        else:
            cache = self.apply_slice_to_batch_dim(batch_slice)
            if has_batch_dim is not False:
                stack = take(stack, batch_slice, self.model.n_leading + 1)
        if config.norm != "pre":
            return stack
        name = f"blocks.{stop}.{'ln2' if mlp_input else 'ln1'}"
        if stop == config.n_layers:
            name = "ln_final"
        kind = NORMS[config.norm_type]
        if kind.subtracts_mean:
            stack = stack - stack.mean(axis=-1, keepdims=True)
        if recompute_ln:
            scale = jnp.sqrt(jnp.square(stack).mean(axis=-1, keepdims=True) + config.norm_eps)
        else:
            scale = self._fitting(take(cache[f"{name}.hook_scale"], pos_slice, -2), stack)
        standard = stack / scale * self._fitting(self.model.parameter(f"{name}.w"), stack)
        if recompute_ln and kind.has_shift:
            standard = standard + self._fitting(self.model.parameter(f"{name}.b"), stack)
        return standard

    def logit_attrs(
        self,
        residual_stack: Any,
        tokens: Any,
        incorrect_tokens: Any = None,
        pos_slice: PosSlice = None,
        batch_slice: PosSlice = None,
        has_batch_dim: bool | None = None,
    ) -> Array:
        """How much each component adds to the logit of a token, or to a difference of two logits.

        The components of a whole stream add up to its logits without the unembedding's bias and
        what the last norm's shift adds.

        Args:
            residual_stack: The components; all axes but the first are those of the stream.
            tokens: One token; or one for each row of the batch; or one for each row and position.
            incorrect_tokens: Those whose logits are subtracted.
            pos_slice: The positions that were taken.
            batch_slice: The rows of the batch that are taken, of the components too; tokens are
                those of these rows.
            has_batch_dim: Whether components have a batch axis; left out, as the cache has.
        """
        stack = self.apply_ln_to_stack(
            residual_stack,
            pos_slice=pos_slice,
            batch_slice=batch_slice,
            has_batch_dim=has_batch_dim,
        )
        directions = self.model.tokens_to_residual_directions(tokens)
        if incorrect_tokens is not None:
            others = self.model.tokens_to_residual_directions(incorrect_tokens)
            if others.shape != directions.shape:
                raise UserError(
                    f"incorrect_tokens of shape {np.shape(incorrect_tokens)}; allowed: "
                    f"{np.shape(tokens)}, as tokens"
                )
            directions = directions - others
        n_leading = self.model.n_leading
        # what a token is asked for: rows, positions, or rows and positions
        own = directions.shape[n_leading:-1]
        rest = stack.shape[n_leading + 1 : -1]
        if own == (1,) and not rest:
            directions = jnp.squeeze(directions, n_leading)
            own = ()
        fits = len(own) <= len(rest) and all(n in (1, m) for n, m in zip(own, rest, strict=False))
        if not fits:
            raise UserError(
                f"tokens of shape {own} for a stack of shape {stack.shape}; allowed: one token, or "
                f"as many as the first of its axes {rest}"
            )
        missing = len(rest) - len(own)
        last = directions.ndim - 1
        directions = jnp.expand_dims(directions, tuple(range(last, last + missing)))
        return (stack * jnp.expand_dims(directions, n_leading)).sum(axis=-1)

    # ---- what these share

    def _embeddings(self) -> dict[str, Array]:
        names = ("embed", "pos_embed")
        sites = self.model.config.sites()
        return {name: self[name] for name in names if f"hook_{name}" in sites}

    def _stack(self, parts: Mapping[str, Array], pos_slice: PosSlice) -> Array:
        """Components (..., pos, d_model) with an axis of their own in front."""
        if not parts:
            raise UserError("there is nothing to stack: no part of this kind stands there")
        taken = [take(x, pos_slice, -2) for x in parts.values()]
        return jnp.stack(taken, axis=self.model.n_leading)

    def _side_by_side(
        self,
        results: list[Array],
        labels: list[str],
        stop: int,
        mlp_input: bool,
        incl_remainder: bool,
    ) -> Array:
        """The parts of each layer's results (..., pos, part, d_model), and the rest of the stream,
        which gets a label of its own."""
        axis = self.model.n_leading
        parts = [jnp.moveaxis(x, -2, axis) for x in results]
        if parts and not incl_remainder:
            return jnp.concatenate(parts, axis)
        stream = jnp.expand_dims(self._stream_before(stop, mlp_input), axis)
        # with no layers there are no parts, in the shape of the stream
        nothing = jnp.take(stream, np.array([], int), axis=axis)
        stack = jnp.concatenate([nothing, *parts], axis)
        if not incl_remainder:
            return stack
        labels.append("remainder")
        rest = stream - stack.sum(axis=axis, keepdims=True)
        return jnp.concatenate([stack, rest], axis)

    def _stream_before(self, stop: int, mlp_input: bool) -> Array:
        """The stream that a layer receives, or the unembedding."""
        config = self.model.config
        if stop == config.n_layers:
            return self["resid_post", -1]
        is_between = mlp_input and not config.parallel_attn_mlp
        name: SiteName = ("resid_mid" if is_between else "resid_pre", stop)
        return self[name]

    def _fitting(self, x: Array, stack: Array) -> Array:
        """What the cache or the weights have, with axes for those of a stack that it has not."""
        n_leading = self.model.n_leading
        missing = stack.ndim - x.ndim
        if missing > 0:
            x = jnp.expand_dims(x, tuple(range(n_leading, n_leading + missing)))
        fits = missing >= 0 and all(n in (1, m) for n, m in zip(x.shape, stack.shape, strict=True))
        if not fits:
            raise UserError(
                f"a stack of shape {stack.shape} does not fit a cached norm of shape {x.shape}; "
                "allowed: components of this cache, with the pos_slice that they were taken with"
            )
        return x

    def _check_batch(self, has_batch_dim: bool | None) -> None:
        if has_batch_dim is not None and has_batch_dim != self.has_batch_dim:
            raise UserError(
                f"has_batch_dim={has_batch_dim}, but this cache has "
                f"{'a' if self.has_batch_dim else 'no'} batch axis; allowed: to leave it out"
            )

    def _check_is_sum(self) -> None:
        config = self.model.config
        self.model.require_known_parts()
        if config.norm == "post" or not config.attn_residual:
            raise UserError(
                f"the stream of a model with norm={config.norm!r} and attn_residual="
                f"{config.attn_residual} is not the sum of what was added to it; allowed: norm "
                "'none' or 'pre', and a residual connection around attention"
            )
