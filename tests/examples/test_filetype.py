"""The filetype example gives the answers of the magika package for real files."""

from __future__ import annotations

import gzip
import io
import json
import struct
import sys
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from magika import Magika

if TYPE_CHECKING:
    from tests.examples.handlers import Handler

ROOT = Path(__file__).resolve().parents[2]
STDLIB = Path(json.__file__).parent


def png() -> bytes:
    """Return a small grey picture."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        sum_ = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", sum_)

    size = struct.pack(">IIBBBBB", 64, 64, 8, 0, 0, 0, 0)
    rows = b"".join(b"\0" + bytes((x * y) % 256 for x in range(64)) for y in range(64))
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", size)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def pdf() -> bytes:
    """Return a page with a line of text."""
    stream = b"BT /F1 24 Tf 72 700 Td (Carpool) Tj ET"
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R >>",
        b"<< /Length %d >>\nstream\n%b\nendstream" % (len(stream), stream),
    ]
    parts = [b"%PDF-1.4\n"]
    parts += [b"%d 0 obj\n%b\nendobj\n" % (i, body) for i, body in enumerate(objects, start=1)]
    parts.append(b"trailer << /Root 1 0 R /Size 5 >>\n%%EOF\n")
    return b"".join(parts)


def zipped() -> bytes:
    """Return an archive of two members."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.txt", "alpha " * 100)
        archive.writestr("b.txt", "beta " * 100)
    return buffer.getvalue()


FILES: dict[str, bytes] = {
    "pyproject.toml": (ROOT / "pyproject.toml").read_bytes(),
    "Makefile": (ROOT / "Makefile").read_bytes(),
    "LICENSE": (ROOT / "LICENSE").read_bytes(),
    "stack.yaml": (ROOT / "examples/stack.yaml").read_bytes(),
    "Dockerfile": (ROOT / "templates/python3-batch/Dockerfile").read_bytes(),
    "model.onnx": (ROOT / "templates/python3-onnx-batch/function/example.onnx").read_bytes(),
    "json/decoder.py": (STDLIB / "decoder.py").read_bytes(),
    "json/__init__.py": (STDLIB / "__init__.py").read_bytes(),
    "the interpreter": Path(sys.executable).read_bytes(),
    "png": png(),
    "pdf": pdf(),
    "zip": zipped(),
    "gzip": gzip.compress(b"carpool " * 500, mtime=0),
    "html": b"<!doctype html><html><head><title>t</title></head><body>" + b"<p>x</p>" * 50,
    "csv": b"name,age\n" + b"".join(b"n%d,%d\n" % (i, i) for i in range(200)),
    "two megabytes": (b"def f(x):\n    return x + 1\n\n\n" * 80_000)[: 2 * 1024 * 1024],
    "empty": b"",
    "one byte": b"a",
    "seven bytes": b"1234567",
    "eight bytes": b"12345678",
    "short and not text": b"\xff\xfe\x00",
    "only blanks": b" \n\t" * 3000,
    "blanks around little": b" " * 2000 + b"word" + b"\n" * 2000,
    "blanks at the end": b"print('hello')\n" * 20 + b" " * 6000,
    "blanks first": b"\n" * 5000 + b"print('hello')\n" * 200,
    "noise": bytes((i * i * 31 + i // 7) % 256 for i in range(5000)),
}


@pytest.fixture(scope="module")
def oracle() -> Magika:
    """Return the package's own predictor."""
    return Magika()


@pytest.mark.slow
@pytest.mark.parametrize("example", ["filetype"], indirect=True)
def test_results_equal_those_of_magika_package(example: Handler, oracle: Magika) -> None:
    """Label, the model's own guess, MIME type and score agree for all files in one batch."""
    answers = example.batch(list(FILES.values()))
    for (name, content), answer in zip(FILES.items(), answers, strict=True):
        said = json.loads(answer.body)
        expected = oracle.identify_bytes(content)
        wanted = (
            str(expected.output.label),
            str(expected.dl.label),
            expected.output.mime_type,
            expected.output.group,
        )
        told = (said["label"], said["model_label"], said["mime_type"], said["group"])
        assert (name, 200, wanted) == (name, answer.status, told)
        assert pytest.approx(expected.score, rel=1e-5) == said["score"], name


@pytest.mark.slow
def test_the_files_cover_many_kinds(oracle: Magika) -> None:
    """The files of the comparison above are of many kinds."""
    labels = {str(oracle.identify_bytes(content).output.label) for content in FILES.values()}
    assert {"python", "png", "pdf", "zip", "gzip", "elf", "empty", "txt", "unknown"} <= labels
