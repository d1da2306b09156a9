"""Sessions of asyncio."""

import asyncio
import os
import unittest

import multirail as mr
from hosts import LIMIT_S, TOKEN


async def pair():
    listener = mr.aio.listen("127.0.0.1:0", token=TOKEN)
    accepted = asyncio.create_task(listener.accept(timeout=LIMIT_S))
    session = await mr.aio.connect(listener.address, token=TOKEN)
    other = await accepted
    await listener.close()
    return session, other


class Aio(unittest.IsolatedAsyncioTestCase):
    async def test_messages_in_both_directions(self):
        one, other = await pair()
        large = os.urandom(4 << 20)
        sent = asyncio.gather(one.send(large), other.send(large))
        self.assertEqual(await one.recv(), large)
        buffer = bytearray(len(large))
        self.assertEqual(await other.recv_into(buffer), len(large))
        await sent
        self.assertEqual(buffer, large)
        await asyncio.gather(one.close(), other.close())

    async def test_many_sessions_of_one_loop(self):
        async with mr.aio.listen("127.0.0.1:0", token=TOKEN) as listener:

            async def echo():
                async with await listener.accept(timeout=LIMIT_S) as session:
                    await session.send(await session.recv())

            async def ask(number):
                async with mr.aio.connect(listener.address, token=TOKEN) as session:
                    await session.send(b"%d" % number)
                    return await session.recv()

            servers = [asyncio.create_task(echo()) for _ in range(20)]
            answers = await asyncio.gather(*map(ask, range(20)))
            await asyncio.gather(*servers)
        self.assertEqual(answers, [b"%d" % number for number in range(20)])

    async def test_a_cancelled_recv_loses_nothing(self):
        one, other = await pair()
        waiting = asyncio.create_task(one.recv())
        await asyncio.sleep(0.05)
        waiting.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await waiting
        await other.send(b"still there")
        self.assertEqual(await asyncio.wait_for(one.recv(), LIMIT_S), b"still there")
        await asyncio.gather(one.close(), other.close())

    async def test_a_send_that_is_cancelled_in_the_middle_ends_the_session(self):
        one, other = await pair()
        # The peer does not receive it, so that it stays in the middle.
        sending = asyncio.create_task(one.send(bytes(64 << 20)))
        await asyncio.sleep(0.1)
        sending.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await sending
        with self.assertRaises(mr.Lost):
            await one.send(b"more")
        with self.assertRaises(mr.Lost):
            await asyncio.wait_for(other.recv(), LIMIT_S)

    async def test_errors(self):
        async with mr.aio.listen("127.0.0.1:0", token=TOKEN) as listener:
            with self.assertRaises(mr.Timeout):
                await listener.accept(timeout=0.05)
            with self.assertRaises(mr.Denied):
                waiting = asyncio.create_task(listener.accept(timeout=LIMIT_S))
                try:
                    await mr.aio.connect(
                        listener.address, token=mr.Token("a secret of another one")
                    )
                finally:
                    waiting.cancel()


if __name__ == "__main__":
    unittest.main()
