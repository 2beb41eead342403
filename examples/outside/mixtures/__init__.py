"""Mixtures of Markov chains, and four closed-form readers of them.

After Park, Lubana, Pres and Tanaka, "Competition Dynamics Shape Algorithmic Phases of In-Context
Learning" (arXiv 2412.01003). It imports nothing but what is public.
"""

from mixtures.markov_mixture import MarkovMixture
from mixtures.readers import infer_bigrams, infer_unigrams, retrieve_bigrams, retrieve_unigrams

__all__ = [
    "MarkovMixture",
    "infer_bigrams",
    "infer_unigrams",
    "retrieve_bigrams",
    "retrieve_unigrams",
]
