"""python -m tests.fuzz [--seconds 600] [--seed N] [--case N]

Feeds the connection to an application with spoiled answers until the time is over. Prints what it
did; a case that finds something ends it with exit code 1 and the command that repeats it.
"""

from __future__ import annotations

import argparse
import time
from random import Random

from tests.fuzz.answers import case
from tests.fuzz.oracle import judge


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, help="instead of one by chance")
    parser.add_argument("--case", type=int, help="just this one")
    args = parser.parse_args()
    if args.case is not None:
        print(case(args.case))
        judge(case(args.case))
        return
    seed = Random().getrandbits(32) if args.seed is None else args.seed
    print(f"seed {seed}", flush=True)
    numbers = Random(seed)
    done = 0
    began = told = time.monotonic()
    while (now := time.monotonic()) - began < args.seconds:
        number = numbers.getrandbits(48)
        try:
            judge(case(number))
        except BaseException as error:
            print(f"case {number}: {type(error).__name__}: {error}")
            print(f"again: python -m tests.fuzz --case {number}", flush=True)
            raise SystemExit(1) from error
        done += 1
        if now - told >= 30:
            told = now
            print(f"{done} cases in {now - began:.0f} s", flush=True)
    print(f"{done} cases in {time.monotonic() - began:.0f} s, nothing found")


if __name__ == "__main__":
    main()
