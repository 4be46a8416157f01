"""Conversations that keep what they have computed: sessions, and a store that shares prefixes."""

from .session import Session
from .store import PrefixStore, StoreCounters

__all__ = ["PrefixStore", "Session", "StoreCounters"]
