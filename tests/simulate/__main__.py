"""python -m tests.simulate [--seeds N] [--processes N] [--again]
python -m tests.simulate --seed N --guarantee G [--keep 1,2,3] [--plain NAME,NAME]

Plays schedules on all cores, goes on where the last run was ended (.cache/simulate.json), prints
figures, and tells each failure as the shortest history that could be found. With --seed: one
schedule, told whole.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from sidecar.model import Guarantee
from tests.simulate.campaign import MOST_FAILURES, Campaign, play
from tests.simulate.shrink import attempt, report, shrink

STATE = Path(".cache/simulate.json")
BATCH = 50
TOLD_SECONDS = 30.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.simulate")
    parser.add_argument("--seeds", type=int, default=20_000, help="from the first one on")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--again", action="store_true", help="begin with the first seed")
    parser.add_argument("--state", type=Path, default=STATE)
    parser.add_argument("--seed", type=int, help="just this one")
    parser.add_argument(
        "--guarantee", type=Guarantee, default=Guarantee.AT_LEAST_ONCE, help="of that one"
    )
    parser.add_argument("--keep", help="only these scenes of it, by number, or none")
    parser.add_argument("--plain", default="", help="what of it is not drawn")
    args = parser.parse_args()
    logging.disable(logging.CRITICAL)
    if args.seed is not None:
        sys.exit(_one(args.seed, args.guarantee, args.keep, args.plain))
    if args.again:
        args.state.unlink(missing_ok=True)
    sys.exit(_many(Campaign(args.state), args.seeds, args.processes))


def _one(seed: int, guarantee: Guarantee, keep: str | None, plain: str) -> int:
    kept = None
    if keep is not None:
        kept = [int(each) for each in keep.split(",") if each != "none"]
    failure = attempt(seed, guarantee, kept, [each for each in plain.split(",") if each])
    if failure is None:
        print("every invariant holds")
        return 0
    print("\n".join(report(failure if keep is not None else shrink(failure))))
    return 1


def _many(campaign: Campaign, seeds: int, processes: int) -> int:
    progress = campaign.progress
    began = told = time.monotonic()
    before = progress.schedules
    if progress.next_seed:
        print(f"going on at seed {progress.next_seed}", flush=True)
    starts = range(progress.next_seed, seeds, BATCH)
    ends = [min(start + BATCH, seeds) for start in starts]
    with ProcessPoolExecutor(processes) as pool:
        try:
            for played in pool.map(play, starts, ends):
                progress.add(played)
                campaign.save()
                if (now := time.monotonic()) - told >= TOLD_SECONDS:
                    told = now
                    print(f"{progress.schedules} schedules, {len(progress.failures)} failed")
                    sys.stdout.flush()
                if len(progress.failures) >= MOST_FAILURES:
                    break
        except KeyboardInterrupt:
            print("ended; run it again to go on")
        pool.shutdown(cancel_futures=True)
    for failure in campaign.failures():
        print("\n".join(("", *report(shrink(failure)))))
    seconds = time.monotonic() - began
    print()
    print("\n".join(progress.lines()))
    print(f"{progress.schedules - before} of them in {seconds:.0f} s on {processes} processes")
    return bool(progress.failures)


if __name__ == "__main__":
    main()
