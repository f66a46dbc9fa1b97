"""``python -m gpureduce`` is the command ``gpureduce``."""

import sys

from ._cli import main

sys.exit(main())
