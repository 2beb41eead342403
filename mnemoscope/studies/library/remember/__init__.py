"""The permutation study: does a tiny transformer remember what it was shown?

Or does it eliminate what is left?
"""
