"""``python -m fedgkd``."""

from fedgkd.cli import main

main()
