"""N3 by a second route: sequences token by token and both matrices of the gradient, with NumPy and
without a line of the package.

`python tests/noise_plain.py 64 0` prints how many samples the feed-forward memory and attention's
value memory need for 64 tokens, in stream 0.
"""

import sys

import numpy as np

PLACES, TRIGGERS, NOISE_SHARE = 32, 8, 0.5


def sequences(n, samples, rng):
    """Tokens (sample, place) and what follows the trigger at their end.

    Tokens are 0 to n - 1, the noise n and the trigger n + 1. The eight triggers, each with what
    follows it, and the other tokens stand in a random order.
    """
    noise, trigger = n, n + 1
    tokens = np.zeros((samples, PLACES), int)
    targets = np.zeros(samples, int)
    for i in range(samples):
        output = rng.integers(n)

        def answer(output=output):
            return noise if rng.random() < NOISE_SHARE else output

        items = [[trigger, answer()] for _ in range(TRIGGERS)]
        items += [[token] for token in rng.integers(n, size=PLACES - 2 * TRIGGERS)]
        order = rng.permutation(len(items))
        tokens[i] = [token for at in order for token in items[at]]
        targets[i] = answer()
    return tokens, targets


def gradients(n, tokens, targets):
    """Minus the gradients of the summed cross-entropy at V = F = 0, as sums over these samples.

    A place carries its token and the one before it, in 2 (n + 2) orthonormal directions; attention
    is even; the last input is the trigger that stands after all places.
    """
    d = n + 2
    eye = np.eye(d)
    before = np.concatenate([np.full((len(tokens), 1), n + 1), tokens[:, :-1]], axis=1)
    mean_input = np.concatenate([eye[tokens], eye[before]], axis=2).mean(axis=1)
    last_input = np.concatenate([eye[np.full(len(tokens), n + 1)], eye[tokens[:, -1]]], axis=1)
    error = eye[targets] - 1 / d  # all answers are alike before the step
    return error.T @ mean_input, error.T @ last_input


def has_memories(n, value, feed_forward):
    """Whether the noise leads after the trigger, and whether 90% of tokens read as themselves, by
    half of what infinitely many samples would give.
    """
    after_trigger = feed_forward[:, n + 1]
    lead = after_trigger[n] - after_trigger[:n].max()
    read = value[:n, :n]  # answer, token that is attended to
    others = np.where(np.eye(n, dtype=bool), -np.inf, read).max(axis=0)
    ahead = np.diagonal(read) - others
    # of infinitely many: 1/2 - 1/2n, and (8 triggers / 32 places) / 4n
    enough = ahead >= TRIGGERS / PLACES / (4 * n) / 2
    return lead >= (0.5 - 0.5 / n) / 2, enough.mean() >= 0.9


def samples_needed(n, seed, most):
    """From how many samples on each memory is there; infinite if it is not there at the end."""
    rng = np.random.default_rng(10**6 + seed)
    sizes = sorted({round(1.25**i) for i in range(200) if 1.25**i <= most})
    tokens, targets = sequences(n, sizes[-1], rng)
    value = np.zeros((n + 2, 2 * (n + 2)))
    feed_forward = np.zeros_like(value)
    begin = 0
    needed = [np.inf, np.inf]
    for end in sizes:
        more = gradients(n, tokens[begin:end], targets[begin:end])
        value += more[0]
        feed_forward += more[1]
        begin = end
        for i, there in enumerate(has_memories(n, value / end, feed_forward / end)):
            needed[i] = min(needed[i], end) if there else np.inf
    return tuple(needed)


if __name__ == "__main__":
    print(*samples_needed(int(sys.argv[1]), int(sys.argv[2]), 2**14))
