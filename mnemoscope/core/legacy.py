"""What 0.1 called fields of a Spec and options.

Stored Specs, and the digests taken of them, keep 0.1's names: what was trained is found again.
Only stored text is read by these names; in Python they are refused, with the name to use.
"""

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

# What stands in the name of the file that has a ledger's plots: STUDY.pictures.json.
PLOTS_FILE = "pictures"

# Options of the command line that had another name in 0.1, by the old one.
OPTION_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "--optimiser": "--optimizer",
        "--setting": "--condition",
    }
)
