"""How many examples Hypothesis tries: few in `make test`, where each may compile a program,
and many in `make test-long`.
"""

from hypothesis import settings

WIDE = 10  # times as many


def tries(few: int) -> settings:
    """So many examples, always the same ones; under the profile `wide` many more,
    and new ones each time.
    """
    return settings(max_examples=few if settings().derandomize else WIDE * few)
