"""Explaining: :func:`gpureduce.explain` runs a kernel on the emulator.

Its records print and draw what happened.
"""
