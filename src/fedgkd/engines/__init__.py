"""Where clients' tasks run: here in one process, batched, or over a network."""

from fedgkd.engines.in_process import InProcessEngine, Task

__all__ = ["InProcessEngine", "Task"]
