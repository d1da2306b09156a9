"""Measures multirail and other programs, draws the figures of papers again, and judges claims."""
