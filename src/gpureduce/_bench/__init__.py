"""Measuring: :func:`gpureduce.benchmark`, :func:`gpureduce.compare`, and what they are made of."""
