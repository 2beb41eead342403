"""The hops study: can a transformer compose functions, and in which order must it be taught?"""
