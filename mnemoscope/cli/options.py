"""What several commands are asked in the same words."""

import os
from pathlib import Path
from typing import Annotated

import tyro

from mnemoscope.core.errors import UserError
from mnemoscope.studies.scales import ABOUT, Scale

StoreDir = Annotated[
    Path,
    tyro.conf.arg(name="store", metavar="DIR", help="Folder of finished runs and ledgers."),
]
TrainedScale = Annotated[
    Scale,
    tyro.conf.arg(help=" ".join(f"{scale}: {about.budget}." for scale, about in ABOUT.items())),
]
DEFAULT_STORE = Path(os.environ.get("MNEMOSCOPE_STORE", "mnemoscope-store"))
# more than anyone means, and few enough to be listed
MAX_SEEDS = 1_000_000


def check_seeds(seeds: int) -> None:
    """Refuse a number of seeds that nobody can train."""
    if not 1 <= seeds <= MAX_SEEDS:
        raise UserError(f"--seeds must be 1 to {MAX_SEEDS:,}, got {seeds}")
