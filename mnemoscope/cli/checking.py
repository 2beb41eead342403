"""The command `check-study`: is a study in order, before hours are spent on it?"""

import sys
from typing import Annotated

import tyro


def check_study(study: Annotated[str, tyro.conf.Positional], /) -> None:
    """Check a study on a tiny training: claims, zones, conditions, what it measures, its page.
    Exit code 1 if a check fails.

    Args:
        study: The study's folder, such as ./my_study, or its name.
    """
    from mnemoscope.execution.machine import compile_cache_dir, use_all_devices
    from mnemoscope.testing import study_checks

    use_all_devices(cache=compile_cache_dir())
    found = study_checks.check_study(study, raise_on_failure=False)
    print(found)
    if not found.ok:
        sys.exit(1)
