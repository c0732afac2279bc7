"""The container of nkilab's files: magic, version, JSON header, raw arrays, a digest over everything.

    bytes  0 to  7   magic
    bytes  8 to 11   kind, "NEFF" or "NTFF"
    bytes 12 to 15   version of the format
    bytes 16 to 23   length of the header in bytes
    bytes 24 to 31   length of the body in bytes
    bytes 32 to 63   sha256 of bytes 0 to 31, header and body
    then the header, UTF-8 JSON, and the body: the arrays one after the other, little-endian, in header order

A file is written beside its place and moved there: it is whole or not there at all.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from hashlib import sha256
from math import prod
from typing import cast

import numpy as np

from ..errors import FileError

# The first byte is no text, the line ends show a transfer that converted them, as PNG does.
MAGIC = b"\x93nkl\r\n\x1a\n"
VERSION = 1
_PREFIX = struct.Struct("<8s4sIQQ")
_DIGEST_BYTES = 32
_FOREIGN = "what the vendor's compiler and profiler write is another format, which nkilab does not read"
# Types that a body may hold.
_DTYPES = ("<i1", "<i2", "<i4", "<i8", "<f8", "|i1")

Header = dict[str, object]


def pack(kind: str, header: Header, arrays: Mapping[str, np.ndarray]) -> bytes:
    """The bytes of a file; equal content gives equal bytes."""
    listed, sections = [], []
    for name, array in arrays.items():
        own = np.ascontiguousarray(array)
        little = own.astype(own.dtype.newbyteorder("<"), copy=False)
        listed.append([name, little.dtype.str, list(little.shape)])
        sections.append(little.tobytes())
    text = json.dumps(
        {**header, "arrays": listed}, sort_keys=True, separators=(",", ":"), allow_nan=False
    ).encode()
    body = b"".join(sections)
    prefix = _PREFIX.pack(MAGIC, kind.encode(), VERSION, len(text), len(body))
    return prefix + sha256(prefix + text + body).digest() + text + body


def unpack(content: bytes, kind: str, name: str) -> tuple[Header, dict[str, np.ndarray]]:
    """Header and arrays of a file.

    Args:
        content: of the file.
        kind: that it must be.
        name: for messages.

    Raises:
        FileError: if it is foreign, of another kind or version, truncated or damaged.
    """
    found_kind, version, header_bytes, body_bytes = _prefix(content, kind, name)
    start = _PREFIX.size + _DIGEST_BYTES
    expected = start + header_bytes + body_bytes
    if len(content) < expected:
        raise FileError(f"{name} is cut off: it holds {len(content)} of {expected} bytes", hint=_again(kind))
    prefix, digest = content[: _PREFIX.size], content[_PREFIX.size : start]
    if len(content) > expected or sha256(prefix + content[start:]).digest() != digest:
        raise FileError(f"{name} is damaged: its content does not match its digest", hint=_again(kind))
    if found_kind != kind.encode():
        raise FileError(f"{name} is a {found_kind.decode('ascii', 'replace')} file; a {kind} file is needed")
    if version != VERSION:
        raise FileError(f"{name} has format {version}; this nkilab reads format {VERSION}", hint=_again(kind))
    try:
        header = json.loads(content[start : start + header_bytes])
        return header, _arrays(header, content[start + header_bytes :])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FileError(f"{name} is damaged: {error}", hint=_again(kind)) from None


def _prefix(content: bytes, kind: str, name: str) -> tuple[bytes, int, int, int]:
    if content[: len(MAGIC)] != MAGIC[: len(content)] or not content:
        raise FileError(
            f"{name} is no {kind} file of nkilab; {_FOREIGN if content else 'it is empty'}",
            hint=_again(kind),
        )  # fmt: skip
    if len(content) < _PREFIX.size + _DIGEST_BYTES:
        raise FileError(f"{name} is cut off: it holds {len(content)} bytes", hint=_again(kind))
    _, found_kind, version, header_bytes, body_bytes = _PREFIX.unpack_from(content)
    return found_kind, version, header_bytes, body_bytes


def _again(kind: str) -> str:
    return "write it again with nkilab" if kind == "NEFF" else "capture it again with nkilab"


def _arrays(header: Header, body: bytes) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {}
    at = 0
    for key, dtype, shape in cast("list[tuple[str, str, list[int]]]", header["arrays"]):
        if dtype not in _DTYPES:
            raise ValueError(f"it holds an array of type {dtype}")
        size = prod(shape) * np.dtype(dtype).itemsize
        arrays[key] = np.frombuffer(body, dtype, prod(shape), at).reshape(shape)
        at += size
    return arrays
