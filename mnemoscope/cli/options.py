"""What several commands are asked in the same words."""

import os
from pathlib import Path
from typing import Annotated, Literal

import tyro

Scale = Literal["quick", "full"]
StoreDir = Annotated[Path, tyro.conf.arg(name="store", metavar="DIR", help="Folder of finished runs and ledgers.")]
DEFAULT_STORE = Path(os.environ.get("MNEMOSCOPE_STORE", "mnemoscope-store"))
