"""The load: numbered records at a steady rate, whatever becomes of those before (an open loop).

    python -m tests.rig.load --bootstrap-servers B --topic T --rate R --count N --first F ...

SIGTERM ends it early. Prints "confirmed N" at the end: how many the broker confirmed; fewer than
were produced is an error.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from types import FrameType

from confluent_kafka import KafkaError, Message, Producer


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--size", type=int, default=200)
    parser.add_argument("--delay-ms", type=int, default=0)
    parser.add_argument("--slow-every", type=int, default=0)
    parser.add_argument("--slow-ms", type=int, default=10_000)
    args = parser.parse_args()
    producer = Producer(
        {
            "bootstrap.servers": args.bootstrap_servers,
            "enable.idempotence": True,
            "max.in.flight": 1,  # see KafkaOperations.producer
            "linger.ms": 1,
            "log_level": 0,
        }
    )
    confirmed = 0

    def on_delivery(error: KafkaError | None, _: Message) -> None:
        nonlocal confirmed
        confirmed += error is None

    stopping = False

    def stop(_: int, __: FrameType | None) -> None:
        nonlocal stopping
        stopping = True

    signal.signal(signal.SIGTERM, stop)
    produced = 0
    start = time.monotonic()
    for index in range(args.count):
        due = start + index / args.rate
        while (left := due - time.monotonic()) > 0:
            producer.poll(min(left, 0.01))
        if stopping:
            break
        number = args.first + index
        slow = args.slow_every and number % args.slow_every == args.slow_every - 1
        delay = args.slow_ms if slow else args.delay_ms
        value = f"{number} {time.monotonic_ns()} {delay} ".encode().ljust(args.size, b"x")
        producer.produce(
            args.topic, value, partition=number % args.partitions, on_delivery=on_delivery
        )
        produced += 1
        producer.poll(0)
    producer.flush(120)
    sys.stdout.write(f"confirmed {confirmed}\n")
    raise SystemExit(confirmed != produced)


if __name__ == "__main__":
    main()
