"""What 0.1 called fields of a Spec and options.

Stored Specs, and the digests taken of them, keep 0.1's names: what was trained is found again.
Only stored text is read by these names; in Python they are refused, with the name to use.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType

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

# What stands in the name of the file that has a ledger's plots: STUDY.pictures.json.
PLOTS_FILE = "pictures"

# Options of the command line that had another name in 0.1, by the old one.
OPTION_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "--optimiser": "--optimizer",
        "--setting": "--condition",
    }
)

# What a series of a ledger written by 0.1 is called where this one says accuracy: "right",
# "right, rho = 1", "all: right", "step 5 right, d=4"; but neither "P(right)" nor "to right".
_ACCURACY_SERIES = re.compile(r"(^|: |^step 5 )right\b")


def series_name(name: str) -> str:
    """The name that a series of a stored ledger has now.

    Args:
        name: the name that it was written with, by 0.1 or since.
    """
    return _ACCURACY_SERIES.sub(r"\1accuracy", name)
