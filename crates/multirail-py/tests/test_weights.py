"""Versions of weights."""

import unittest

import multirail as mr
import numpy as np
from hosts import LIMIT_S, TOKEN


class Weights(unittest.TestCase):
    def setUp(self):
        self.publisher = mr.weights.Publisher("127.0.0.1:0", token=TOKEN)
        self.addCleanup(self.publisher.close)

    def subscribe(self):
        subscriber = mr.weights.Subscriber(self.publisher.address, token=TOKEN)
        self.addCleanup(subscriber.close)
        return subscriber

    def state(self, number):
        return {"w": np.full((100, 200), number, "f4"), "b": np.full(3, number, "i4")}

    def test_versions_increase(self):
        subscribers = [self.subscribe() for _ in range(3)]
        for number in (1, 2):
            self.assertEqual(self.publisher.push(self.state(number)), number)
            for subscriber in subscribers:
                version, state = subscriber.get(after=number - 1, timeout=LIMIT_S)
                self.assertEqual((version, state["w"][9, 9]), (number, number))
        with self.assertRaises(mr.Timeout):
            subscribers[0].get(after=2, timeout=0)

    def test_a_late_subscriber_gets_the_latest_version(self):
        self.publisher.push(self.state(1))
        first = self.subscribe()
        self.assertEqual(first.get(timeout=LIMIT_S)[0], 1)
        self.publisher.push(self.state(2))
        # The first subscriber serves it, and not the publisher.
        self.publisher._send_latest = self.fail
        late = self.subscribe()
        into = self.state(0)
        self.assertEqual(late.get_into(into, timeout=LIMIT_S), 2)
        self.assertEqual(into["b"].tolist(), [2, 2, 2])
        self.assertEqual(self.publisher.push(self.state(3)), 3)
        self.assertEqual(late.get(after=2, timeout=LIMIT_S)[0], 3)

    def test_a_subscriber_that_ends_holds_up_nothing(self):
        stays, ends = self.subscribe(), self.subscribe()
        self.publisher.push(self.state(1))
        ends.close()
        self.publisher.push(self.state(2))
        self.assertEqual(stays.get(after=1, timeout=LIMIT_S)[0], 2)

    def test_what_differs_is_named(self):
        subscriber = self.subscribe()
        self.publisher.push(self.state(1))
        into = {"w": np.zeros((200, 100), "f4"), "b": np.zeros(3, "i4")}
        with self.assertRaisesRegex(mr.MultirailError, r"w is float32 of shape \(100, 200\)"):
            subscriber.get_into(into, timeout=LIMIT_S)
        self.assertEqual(into["b"].tolist(), [0, 0, 0])

    def test_the_end_of_the_publisher(self):
        subscriber = self.subscribe()
        self.publisher.close()
        with self.assertRaises((mr.Closed, mr.Lost)):
            subscriber.get(timeout=LIMIT_S)


if __name__ == "__main__":
    unittest.main()
