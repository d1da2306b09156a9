"""The package: its documentation, its types, and the command."""

import doctest
import pathlib
import subprocess
import sys
import sysconfig
import unittest

import multirail

ROOT = pathlib.Path(__file__).parents[3]


class Package(unittest.TestCase):
    def test_examples(self):
        for module in (multirail, multirail.channel, multirail.weights):
            failed, attempted = doctest.testmod(module)
            self.assertEqual(failed, 0)
            self.assertGreater(attempted, 0, "there are examples")
        # Guides without such examples have whole programs, which other tests run.
        guides = (ROOT / "docs/guide").glob("*.md")
        guides = [guide for guide in guides if ">>> " in guide.read_text()]
        self.assertIn("python.md", [guide.name for guide in guides])
        for guide in guides:
            with self.subTest(guide.name):
                failed, _ = doctest.testfile(
                    str(guide), module_relative=False, optionflags=doctest.ELLIPSIS
                )
                self.assertEqual(failed, 0)

    def test_the_stub_names_what_the_module_has(self):
        stub = pathlib.Path(multirail.__file__).with_name("_multirail.pyi").read_text()
        for name in dir(multirail._multirail):
            thing = getattr(multirail._multirail, name)
            if name.startswith("__"):
                continue
            self.assertRegex(stub, rf"(?m)^(class|def) {name}\b|^{name}:")
            for method in vars(thing) if isinstance(thing, type) else ():
                if not method.startswith("__"):
                    self.assertRegex(stub, rf"def {method}\b", f"{name}.{method}")

    def test_the_command(self):
        script = pathlib.Path(sysconfig.get_path("scripts"), "multirail")
        for command in ([script], [sys.executable, "-m", "multirail"]):
            done = subprocess.run(
                [*command, "--version"], capture_output=True, text=True, check=True
            )
            self.assertEqual(done.stdout.strip(), f"multirail {multirail.__version__}")


if __name__ == "__main__":
    unittest.main()
