"""What holds for all tests."""

import os
import signal

# Tests are small: more threads only make them slower. Programs that they start inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell starts background jobs with Ctrl-C ignored, and programs that the tests start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
