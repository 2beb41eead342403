"""Names that 0.1 gave to fields of a Spec, by the names that they have now.

Stored Specs, and the digests taken of them, keep 0.1's names: what was trained is found again.
Only stored text is read by these names; in Python they are refused, with the name to use.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

SPEC_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "optimizer": "optimiser",
        "metrics": "watch",
        "n_evals": "looks",
        "unfreeze_at": "release",
    }
)

# ---- models

# what a field of 0.1's ModelConfig is now
MODEL_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "head_dim": "d_head",
        "unit_embeddings": "init.embeddings='unit'",
        "orthogonal": "init.orthogonal",
        "identity": "init.identity",
        "constant": "init.constant",
        "scaled": "init.scale",
    }
)
# 0.1 had learned positions or none
POSITIONS: Mapping[str, bool] = MappingProxyType({"learned": True, "none": False})


def model_to_stored(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The written fields of a ModelConfig as 0.1 would write them, and what is new as it is."""
    stored = dict(fields)
    init = dict(stored.pop("init", {}))
    if "d_head" in stored:
        stored["head_dim"] = stored.pop("d_head")
    if stored.get("positions") in POSITIONS:
        stored["positions"] = POSITIONS[stored["positions"]]
    if "embeddings" in init:
        stored["unit_embeddings"] = init.pop("embeddings") == "unit"
    if "scale" in init:
        stored["scaled"] = init.pop("scale")
    for name in ("orthogonal", "identity", "constant"):
        if name in init:
            stored[name] = init.pop(name)
    if init:
        stored["init"] = init
    return stored


def model_from_stored(stored: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a ModelConfig from what was stored."""
    fields = dict(stored)
    init = dict(fields.pop("init", {}))
    if fields.get("head_dim") is not None:
        fields["d_head"] = fields["head_dim"]
    fields.pop("head_dim", None)
    for name, value in POSITIONS.items():
        if fields.get("positions") is value:
            fields["positions"] = name
    if "unit_embeddings" in fields:
        init["embeddings"] = "unit" if fields.pop("unit_embeddings") else "normal"
    if "scaled" in fields:
        init["scale"] = fields.pop("scaled")
    for name in ("orthogonal", "identity", "constant"):
        if name in fields:
            init[name] = fields.pop(name)
    return fields | {"init": init} if init else fields
