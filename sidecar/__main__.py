"""``python -m sidecar``."""

import gc
import sys

gc.disable()  # until it serves: imports leave no garbage; looking for it takes an eighth of them
from sidecar.app import main  # noqa: E402

sys.exit(main(sys.argv[1:]))
