"""``python -m gpureduce`` is the command ``gpureduce``."""

import sys

from ._cli.command import main

sys.exit(main())
