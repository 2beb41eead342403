"""Names that 0.1 gave to fields of a Spec, by the names that they have now.

Stored Specs, and the digests taken of them, keep 0.1's names: what was trained is found again.
Only stored text is read by these names; in Python they are refused, with the name to use.
"""

from collections.abc import Mapping
from types import MappingProxyType

SPEC_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "optimizer": "optimiser",
        "metrics": "watch",
        "n_evals": "looks",
        "unfreeze_at": "release",
    }
)
