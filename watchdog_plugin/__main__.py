"""Entry point of ``python -m watchdog_plugin``."""

import gc

gc.disable()  # until `main`: imports leave no garbage; collections take a tenth of their time
from watchdog_plugin.app import main  # noqa: E402

if __name__ == "__main__":
    main()
