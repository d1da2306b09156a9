"""What tests of files share: a temporary folder, and a server of a part of it."""

import pathlib
import tempfile
import unittest

import multirail as mr
from hosts import TOKEN

# Copies of this length take several times as long as it takes to end them.
LONG_MIB = 768


class Served(unittest.TestCase):
    """Tests with `self.folder` of this host, and `self.served`, which `self.server` serves."""

    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="multirail-test-")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name, "here")
        self.served = pathlib.Path(temporary.name, "served")
        self.folder.mkdir()
        self.served.mkdir()
        self.server = self.serve(self.served)
        self.url = f"mr://{self.server.address}"

    def serve(self, folder):
        server = mr.serve(folder, "127.0.0.1:0", token=TOKEN)
        self.addCleanup(server.close)
        return server

    def long_file(self):
        """A file whose copy can be ended in its middle."""
        file = self.folder / "long"
        with open(file, "wb") as content:
            for _ in range(LONG_MIB):
                content.write(bytes(1 << 20))
        return file

    def names(self, folder):
        """All paths below a folder."""
        return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
