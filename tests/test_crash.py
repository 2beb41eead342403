"""A study that is killed in the middle loses nothing; the long version is `python tests/crash.py --kills 300`."""

from crash import COMMANDS, torment


def test_killed_at_random_moments_nothing_is_lost():
    found = torment(3, COMMANDS, seed=1)
    assert found["kills"] >= 3
    assert found["of them while it ran"] >= 1
