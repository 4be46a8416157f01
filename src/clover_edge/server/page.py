"""The page at `/`: one file, no outside resource, under a strict Content-Security-Policy."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from pathlib import Path

_FILE = Path(__file__).with_name("page.html")


@cache
def page() -> tuple[bytes, dict[str, str]]:
    """The page and its headers: only the script and the styles that stand in it may run."""
    html = _FILE.read_bytes()
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src {_hash(html, 'script')}",
            f"style-src {_hash(html, 'style')}",
            "img-src data:",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )
    return html, {
        "Content-Security-Policy": policy,
        "Cache-Control": "no-cache",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }


def _hash(html: bytes, tag: str) -> str:
    found = re.findall(rb"<%b[^>]*>(.*?)</%b>" % (tag.encode(), tag.encode()), html, re.S)
    digests = (base64.b64encode(hashlib.sha256(text).digest()).decode() for text in found)
    return " ".join(f"'sha256-{digest}'" for digest in digests)
