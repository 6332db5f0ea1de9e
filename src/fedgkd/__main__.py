"""``python -m fedgkd``."""

import sys

if __name__ == "__main__":
    if not sys.flags.safe_path:
        # Python puts the working directory first, where any file may have the name of a module that we import.
        del sys.path[0]

    from fedgkd.cli import main

    main()
