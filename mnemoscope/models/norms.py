"""What a norm does before its weights, by the names that `ModelConfig.norm_type` has for it.

    layer   (x - mean) / sqrt(var + eps) w + b            rms   x / sqrt(mean(x^2) + eps) w

To add one, add it here. The forward pass then has it, and whatever reads models in a way of its own
(`mnemoscope.models.consumer_support`) refuses it by name until it says that it can.

Where norms stand, `ModelConfig.norm` with none, pre and post, is no row of a table: it is the
structure of a layer and of the read-out, and stands in `forward_pass`, `sites` and `shapes`.
"""

from typing import NamedTuple


class NormKind(NamedTuple):
    """What a norm does before its weights."""

    subtracts_mean: bool
    """Whether the mean is taken away before the length is measured."""
    has_shift: bool
    """Whether a shift b stands beside the scale w."""


NORMS: dict[str, NormKind] = {
    "layer": NormKind(subtracts_mean=True, has_shift=True),
    "rms": NormKind(subtracts_mean=False, has_shift=False),
}
