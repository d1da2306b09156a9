"""Broadcasts among the members of a group."""

import os
import unittest
from unittest import mock

import members
import multirail as mr
import numpy as np
from hosts import TOKEN, in_thread


class Groups(unittest.TestCase):
    def test_a_dictionary_is_filled_in_place(self):
        def call(group):
            state = {"a": np.zeros((200, 300), "f4"), "b": np.zeros(3, "i8"), "c": np.zeros(0)}
            if group.rank == 0:
                state["a"][:], state["b"][:] = np.arange(300), (1, 2, 3)
            self.assertIs(group.broadcast(state), state)
            return state

        for state in members.run(3, call):
            np.testing.assert_array_equal(state["a"][7], np.arange(300))
            self.assertEqual(state["b"].tolist(), [1, 2, 3])

    def test_any_rank_is_root_and_none_makes_new_arrays(self):
        def call(group):
            return [
                group.broadcast(np.full((2, 5), root, "u2") if group.rank == root else None, root)
                for root in (1, 0, 2, 1)
            ]

        for found in members.run(3, call):
            self.assertEqual([int(array[1, 4]) for array in found], [1, 0, 2, 1])
            self.assertEqual([array.shape for array in found], [(2, 5)] * 4)

    def test_clusters_can_be_given(self):
        found = members.run(3, lambda g: bytes(g.broadcast(b"abc" if not g.rank else None)),
                            clusters=[7, 3, 7])  # fmt: skip
        self.assertEqual(found, [b"abc"] * 3)

    def test_what_differs_is_named_and_the_group_goes_on(self):
        def call(group):
            shape = (2, 2) if group.rank == 2 else (4,)
            name = "other" if group.rank == 1 else "w"
            message = ""
            try:
                group.broadcast({name: np.ones(shape, "f4")})
            except mr.MultirailError as error:
                message = str(error)
            return message, bytes(group.broadcast(b"next" if group.rank == 0 else None))

        (_, _), (names, one), (shapes, two) = members.run(3, call)
        self.assertRegex(names, "w is missing here|other is missing at rank 0")
        self.assertRegex(shapes, r"w is float32 of shape \(4,\) at rank 0 .*\(2, 2\) here")
        self.assertEqual((one, two), (b"next", b"next"))

    def test_a_member_that_ends_is_named(self):
        master = f"127.0.0.1:{members.free_port()}"
        groups = [
            in_thread(lambda rank=rank: mr.Group(rank, 3, master, token=TOKEN)) for rank in range(3)
        ]
        root, one, two = (group() for group in groups)
        two.close()
        with self.assertRaisesRegex(mr.Lost, r"rank 2 \("):
            waiting = in_thread(lambda: bytes(one.broadcast()))
            root.broadcast(b"to those that are there")
        self.assertEqual(waiting(), b"to those that are there")
        with self.assertRaisesRegex(mr.Lost, r"rank 2 \("):
            in_thread(one.barrier)
            root.barrier()
        for group in (one, root):
            group.close()

    def test_the_environment_and_a_missing_token(self):
        environment = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
        environment["MASTER_PORT"] = str(members.free_port())
        with mock.patch.dict(os.environ, environment, clear=True):
            with self.assertRaisesRegex(mr.TokenError, "MULTIRAIL_TOKEN_FILE"):
                mr.Group.from_env()
            with mr.Group.from_env(token=TOKEN) as group:
                self.assertEqual(group.broadcast(b"alone"), b"alone")
            del os.environ["RANK"]
            with self.assertRaisesRegex(ValueError, "RANK not set"):
                mr.Group.from_env(token=TOKEN)


if __name__ == "__main__":
    unittest.main()
