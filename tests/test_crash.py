"""A study that is killed in the middle loses nothing; the long version is `python tests/crash.py --kills 300`."""

from crash import COMMANDS, torment


def test_killed_at_random_moments_nothing_is_lost():
    assert torment(2, COMMANDS, seed=1)["kills"] >= 2
