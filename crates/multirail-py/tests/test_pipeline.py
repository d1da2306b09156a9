"""Pipelines whose filters are functions."""

import unittest

import multirail as mr


def negative(x):
    return bytes(255 - b for b in x)


def parts(x):
    for at in range(0, len(x), 2):
        yield x[at : at + 2]


def lengths(values):
    yield str(sum(len(value) for value in values)).encode()


class Local(unittest.TestCase):
    def test_many_copies_give_what_the_functions_give(self):
        inputs = [bytes([n % 256, n // 256]) * 3 for n in range(300)]
        p = mr.Pipeline()
        p.filter(copies=3, stateless=True)(negative)
        p.filter(copies=2)(parts)
        expected = sorted(part for x in inputs for part in parts(negative(x)))
        with p:
            for _ in range(2):
                self.assertEqual(sorted(p.run(inputs)), expected)

    def test_a_filter_of_a_stream_sees_all_values(self):
        p = mr.Pipeline()
        p.filter(stream=True)(lengths)
        with p:
            self.assertEqual(list(p.run([b"abc", b"", b"de"])), [b"5"])
            self.assertEqual(list(p.run([])), [b"0"])


if __name__ == "__main__":
    unittest.main()
