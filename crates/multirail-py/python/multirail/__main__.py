"""`python -m multirail` is the command `multirail` of this installation."""

import os
import sys
import sysconfig


def main() -> None:
    folders = [sysconfig.get_path("scripts"), sysconfig.get_path("scripts", "posix_user")]
    for folder in folders:
        command = os.path.join(folder, "multirail")
        if os.access(command, os.X_OK):
            os.execv(command, [command, *sys.argv[1:]])
    sys.exit(f"the command multirail is in none of {folders}: install the wheel again")


if __name__ == "__main__":
    main()
