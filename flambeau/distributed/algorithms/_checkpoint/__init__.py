"""Activation checkpoints as wrappers of modules."""
