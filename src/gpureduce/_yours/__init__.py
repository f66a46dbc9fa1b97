"""Kernels of the user's own: what their text says, checked on the emulator, launched on a GPU."""
