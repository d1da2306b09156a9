"""Training with DistributedDataParallel: the losses are those with Gloo."""

import os
import subprocess
import sys
import unittest

import ranks
import torch
import torch.distributed as dist

STEPS = 4


def losses(rank, group):
    torch.manual_seed(5)
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 512),
        torch.nn.BatchNorm1d(512),
        torch.nn.ReLU(),
        torch.nn.Linear(512, 10),
    )
    model = torch.nn.parallel.DistributedDataParallel(model, process_group=group)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    data = torch.Generator().manual_seed(rank)
    found = []
    for _ in range(STEPS):
        given = torch.randn(32, 64, generator=data)
        label = torch.randint(10, (32,), generator=data)
        loss = torch.nn.functional.cross_entropy(model(given), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.detach())
    return torch.stack(found)


def train(rank, size):
    own, truth = losses(rank, None), losses(rank, dist.new_group(backend="gloo"))
    # Two numbers have one sum. Sums of more depend on the order, by some units of the last place.
    tolerance = 0.0 if size == 2 else 1e-5
    torch.testing.assert_close(own, truth, rtol=tolerance, atol=tolerance)


class Training(unittest.TestCase):
    def test_losses_are_those_with_gloo(self):
        for size in (2, 3):
            with self.subTest(size=size):
                ranks.run(train, size)

    def test_a_missing_token_is_named(self):
        code = (
            "import torch.distributed as dist\n"
            "dist.init_process_group('multirail', store=dist.HashStore(), rank=0, world_size=1)"
        )
        environment = {k: v for k, v in os.environ.items() if not k.startswith("MULTIRAIL_")}
        ended = subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        self.assertRegex(ended.stderr, "TokenError.*MULTIRAIL_TOKEN_FILE")


if __name__ == "__main__":
    unittest.main()
