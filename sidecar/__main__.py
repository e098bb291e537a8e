"""``python -m sidecar``."""

import sys

from sidecar.app import main

sys.exit(main(sys.argv[1:]))
