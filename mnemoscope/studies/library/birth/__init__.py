"""The birth study: how an induction head grows out of associative memories.

Models learn text with triggers.
"""
