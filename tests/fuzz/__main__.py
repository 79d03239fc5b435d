"""python -m tests.fuzz [KIND ...] [--seconds 600] [--seed N] [--case N]

Feeds what others write and the sidecar reads with what they should not, kind after kind, for the
seconds each. Prints what it did; a case that finds something ends it with exit code 1 and the
command that repeats it.
"""

from __future__ import annotations

import argparse
from random import Random

from tests.fuzz.kinds import KINDS
from tests.fuzz.running import Found, run


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("kind", nargs="*", help=", ".join(KINDS))
    parser.add_argument("--seconds", type=float, default=600, help="for each kind")
    parser.add_argument("--seed", type=int, help="instead of one by chance")
    parser.add_argument("--case", type=int, help="of one kind, just this one")
    args = parser.parse_args()
    if wrong := set(args.kind) - KINDS.keys():
        parser.error(f"unknown: {', '.join(wrong)}; there are {', '.join(KINDS)}")
    if args.case is not None:
        if len(args.kind) != 1:
            parser.error("of which kind is the case?")
        kind = KINDS[args.kind[0]]
        print(kind.case(args.case))
        kind.judge(kind.case(args.case))
        return
    for name in args.kind or KINDS:
        _run(name, args.seconds, Random().getrandbits(32) if args.seed is None else args.seed)


def _run(name: str, seconds: float, seed: int) -> None:
    print(f"{name}: seed {seed}", flush=True)

    def tell(cases: int, so_far: float) -> None:
        print(f"{name}: {cases} cases in {so_far:.0f} s", flush=True)

    try:
        figures = run(KINDS[name], seconds, seed, tell)
    except Found as found:
        error = found.__cause__
        print(f"{name}: case {found.number}: {type(error).__name__}: {error}")
        print(f"again: python -m tests.fuzz {name} --case {found.number}", flush=True)
        raise SystemExit(1) from error
    growth = f"{figures.blocks:+} blocks, {figures.resident_mb:+.1f} MB"
    print(f"{name}: {figures.cases} cases in {figures.seconds:.0f} s, nothing found; {growth}")
    if figures.grows:
        raise SystemExit(f"{name}: memory grows")


if __name__ == "__main__":
    main()
