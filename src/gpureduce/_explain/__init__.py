"""Explaining: :func:`gpureduce.explain` runs a kernel on the emulator; its records print and draw what happened."""
