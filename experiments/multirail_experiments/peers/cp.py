"""`multirail cp`, from `multirail serve`."""

import contextlib

NAME = "multirail cp"
PORT = 7820


def available(_lab):
    return None


@contextlib.contextmanager
def serving(lab, source):
    server = [
        lab.multirail,
        "serve",
        "--root",
        source.root,
        "--token-file",
        lab.token_file,
        "--listen",
        f"0.0.0.0:{PORT}",
    ]

    def command(load, target):
        # A folder keeps its name inside the target.
        what = f"{load.folder}/{load.names[0]}" if load.is_one else load.folder
        return [
            lab.multirail,
            "cp",
            *([] if load.is_one else ["-r"]),
            "--token-file",
            lab.token_file,
            f"mr://{lab.address('b', 0)}:{PORT}/{what}",
            f"{target}/",
        ]

    with lab.start("b", *server, ready=lab.listens("b", PORT)):
        yield [(NAME, command)]
