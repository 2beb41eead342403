r"""What readers of limited knowledge can reach on the permutation task; true with no computer run.

A reader of the *used set* knows which values have been shown and not where. With V symbols and a
share rho of sequences whose last pair repeats an earlier one, steps 1..V-1 cost ln V, ln(V-1), ...,
ln 2. At the last step

    new pair (1 - rho):  the one unused value;          repeat (rho):  one of the V - 1 used values.

The reader cannot tell the two apart, so its best answer is 1 - rho on the unused value and
rho/(V-1) on each used one.
"""

import math


def eliminator_loss(n_symbols: int) -> float:
    """Mean loss of the eliminator when nothing repeats: sum_k ln(k) / V."""
    return sum(math.log(k) for k in range(1, n_symbols + 1)) / n_symbols


def guessing_loss(n_symbols: int) -> float:
    """Mean loss of a uniform guess: ln V."""
    return math.log(n_symbols)


def used_set_loss(n_symbols: int, repeat: float) -> float:
    """The least mean loss of a reader of the used set when a share `repeat` of last pairs are
    repeats."""
    if repeat == 0:
        return eliminator_loss(n_symbols)
    new = -(1 - repeat) * math.log(1 - repeat)
    again = repeat * math.log(repeat / (n_symbols - 1))
    return eliminator_loss(n_symbols) + (new - again) / n_symbols
