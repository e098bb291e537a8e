"""Entry point of ``python -m sidecar``."""

import gc
import os
import sys

gc.disable()  # until it serves: imports leave no garbage; collections take an eighth of their time
from sidecar.app import main, start  # noqa: E402

sys.exit(main(sys.argv[1:]) if sys.argv[1:] else start(dict(os.environ)))
