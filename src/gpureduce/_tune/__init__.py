"""``gpureduce tune``: arrays (cells), the fit of costs to times (fit), measuring (tune)."""
