"""The rows of the face: what people meet first."""

from __future__ import annotations

from checks.face_server import (
    clients_at_once,
    described_answers,
    official_client,
    page_in_chromium,
)

CHECKS = (official_client, described_answers, clients_at_once, page_in_chromium)
