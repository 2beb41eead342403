"""A study that is killed in the middle loses nothing;
`make test-long` kills many studies many times.
"""

import pytest
from crash import COMMANDS, LONG, torment


def test_killed_at_random_moments_nothing_is_lost():
    assert torment(1, COMMANDS, seed=1)["kills"] >= 1


@pytest.mark.long
@pytest.mark.parametrize("command", LONG, ids=lambda command: command[1])
def test_killed_again_and_again_nothing_is_lost(command):
    assert torment(60, (command,))["kills"] >= 60
