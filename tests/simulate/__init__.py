"""Deterministic simulation of whole groups of real engines: python -m tests.simulate --help.

    weather   what a group is like: its settings, drawn from a seed
    scenes    what can happen to it, one thing at a time
    storm     a schedule of scenes, and what must be true when the weather has cleared
    shrink    the shortest history that still fails, as an engineer can read it
    campaign  many schedules on all cores, with figures, resumable
    faults    wrong steps that are planted to see that they are found

The engines run on tests.fakes.engine; what must hold throughout is judged by tests.fakes.judge.
"""
