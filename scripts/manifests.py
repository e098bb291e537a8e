"""Render charts/manifests/carpool.yaml from the chart, for users without Helm.

Usage: python scripts/manifests.py. Run by ``make manifests``; needs helm. A test compares the two.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["CHART", "MANIFESTS", "PLACE", "rendered"]

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "charts" / "carpool"
MANIFESTS = ROOT / "charts" / "manifests" / "carpool.yaml"
_VALUES = MANIFESTS.with_name("values.yaml")
# A helm that was built from source knows no version of Kubernetes, and asks no cluster here.
PLACE = ("--namespace", "openfaas", "--kube-version", "1.34.0")
_HEAD = "# Generated from charts/carpool: run `make manifests`, never edit.\n"


def rendered(helm: str, settings: Sequence[str] = (), values: Path | None = _VALUES) -> str:
    """What the chart renders to.

    Args:
        helm: The program.
        settings: Values, such as ``gateway.replicas=3``.
        values: A file of values; None: the chart's own alone.

    Raises:
        subprocess.CalledProcessError: it does not render; helm's reason is on standard error.
    """
    command = [helm, "template", "carpool", str(CHART), *PLACE]
    command += ["--values", str(values)] if values else []
    command += [part for setting in settings for part in ("--set", setting)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return _HEAD + done.stdout


def main() -> int:
    """Write the manifests."""
    helm = shutil.which("helm")
    if helm is None:
        sys.stderr.write("helm is not on the PATH: go install helm.sh/helm/v3/cmd/helm@v3.19.0\n")
        return 1
    MANIFESTS.write_text(rendered(helm))
    return 0


if __name__ == "__main__":
    sys.exit(main())
