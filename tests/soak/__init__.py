"""An hour of ordinary disturbances, and whether anything grows: python -m tests.soak."""
