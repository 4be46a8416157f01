"""The judge: a plain float64 model, its decoding loop and a reader of packed folders.

Nothing here imports ``clover_edge``; every number is worked out again from the equations and from
the description of the file format.
"""
