"""Pure decisions: no await, no thread, no clock, no logging. Time and chance are arguments."""
