"""``python -m sidecar``."""

import gc
import sys

gc.disable()  # imports leave no garbage; looking for it takes an eighth of them
from sidecar.app import main  # noqa: E402

gc.enable()
sys.exit(main(sys.argv[1:]))
