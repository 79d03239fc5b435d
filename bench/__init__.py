"""Measurements, side by side in one run, as ratios. Nothing here is asserted by a test.

python -m bench --help
"""
