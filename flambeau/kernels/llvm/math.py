"""Transcendental functions as vector IR."""

from __future__ import annotations

from .libm import emit as emit
