"""Where the results are that come with Mnemoscope."""

from pathlib import Path


def published_folder() -> Path:
    """The full-scale results that come with Mnemoscope.

    They are inside an installed package, or beside it in a clone.
    """
    home = Path(__file__).parent.parent
    inside = home / "results"
    beside = home.parent / "results"
    return beside if beside.is_dir() and not inside.is_dir() else inside
