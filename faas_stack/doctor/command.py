"""``carpool doctor``: finds conflicting settings and suggests fixes.

Reads the stack file and the compose file beside it, if there is one, and queries
the servers that options name. Prints a line for each finding; the exit code is 1 if there are any.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import requests

from carpool.basic_auth import credentials, credentials_for
from carpool.direct_session import direct_session
from carpool.errors import MISSING, ConfigError, Problem
from carpool.kubernetes_api import KubernetesApi, KubernetesApiError
from faas_stack.doctor import compose_file
from faas_stack.doctor.cluster_questions import ask
from faas_stack.doctor.context import Case, FunctionContext, duration_s
from faas_stack.doctor.rules import READING, Finding, examine, promises
from faas_stack.doctor.surroundings import DoctorOptions, explore
from faas_stack.stack import stack_file
from scaler.stack_folder import TOKEN_FILE, URL_FILE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faas_stack.doctor.compose_file import Compose
    from faas_stack.doctor.context import Surroundings

__all__ = ["main"]

_TIMEOUT_S = 3.0


def main(argv: list[str]) -> int:
    """Check a stack file; return 0 without findings and 1 otherwise.

    Raises:
        ConfigError: If the stack file, the compose file or an option cannot be read.
    """
    args = _parser().parse_args(argv)
    path = args.yaml or stack_file.default_path()
    options = _options(args)
    stack, problems = stack_file.read(path)
    if stack is None:
        raise ConfigError(problems)
    contexts = tuple(FunctionContext.of(function) for function in stack.functions)
    around = explore(options, _compose(args.compose, stack.folder), contexts)
    around = replace(around, complaints=_complaints(stack.folder))
    if args.kubernetes:
        around = _with_cluster(around, contexts, args.kubernetes)
    findings = [Finding(READING, problem) for problem in problems]
    findings += examine(Case(stack, contexts, around))
    count = len(contexts)
    sys.stdout.write(_as_json(path, findings) if args.json else _as_text(path, findings, count))
    return 1 if findings else 0


def _parser() -> argparse.ArgumentParser:
    about = "Find conflicting settings in a stack file, and suggest fixes."
    parser = argparse.ArgumentParser(prog="carpool doctor", description=about)
    add = parser.add_argument
    add(
        "-f",
        "--yaml",
        type=Path,
        default=None,
        metavar="FILE",
        help="stack file (default: ./stack.yaml)",
    )
    add(
        "--compose",
        type=Path,
        metavar="FILE",
        help="compose file (default: the one beside the stack file)",
    )
    add("--gateway", default="", metavar="URL", help="check a running gateway or provider")
    files = "folder with the credentials (default: those of a provider started on this machine)"
    add("--basic-auth", type=Path, metavar="DIR", help=files)
    add("--gateway-timeout", default="", metavar="TIME", help="the gateway's upstream_timeout")
    add("--prometheus", default="", metavar="URL", help="check this Prometheus for an AlertManager")
    cluster = (
        "check the kubeconfig's cluster; NAMESPACE, if given, is where Carpool runs (%(const)s)"
    )
    add("--kubernetes", nargs="?", const="openfaas", default="", metavar="NAMESPACE", help=cluster)
    add("--ce", action="store_true", help="apply the limits of OpenFaaS Community Edition")
    add("--json", action="store_true", help="print JSON")
    return parser


def _with_cluster(
    around: Surroundings, contexts: Sequence[FunctionContext], home: str
) -> Surroundings:
    api = KubernetesApi()
    try:
        return replace(around, cluster=ask(api, contexts, home))
    except KubernetesApiError as error:
        return replace(around, troubles=(*around.troubles, ("--kubernetes", home, str(error))))
    finally:
        api.close()


def _options(args: argparse.Namespace) -> DoctorOptions:
    for name in ("gateway", "prometheus"):
        url = getattr(args, name)
        if url and not url.startswith(("http://", "https://")):
            raise ConfigError([Problem(f"--{name}", url, "a URL such as http://127.0.0.1:8080")])
    timeout_s = duration_s(args.gateway_timeout) if args.gateway_timeout else None
    if args.gateway_timeout and not timeout_s:
        expected = "a duration above zero such as 60s"
        raise ConfigError([Problem("--gateway-timeout", args.gateway_timeout, expected)])
    auth = credentials(args.basic_auth) if args.basic_auth else credentials_for(args.gateway)
    return DoctorOptions(args.gateway, auth, args.prometheus, args.ce, timeout_s)


def _compose(named: Path | None, folder: Path) -> Compose | None:
    path = named or next((folder / n for n in compose_file.NAMES if (folder / n).is_file()), None)
    return compose_file.read(path) if path else None


def _as_json(path: Path, findings: Sequence[Finding]) -> str:
    lines = [
        {
            "check": finding.check,
            "where": finding.problem.name,
            "value": finding.problem.value,
            "expected": finding.problem.expected,
            "fix": "" if finding.problem.hint == MISSING else finding.problem.hint,
        }
        for finding in findings
    ]
    return json.dumps({"file": str(path), "findings": lines, "checks": list(promises())}) + "\n"


def _as_text(path: Path, findings: Sequence[Finding], functions: int) -> str:
    if not findings:
        checks = len(promises())
        return f"{path}: nothing found; {checks} checks, {_counted(functions, 'function')}\n"
    lines = [f"{finding.problem}  [{finding.check}]" for finding in findings]
    return "\n".join([*lines, f"{path}: {_counted(len(findings), 'finding')}"]) + "\n"


def _counted(number: int, name: str) -> str:
    return f"{number} {name}{'' if number == 1 else 's'}"


def _complaints(folder: Path) -> tuple[tuple[str, str], ...]:
    """Return what the scaler of `carpool up` in this folder reports; nothing if none answers.

    Returns:
        Pairs of a function and a problem; the function is empty if it concerns all.
    """
    try:
        url = (folder / URL_FILE).read_text().strip()
        token = (folder / TOKEN_FILE).read_text().strip()
        with direct_session() as session:
            headers = {"authorization": f"Bearer {token}"}
            answer = session.get(f"{url}/v1/functions", headers=headers, timeout=_TIMEOUT_S)
        document = answer.json() if answer.status_code == requests.codes.ok else {}
        notes = [
            (str(line["name"]), str(note))
            for line in document.get("functions", ())
            for note in line["notes"]
        ]
        trouble = document.get("trouble")
    except (OSError, requests.RequestException, ValueError, KeyError, TypeError, AttributeError):
        return ()
    return (*notes, *([("", str(trouble))] if trouble else []))
