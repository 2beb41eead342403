"""The facts study: what a transformer knows by heart.

How much of it fits, and what a model says before it knows.
"""
