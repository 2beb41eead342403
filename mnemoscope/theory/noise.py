r"""What one gradient step from zero writes, in the feed-forward memory and in the value memory of
attention, from m samples.

The theory's one-layer model. Tokens are 1 .. N, a trigger q and a noise token; a position carries
its token and the one before it in orthonormal directions, x_t = E(z_t) + E~(z_{t-1}); attention is
even at the start:

    logits = U^T V mean_t x_t + U^T F x_T,      V = F = 0

A sequence of T tokens is drawn uniformly but for the trigger, which stands at a quarter of its
places and at the end. What follows a trigger, in the sequence and after its end (the target y), is
noise with probability 1/2, else the sequence's output, uniform over 1 .. N. From zero the answers
are all alike, so one step of length 1 on m samples leaves, with p = 1 / (N + 2),

    U^T F x_T = mean_i (e_{y_i} - p)            after q, whatever stands before it: the same column
                                                for every sample
    U^T V E(k) = mean_i (e_{y_i} - p) c_i(k)    c(k): the share of the sequence's places that hold k

The first needs the noise token to be drawn a few times. The second has to see each k as an output:
about N samples. Only the part of F that reads the last token is used.
"""

import numpy as np
from scipy.sparse import csc_array

from mnemoscope.core.axes import Float, Int

LENGTH = 32  # T
TRIGGERS = 8  # a quarter of the places
NOISE = 0.5  # how often noise follows a trigger


def draw(
    n: int, samples: int, rng: np.random.Generator
) -> tuple[Float[np.ndarray, "sample token"], Int[np.ndarray, "sample"]]:
    """How large a share of each sequence each of the tokens 1 .. N is, and the target: 0 .. N - 1,
    or N for noise.

    Args:
        n: N.
        samples: how many sequences are drawn.
        rng: draws them.
    """
    output = rng.integers(0, n, (samples, 1))
    is_noise = rng.random((samples, TRIGGERS + 1)) < NOISE
    answers = np.where(is_noise, n, output)
    # where the triggers stand says nothing, for positions are not seen: each takes a place, and
    # what follows it another one
    free = rng.integers(0, n, (samples, LENGTH - 2 * TRIGGERS))
    tokens = np.concatenate([answers[:, :-1], free], axis=1)
    counts = np.zeros((samples, n + 1))
    np.add.at(counts, (np.arange(samples)[:, None], tokens), 1 / LENGTH)
    return counts[:, :n], answers[:, -1]


def margins_after(
    n: int,
    counts: Float[np.ndarray, "sample token"],
    y: Int[np.ndarray, "sample"],
    sizes: Int[np.ndarray, "size"],
) -> tuple[Float[np.ndarray, "size"], Float[np.ndarray, "size token"]]:
    """Margins after one step on the first m samples, for each m.

    By how much noise leads all tokens after the trigger (feed-forward), and by how much each token,
    attended to alone, is read as itself rather than as another of the N tokens (attention). The
    mean that is taken off is the same for all answers, so it does not matter to a margin.

    Args:
        n: N.
        counts: the share of each token in each sequence, as `draw` has it.
        y: the targets.
        sizes: the numbers m, rising.
    """
    column = np.zeros(n + 1)
    written = np.zeros((n + 1, n))
    fed = np.zeros(len(sizes))
    valued = np.zeros((len(sizes), n))
    begin = 0
    for i, end in enumerate(sizes):
        more = end - begin
        # an answer by sample matrix of ones: its product adds each sample's counts to the row of
        # its answer
        ones = (np.ones(more), y[begin:end], np.arange(more + 1))
        answers = csc_array(ones, shape=(n + 1, more))
        column += answers.sum(axis=1)
        written += answers @ counts[begin:end]
        begin = end
        fed[i] = (column[n] - column[:n].max()) / end
        others = np.where(np.eye(n, dtype=bool), -np.inf, written[:n]).max(axis=0)
        valued[i] = (np.diagonal(written[:n]) - others) / end
    return fed, valued


def population_margins(n: int) -> tuple[float, float]:
    r"""Both margins for infinitely many samples.

    After the trigger noise has 1/2 and each token 1/(2N). A token k is y with probability 1/(2N),
    and then it is the output, which stands after half of the triggers, besides its share of the
    free places, which it has in any case:

        (1 / 2N) (r / 2 + f / N) - (1 / 2N) f / N = r / 4N,   r = triggers / T,  f = free places / T
    """
    feed_forward = 0.5 - 0.5 / n
    attention = TRIGGERS / LENGTH / (4 * n)
    return feed_forward, attention
