"""Names that processes of a federation have in common."""

from __future__ import annotations

LOGGER = "fedgkd-federation"
"""What is logged there is for people: it goes to the screen."""

CONTROLLER = "fedgkd.federation.controller.RoundsController"
EXECUTOR = "fedgkd.federation.executor.SiteExecutor"
GUEST_LIST = "fedgkd.federation.guests.GuestList"

WORKER = "FEDGKD_WORKER"
"""Environment variable with the path of the socket of a site's training process."""

ALLOWED = "FEDGKD_ALLOWED_ALGORITHM"
"""Environment variable with the algorithm of somebody's own that the coordinator's operator allows."""

TASK, MESSAGE, REASON = "fedgkd", "message", "reason"
RUN = "run"
"""Folder in a kit with all that comes of the training."""
STATUS = "status.json"
"""In the coordinator's run: where the training is."""
PRESENCE = "presence.json"
"""In the coordinator's kit: who is connected, and who takes part in the job that runs."""

CANNOT_START = 2
"""Exit code of a training process that was given something unusable; the reason is the last line of its errors."""

SUSPENDED = "suspended.json"
"""In the coordinator's kit: the sites whose kit was used twice, until the operator admits them again."""

LARGEST = "FEDGKD_LARGEST_MESSAGE"
"""Environment variable with the bytes of a question or an answer at most."""
ENVELOPE = 1 << 20
"""Bytes that FLARE may add to that, and that its own messages may have."""
