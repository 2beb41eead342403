"""What 0.1 called fields of a Spec and options.

Stored Specs, and the digests taken of them, keep 0.1's names: what was trained is found again.
Only stored text is read by these names; in Python they are refused, with the name to use.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

# Fields of a Spec, each with the name that stored text has for it.
SPEC_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "optimizer": "optimiser",
        "metrics": "watch",
        "n_evals": "looks",
        "unfreeze_at": "release",
    }
)

# What a Spec's metrics read, by the Spec's `metrics`: each with the name that stored arrays have.
METRIC_NAMES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "bigrams": {"accuracy": "right"},
        "facts": {"accuracy": "right"},
        "noise": {"accuracy": "right"},
    }
)


def metric_names(metrics: object) -> Mapping[str, str]:
    """What a Spec's metrics read, by name, with the name that stored arrays have.

    Args:
        metrics: the field of the Spec.
    """
    return METRIC_NAMES.get(metrics, {}) if isinstance(metrics, str) else {}


# What stands in the name of the file that has a ledger's plots: STUDY.pictures.json.
PLOTS_FILE = "pictures"

# Options of the command line that had another name in 0.1, by the old one.
OPTION_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "--optimiser": "--optimizer",
        "--setting": "--condition",
    }
)

# What series of a ledger were called by 0.1, as patterns, and what they are called now: "right",
# "right, rho = 1", "all: right", "step 5 right, d=4", but neither "P(right)" nor "to right".
_SERIES_NAMES = (
    (re.compile(r"(^|: |^step 5 )right\b"), r"\1accuracy"),
    (re.compile(r"\bsilenced\b"), "ablated"),
    (re.compile(r"\bheld( back)?(?=: )"), "frozen"),
)


def series_name(name: str) -> str:
    """The name that a series of a stored ledger has now.

    Args:
        name: the name that it was written with, by 0.1 or since.
    """
    for pattern, now in _SERIES_NAMES:
        name = pattern.sub(now, name)
    return name


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
