"""The rows of the face: what people meet first."""

from __future__ import annotations

from checks import face_agent, face_grammar, face_server, face_sessions

CHECKS = (
    *face_server.CHECKS,
    *face_sessions.CHECKS,
    *face_grammar.CHECKS,
    *face_agent.CHECKS,
)
