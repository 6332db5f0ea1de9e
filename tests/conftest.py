"""What holds for all tests."""

import os

# Tests are small: more threads only make them slower. Programs that they start inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")
