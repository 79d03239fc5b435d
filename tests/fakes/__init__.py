"""Stand-ins that pass the same contract as what they stand for."""
